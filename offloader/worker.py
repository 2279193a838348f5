"""The worker process: converts and uploads segments at low priority, so that archiving never delays a producer.

The broker starts it (`WorkerProcess`) and sends it one job at a time, as a pickled object with its length in front. It
reads the result in the same way. The worker ends when its standard input ends, so a killed broker leaves no worker
behind. Only the broker and its worker write to these pipes.
"""

import asyncio
import ctypes
import logging
import os
import pickle
import struct
import sys
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import structlog

from cold_tier.errors import StoreUnavailable
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.bucket import StoreCounters
from cold_tier.objects.open import StoreSettings, open_store
from hot_tier.errors import StorageFailure, TierlogError
from offloader import failpoints
from offloader.archive import ArchiveJob, archive_segment

_LENGTH = struct.Struct(">I")
_NICE = 10
ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own pool keeps more of each larger segment, which nothing gives back: after twelve segments of 65 MB a worker
had 142 MB of its own, and with the C library's memory 109 MB. The CPU was the same."""

_log = structlog.get_logger()


class WorkerProcess:
    """The broker's side of the pipe. It does one job at a time, and starts a new worker if the last one has died."""

    def __init__(self, store: StoreSettings, scratch: str) -> None:
        self._start_message = _Start(store, scratch)
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.requests = StoreCounters()
        """The counts of its jobs' requests to the store so far."""

    async def archive(self, job: ArchiveJob) -> SegmentEntry:
        async with self._turn:
            process = self._process or await self._start()
            try:
                await _send(process.stdin, job)
                result = await _receive(process.stdout)
            except (EOFError, OSError) as error:
                self._process = None
                code = await process.wait()
                raise StoreUnavailable(
                    f"the archive worker ended with {code}", hint="it is started again; see its log for the reason"
                ) from error
            except asyncio.CancelledError:
                self._process = None
                process.kill()
                await process.wait()
                raise
        made, requests = result
        assert isinstance(requests, StoreCounters)
        self.requests += requests
        if isinstance(made, TierlogError):
            raise made
        assert isinstance(made, SegmentEntry)
        return made

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT},
        )
        await _send(self._process.stdin, self._start_message)
        return self._process


@dataclass(frozen=True, slots=True)
class _Start:
    store: StoreSettings
    scratch: str


async def _send(stream: asyncio.StreamWriter | None, message: Any) -> None:
    assert stream is not None
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    await stream.drain()


async def _receive(stream: asyncio.StreamReader | None) -> Any:
    assert stream is not None
    length = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))[0]
    return pickle.loads(await stream.readexactly(length))


def main() -> None:
    os.nice(_NICE)
    failpoints.broker_pid = os.getppid()
    # Output that libraries print must not get between the results.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs = sys.stdin.buffer
    # The broker itself logs the state of the bucket, in the chosen format. Here only our own mistakes are logged.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

    def receive() -> Any:
        header = jobs.read(_LENGTH.size)
        if len(header) < _LENGTH.size:
            raise SystemExit
        return pickle.loads(jobs.read(_LENGTH.unpack(header)[0]))

    start = receive()
    os.makedirs(start.scratch, exist_ok=True)
    for left_over in os.scandir(start.scratch):
        os.unlink(left_over.path)
    store = open_store(start.store, create=True)
    while True:
        job = receive()
        store.counters = StoreCounters()
        data = pickle.dumps((_result(store, job, start.scratch), store.counters))
        try:
            results.write(_LENGTH.pack(len(data)) + data)
            results.flush()
        except BrokenPipeError:
            # The broker is gone. At a normal exit Python would try again to write the rest, and complain.
            os._exit(0)
        give_memory_back()


def give_memory_back() -> None:
    """Else Arrow's pool keeps up to 100 MB of the largest segment so far until the next one comes. And the C library
    keeps up to 10 MB of it for good: something small that stays holds all that is free below it."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _result(store: Any, job: ArchiveJob, scratch: str) -> SegmentEntry | TierlogError:
    try:
        return asyncio.run(archive_segment(store, job, scratch))
    except TierlogError as error:
        return error
    except OSError as error:
        return StorageFailure(str(error), where=job.log_path, hint="check the local disk; the segment stays")
    except Exception as error:
        # The worker continues, because other segments can be archived.
        _log.exception("segment cannot be archived", segment=job.log_path)
        what = f"cannot be archived: {type(error).__name__}: {error}"
        return StorageFailure(what, where=job.log_path, hint="the segment stays; keep it and report this")


if __name__ == "__main__":
    main()
