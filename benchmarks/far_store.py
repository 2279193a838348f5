"""A proxy that makes a store on this machine as slow as a bucket that is far away: what a client sends arrives
`LATENCY_S` later, and each connection carries at most `BYTES_PER_S` each way.

It passes bytes on as they are, so requests keep the Host header that SigV4 signs.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from time import monotonic
from urllib.parse import urlsplit

LATENCY_S = 0.02
BYTES_PER_S = 100_000_000
_PART = 256 << 10
_MOST_PARTS = 64
"""How many parts of one connection may be under way."""


@contextmanager
def far_store(endpoint: str) -> Iterator[str]:
    """Yields the endpoint of the proxy in front of `endpoint`. It runs on a loop in a thread of its own."""
    near = urlsplit(endpoint)
    loop = asyncio.new_event_loop()

    async def serve() -> asyncio.Server:
        return await asyncio.start_server(lambda *ends: _connected(near.hostname, near.port, *ends), "127.0.0.1", 0)

    with closing(loop):
        server = loop.run_until_complete(serve())
        thread = threading.Thread(target=loop.run_forever, name="far store")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            server.close()
            loop.run_until_complete(_end(asyncio.all_tasks(loop)))


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _connected(
    host: str | None, port: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    near_reader, near_writer = await asyncio.open_connection(host, port)
    try:
        await asyncio.gather(_carry(reader, near_writer, LATENCY_S), _carry(near_reader, writer, 0))
    except OSError:
        pass
    finally:
        near_writer.close()
        writer.close()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, latency_s: float) -> None:
    """Passes on each part when it is due, and no faster than the rate allows."""
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_PARTS)

    async def deliver() -> None:
        free_s = monotonic()
        while True:
            due_s, data = await on_the_way.get()
            await asyncio.sleep(max(0.0, due_s - monotonic(), free_s - monotonic()))
            if not data:
                target.write_eof()
                return
            free_s = max(free_s, monotonic() - _PART / BYTES_PER_S) + len(data) / BYTES_PER_S
            target.write(data)
            await target.drain()

    delivery = asyncio.create_task(deliver())
    try:
        while True:
            data = await source.read(_PART)
            await on_the_way.put((monotonic() + latency_s, data))
            if not data:
                break
        await delivery
    finally:
        delivery.cancel()
