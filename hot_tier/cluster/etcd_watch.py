"""One watch of a prefix in etcd, across lost connections: every transaction once, whole and in order.

- It resumes after the last transaction that it delivered. Parts of a later transaction are dropped and come again.
- Silence is not trusted: an endpoint that has said nothing for `QUIET_S` is asked for a linearizable read, which a
  hung or cut-off member cannot answer. If that fails, the watch moves to the next endpoint.
- While no endpoint answers it waits; the reader sees no error and, once one does, no gap.
- A store that knows less than the watch has seen (a restored backup) raises MetadataCompacted too. Its next
  revisions have other contents than those that the watch has seen.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import aiohttp
import structlog

from hot_tier.cluster import etcd_wire as wire
from hot_tier.cluster.etcd_client import EtcdClient, Interrupted
from hot_tier.cluster.etcd_wire import EtcdError, Garbled
from hot_tier.cluster.store import Event, Revision
from hot_tier.errors import MetadataCompacted

QUIET_S: Final = 1.0
PAUSES_S: Final = (0.0, 0.05, 0.1, 0.2, 0.5)
"""Before the next round over all endpoints, after so many that failed."""

_log = structlog.get_logger()


class EtcdWatch:
    """`batches` is for one reader. `close`, from anywhere, ends it once the client is closed."""

    def __init__(self, client: EtcdClient, store_prefix: str, prefix: str, from_revision: Revision) -> None:
        self._client = client
        self._store_prefix = store_prefix
        self._prefix = store_prefix + prefix
        self._seen = from_revision
        self._failures = 0
        self._reading: asyncio.Future[bytes] | None = None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def batches(self) -> AsyncGenerator[Sequence[Event], None]:
        while not self._client.closed:
            endpoint = self._client.endpoint
            try:
                async with aclosing(self._connected(endpoint)) as connected:
                    async for batch in connected:
                        self._seen = batch[-1].revision
                        yield batch
            except EtcdError as error:
                await self._recover(endpoint, self._client.judge(endpoint, error))
            except Interrupted as interrupted:
                await self._recover(endpoint, interrupted)

    async def _recover(self, endpoint: str, reason: Interrupted) -> None:
        if self._client.closed:
            return
        self._client.leave(endpoint)
        if self._failures == 0:
            _log.warning("metadata watch interrupted", endpoint=endpoint, reason=str(reason))
        rounds, rest = divmod(self._failures, len(self._client.endpoints))
        self._failures += 1
        if rest == 0:
            await asyncio.sleep(PAUSES_S[min(rounds, len(PAUSES_S) - 1)])

    async def _connected(self, endpoint: str) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yields what one connection delivers. It always ends with an error."""
        known = await self._client.revision(endpoint, self._prefix)
        if known < self._seen:
            raise MetadataCompacted(
                f"etcd is at revision {known}, this node has seen {self._seen}: an older state was restored",
                where=endpoint,
            )
        body = wire.watch_body(self._prefix, self._seen + 1)
        async with self._client.stream(endpoint, "/v3/watch", body) as content:
            events: tuple[Event, ...] = ()
            async for line in self._lines(endpoint, content):
                try:
                    message = wire.read_watch(self._store_prefix, wire.parse(line))
                except Garbled as error:
                    raise Interrupted(str(error), sent=True) from error
                if message.compact_revision:
                    raise MetadataCompacted(
                        f"changes after revision {self._seen} are no longer known, "
                        f"only after {message.compact_revision - 1}",
                        where=self._prefix,
                    )
                if message.canceled:
                    denied = "permission denied" in message.reason
                    raise EtcdError(wire.PERMISSION_DENIED if denied else wire.UNKNOWN, message.reason)
                self._failures = 0
                batches = list(wire.by_transaction((*events, *message.events)))
                # The last transaction in a fragment may go on in the next one. The others are delivered now, so that a
                # long
                # history does not start again with each lost connection.
                events = batches.pop() if message.fragment and batches else ()
                for batch in batches:
                    yield batch

    async def _lines(self, endpoint: str, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
        """Splits the stream into lines. The stream's own `readline` refuses lines that are longer than its buffer."""
        buffer = bytearray()
        while chunk := await self._read(endpoint, content):
            searched = len(buffer)
            buffer += chunk
            while (end := buffer.find(b"\n", searched)) >= 0:
                yield bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
        raise Interrupted("the stream ended", sent=False)

    async def _read(self, endpoint: str, content: aiohttp.StreamReader) -> bytes:
        self._reading = asyncio.ensure_future(content.readany())
        try:
            while not (await asyncio.wait({self._reading}, timeout=QUIET_S))[0]:
                await self._client.revision(endpoint, self._prefix)
            if self._reading.cancelled():
                raise Interrupted("closed", sent=False)
            return self._reading.result()
        except RuntimeError as error:
            # aiohttp raises this for a read that begins after its connection was closed.
            raise Interrupted(str(error), sent=True) from error
        finally:
            self._reading.cancel()
