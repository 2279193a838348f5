"""The broker's side of a query worker: the process, and the conversation about one job.

A worker handles what users write. So its frames are checked like foreign bytes, a job that is cancelled or out of time
ends within `GRACE_S`, and a worker that does not end it by then is killed.
"""

import asyncio
import os
import pickle
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import orjson

from cold_tier import errors as cold
from gateway.sql import errors as own
from gateway.sql.errors import QueryFailed, QueryTooLarge
from gateway.sql.extents import TopicExtents
from gateway.sql.frames import HEADER, MOST_BYTES, FromBroker, FromWorker
from gateway.sql.jobs import Job, Start
from hot_tier import errors as hot
from hot_tier.errors import TierlogError

NICE: Final = 19
GRACE_S: Final = 1.0


class Scan(Protocol):
    """Records of one partition from its leader."""

    is_local: bool

    async def next(self) -> bytes | None: ...
    async def close(self) -> None: ...


class Sources(Protocol):
    """What a job may read: only what its sender may."""

    async def topics(self, names: list[str], perhaps: list[str]) -> dict[str, TopicExtents]: ...
    async def scan(self, topic: str, partition: int, start: int, end: int) -> Scan: ...


class WorkerProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()
        self.in_job = False
        self.progress: dict[str, int] = {}

    @classmethod
    async def start(cls, start: Start) -> "WorkerProcess":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"{__package__}.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        # Before its imports: they take a second of a core, again for each query that comes after an idle minute.
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        worker = cls(process)
        await worker._send(FromBroker.START, start)
        return worker

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def begin(self, job: Job, sources: Sources) -> "Conversation":
        self.in_job = True
        self.progress = {}
        return Conversation(self, job, sources)

    async def kill(self) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()

    async def _send(self, kind: FromBroker, message: Any = None) -> None:
        data = b"" if message is None else pickle.dumps(message)
        stream = self._process.stdin
        assert stream is not None
        async with self._turn:
            try:
                stream.write(HEADER.pack(kind, len(data)) + data)
                await stream.drain()
            except (ConnectionError, RuntimeError):
                pass  # It has ended: the reader says why.

    async def _receive(self) -> tuple[FromWorker, bytes]:
        stream = self._process.stdout
        assert stream is not None
        try:
            kind, length = HEADER.unpack(await stream.readexactly(HEADER.size))
            if length > MOST_BYTES:
                raise QueryFailed(f"the query's worker sent a frame of {length} bytes")
            return FromWorker(kind), await stream.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await self._process.wait()
            raise QueryTooLarge(
                f"the query's worker process ended with {code}, as it does when memory is short",
                hint="ask for less; the broker's log may say more",
            ) from error
        except ValueError as error:
            raise QueryFailed(f"the query's worker does not keep to the protocol: {error}") from error


class Conversation:
    """One job of one worker, from its beginning to the last piece of its result."""

    def __init__(self, worker: WorkerProcess, job: Job, sources: Sources) -> None:
        self._worker = worker
        self._job = job
        self._sources = sources
        self._scans: dict[int, Scan] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self.refusal: Exception | None = None
        """Why a source did not answer, as it was raised."""

    async def head(self) -> dict[str, Any]:
        """Returns what the worker says of the result once it is made. Raises why it cannot be made."""
        await self._worker._send(FromBroker.JOB, self._job)
        kind, data = await self._next()
        if kind is not FromWorker.RESULT:
            raise QueryFailed("the query's worker does not keep to the protocol")
        head: dict[str, Any] = orjson.loads(data)
        return head

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            await self._worker._send(FromBroker.PULL)
            _, data = await self._next()
            if not data:
                self._worker.in_job = False
                return
            yield data

    async def cancel(self) -> None:
        """Ends the job; after this the worker has none, or is to be killed."""
        await self._worker._send(FromBroker.CANCEL)
        await self._worker._send(FromBroker.PULL)
        with suppress(TimeoutError, TierlogError):
            async with asyncio.timeout(GRACE_S):
                while self._worker.in_job:
                    await self._next()
                    await self._worker._send(FromBroker.PULL)

    async def close(self) -> None:
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        for scan in self._scans.values():
            await scan.close()
        self._scans.clear()

    async def _next(self) -> tuple[FromWorker, bytes]:
        """Returns the next frame about the result. Answers what the worker asks meanwhile."""
        while True:
            kind, data = await self._worker._receive()
            if kind is FromWorker.PROGRESS:
                self._worker.progress = orjson.loads(data)
            elif kind is FromWorker.ERROR:
                self._worker.in_job = False
                raise error_of(orjson.loads(data))
            elif kind is FromWorker.ASK:
                task = asyncio.create_task(self._answer(orjson.loads(data)))
                self._answers.add(task)
                task.add_done_callback(self._answers.discard)
            else:
                return kind, data

    async def _answer(self, asked: dict[str, Any]) -> None:
        number, what = asked["number"], ANSWERS[asked["what"]]
        try:
            answer: Any = await what(self, asked)
        except Exception as error:  # It is raised here; the worker only ends the job.
            self.refusal = self.refusal or error
            answer = QueryFailed("the broker refused")
        await self._worker._send(FromBroker.REPLY, (number, answer))

    async def _topics(self, asked: dict[str, Any]) -> Any:
        return await self._sources.topics(asked["names"], asked["perhaps"])

    async def _scan(self, asked: dict[str, Any]) -> Any:
        scan = await self._sources.scan(asked["topic"], asked["partition"], asked["start"], asked["end"])
        self._scans[asked["number"]] = scan
        return asked["number"], scan.is_local

    async def _chunk(self, asked: dict[str, Any]) -> Any:
        return await self._scans[asked["scan"]].next()

    async def _end_scan(self, asked: dict[str, Any]) -> Any:
        scan = self._scans.pop(asked["scan"], None)
        if scan is not None:
            await scan.close()


ANSWERS: Final[dict[str, Callable[[Conversation, dict[str, Any]], Awaitable[Any]]]] = {
    "topics": Conversation._topics,
    "scan": Conversation._scan,
    "chunk": Conversation._chunk,
    "end_scan": Conversation._end_scan,
}


def error_of(told: dict[str, Any]) -> TierlogError:
    """Returns the error that a worker tells of, if it is one of ours."""
    for module in (own, cold, hot):
        kind = getattr(module, str(told["kind"]), None)
        if isinstance(kind, type) and issubclass(kind, TierlogError):
            return kind(str(told["what"]), where=str(told.get("where", "")), hint=str(told.get("hint", "")))
    return QueryFailed(str(told["what"]))
