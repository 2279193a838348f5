"""The worker process of queries and key searches: lowest priority, bounded memory, one job at a time.

The broker starts it, gives it its priority, and talks with it over its standard input and output
(`gateway.sql.frames`). It reads the bucket itself; records that are not in the bucket it asks the broker for, chunk by
chunk. It writes nothing, neither files nor objects. It ends when its standard input ends, so a killed broker leaves no
worker behind.
"""

import contextlib
import io
import itertools
import os
import pickle
import resource
import signal
import sys
import threading
import traceback
from base64 import b64encode
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from cold_tier.format.write import to_arrow
from cold_tier.objects.bucket import StoreCounters
from cold_tier.objects.open import open_store
from gateway.sql import errors, results, sandbox
from gateway.sql.archive_files import ArchiveFiles
from gateway.sql.extents import Extent, TopicExtents
from gateway.sql.frames import HEADER, FromBroker, FromWorker
from gateway.sql.jobs import RAW, EstimateJob, FindJob, Job, QueryJob, Start
from gateway.sql.key_search import find
from gateway.sql.table import Cancelled, Context, Scanned, TopicTable
from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError

BESIDE_BYTES: Final = 512 << 20
"""Memory of a worker besides DuckDB's: bytes that were fetched ahead, the result, and what allocators keep."""
PROGRESS_S: Final = 0.5
LIGHT_S: Final = 1.0
"""After a longer job the database is made anew: what it keeps counts against the bound of the next query."""


class Broker:
    """The broker, as the job's thread sees it."""

    def __init__(self) -> None:
        self._input = sys.stdin.buffer
        # Output that libraries print must not get between the frames.
        self._output = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._turn = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, Future[Any]] = {}
        self._pulls = threading.Semaphore(0)
        self.cancelled = threading.Event()

    def receive(self) -> tuple[FromBroker, Any]:
        """Returns the next job, or the start. Deals with all else. Ends the process if the broker is gone."""
        while True:
            header = self._input.read(HEADER.size)
            if len(header) < HEADER.size:
                os._exit(0)
            kind, length = HEADER.unpack(header)
            message: Any = pickle.loads(self._input.read(length)) if length else None
            if kind in (FromBroker.JOB, FromBroker.START):
                # What came for the job before, and too late, is not for this one.
                self._pulls = threading.Semaphore(0)
                self.cancelled.clear()
                return FromBroker(kind), message
            if kind == FromBroker.REPLY:
                number, answer = message
                self._asked.pop(number).set_result(answer)
            elif kind == FromBroker.PULL:
                self._pulls.release()
            else:
                self.cancelled.set()

    def send(self, kind: FromWorker, data: bytes) -> None:
        with self._turn:
            for part in (HEADER.pack(kind, len(data)), data):
                view = memoryview(part)
                while view:
                    view = view[self._output.write(view) :]

    def tell(self, frame: FromWorker, **said: Any) -> None:
        self.send(frame, orjson.dumps(said))

    def ask(self, what: str, **said: Any) -> "Future[Any]":
        number = next(self._numbers)
        answer: Future[Any] = Future()
        self._asked[number] = answer
        self.tell(FromWorker.ASK, number=number, what=what, **said)
        return answer

    def answer(self, asked: "Future[Any]") -> Any:
        """Returns what the broker answers, and raises its errors."""
        answer = asked.result()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wait_for_pull(self) -> None:
        self._pulls.acquire()


class Worker:
    def __init__(self, broker: Broker, start: Start) -> None:
        self._broker = broker
        self._start = start
        self._store = open_store(start.store)
        self._files = ArchiveFiles(self._store)
        self._threads = ThreadPoolExecutor(start.threads, thread_name_prefix="decode")
        self._context: Context
        self._connection: Any = None
        self._database: Any = None
        """Kept for the next query, which gets a connection of its own: a database takes 10 ms to make."""

    def run(self, job: Job) -> None:
        broker = self._broker
        self._store.counters = StoreCounters()
        self._context = Context(
            self._files, self._hot, self._threads, 2 * self._start.threads, cancelled=broker.cancelled.is_set
        )
        ended, began_s, failed = threading.Event(), steady_s(), False
        threading.Thread(target=self._watch, args=(ended,), daemon=True).start()
        try:
            if isinstance(job, QueryJob):
                self._query(job)
            elif isinstance(job, EstimateJob):
                self._estimate(job)
            else:
                self._find(job)
        except BaseException as error:
            failed = True
            failure = self._context.failure or error
            broker.tell(FromWorker.ERROR, **_told(failure, cancelled=broker.cancelled.is_set()))
        finally:
            ended.set()
            if self._connection is not None:
                self._connection.close()
                self._connection = None
                pa.default_memory_pool().release_unused()  # It counts against the bound, too.
                if failed or steady_s() - began_s > LIGHT_S:
                    self._renew()

    def _renew(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        with contextlib.suppress(Exception):
            self._database = sandbox.connect(self._start.memory_bytes, self._start.threads)

    def _query(self, job: QueryJob) -> None:
        found, _ = self._open(job.query)
        cursor = self._connection.execute(found.query)
        types = [str(each[1]) for each in cursor.description]
        batches = cursor.to_arrow_reader(10_000)
        result = results.collect(batches, types, job.max_rows, job.max_bytes)
        # The first piece is made before the head is sent: what cannot be shown is still an error.
        pieces = results.render(result, job.form)
        first = next(pieces, b"")
        head = {"columns": result.columns, "row_count": result.table.num_rows, "truncated": result.truncated}
        self._deliver(head, itertools.chain((first,), pieces))

    def _estimate(self, job: EstimateJob) -> None:
        found, tables = self._open(job.query, dry=True)
        # The tables are empty, so this ends at once; each scan has told its plan by then.
        self._connection.execute(found.query).fetchall()
        topics = []
        for table in tables:
            if table.plans is None:
                table.scanner()  # An empty side of a join: it counts as read whole.
            topics.append(_estimated(table))
        self._deliver({"topics": topics}, iter(()))

    def _find(self, job: FindJob) -> None:
        rows, complete, searched = find(self._context, job)
        self._deliver({"complete": complete, **searched}, iter((orjson.dumps([_wire(row) for row in rows]),)))

    def _open(self, query: str, *, dry: bool = False) -> tuple[sandbox.Names, list[TopicTable]]:
        """Returns the query's names and tables, registered in a connection of its own."""
        if dry:
            self._connection = sandbox.connect(self._start.memory_bytes, self._start.threads, dry=True)
        else:
            if self._database is None:
                self._database = sandbox.connect(self._start.memory_bytes, self._start.threads)
            self._connection = self._database.cursor()
        found = sandbox.names(self._connection, query)
        asked = self._broker.ask(
            "topics",
            names=sorted({name.removesuffix(RAW) for name in found.tables}),
            perhaps=sorted({name.removesuffix(RAW) for name in found.perhaps}),
        )
        topics: dict[str, TopicExtents] = self._broker.answer(asked)
        tables = []
        for name in sorted(found.tables | found.perhaps):
            extents = topics.get(name.removesuffix(RAW))
            if extents is not None:
                table = TopicTable(extents, self._context, raw=name.endswith(RAW))
                table.dry = dry
                self._connection.register(name, table)
                tables.append(table)
        return found, tables

    def _hot(self, extent: Extent, start: int, end: int) -> Iterator[pa.Table]:
        """Yields records that the leader sends. One chunk is asked for ahead."""
        place = {"topic": extent.layout.topic, "partition": extent.partition, "start": start, "end": end}
        scan, is_local = self._broker.answer(self._broker.ask("scan", **place))
        try:
            chunks = _Chunks(self._broker, scan)
            if is_local:
                for data in chunks:
                    yield pa.Table.from_batches([to_arrow(pickle.loads(data).decode())])
            else:
                with contextlib.closing(arrow_stream(chunks)) as stream:
                    for batch in stream:
                        # The stream goes on to what is committed by now.
                        table = pa.Table.from_batches([batch]).filter(pc.field("offset") < end)
                        yield table
                        if table.num_rows < batch.num_rows:
                            break
        finally:
            self._broker.ask("end_scan", scan=scan)

    def _deliver(self, head: dict[str, Any], pieces: Iterator[bytes]) -> None:
        self._broker.tell(FromWorker.RESULT, scanned=self._scanned(), **head)
        for piece in pieces:
            if piece:
                self._broker.wait_for_pull()
                self._context.check()
                self._broker.send(FromWorker.PIECE, piece)
        self._broker.wait_for_pull()
        self._broker.send(FromWorker.PIECE, b"")

    def _scanned(self) -> dict[str, int]:
        scanned, requests = self._context.scanned, self._store.counters
        told = {name: getattr(scanned, name) for name in Scanned.__slots__}
        return {**told, "requests": requests.gets + requests.lists, "bytes": requests.bytes_in}

    def _watch(self, ended: threading.Event) -> None:
        """Tells how far the job is, and interrupts it if it is cancelled."""
        while not ended.wait(PROGRESS_S if not self._broker.cancelled.is_set() else 0.05):
            if self._broker.cancelled.is_set():
                if (connection := self._connection) is not None:
                    connection.interrupt()
            else:
                self._broker.tell(FromWorker.PROGRESS, **self._scanned())


class _Chunks:
    """The pieces of a scan, one of them asked for ahead."""

    def __init__(self, broker: Broker, scan: int) -> None:
        self._broker = broker
        self._scan = scan
        self._asked = broker.ask("chunk", scan=scan)

    def __iter__(self) -> Iterator[bytes]:
        while (data := self._broker.answer(self._asked)) is not None:
            self._asked = self._broker.ask("chunk", scan=self._scan)
            yield data


def arrow_stream(pieces: Iterable[bytes]) -> Any:
    """Opens an Arrow stream that comes in pieces. A piece may end inside a message; the buffer makes reads whole."""
    return pa.ipc.open_stream(io.BufferedReader(_File(pieces)))


class _File(io.RawIOBase):
    """Pieces of a stream as a file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _wire(row: dict[str, Any]) -> dict[str, Any]:
    headers = [[each["key"], _base64(each["value"])] for each in row["headers"] or ()]
    return {**row, "key": _base64(row["key"]), "value": _base64(row["value"]), "headers": headers}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _estimated(table: TopicTable) -> dict[str, Any]:
    plans = table.plans or []
    segments = [segment for each in plans for segment in each.segments]
    partitions = {each.extent.partition for each in plans if each.segments or each.hot}
    return {
        "topic": table.topic.topic,
        "partitions": len(partitions),
        "files": len(segments),
        "files_skipped": sum(each.skipped for each in plans),
        "rows": sum(segment.rows for segment in segments),
        "bytes": sum(segment.rows_bytes + segment.index_bytes for segment in segments),
        "requests": sum(1 + _row_groups(segment.log_bytes) for segment in segments),
        "hot_offsets": sum(each.hot[1] - each.hot[0] for each in plans if each.hot is not None),
    }


def _row_groups(log_bytes: int) -> int:
    return max(1, -(-log_bytes // (16 << 20)))


def _told(error: BaseException, *, cancelled: bool) -> dict[str, Any]:
    """Returns an error in the words of `gateway.sql.errors`, or of the part that raised it."""
    if isinstance(error, Cancelled) or cancelled:
        return {"kind": "QueryCancelled", "what": "the query was cancelled"}
    if isinstance(error, TierlogError):
        return {"kind": type(error).__name__, "what": error.what, "where": error.where, "hint": error.hint}
    if isinstance(error, MemoryError):
        return {"kind": "QueryTooLarge", "what": "the query needs more memory than a query may have"}
    text = str(error).split("\n\n")[0][:1_000]
    name = type(error).__name__
    for names, kind in (
        (("OutOfMemoryException", "ArrowMemoryError"), errors.QueryTooLarge),
        (("ParserException", "BinderException", "CatalogException", "PermissionException"), errors.BadQuery),
        (("SyntaxException", "NotImplementedException", "InvalidInputException"), errors.BadQuery),
    ):
        if name in names:
            return {"kind": kind.__name__, "what": text}
    cause = error.__cause__ or error.__context__
    if isinstance(cause, TierlogError | Cancelled | MemoryError):
        return _told(cause, cancelled=cancelled)
    return {"kind": "QueryFailed", "what": f"{name}: {text}"}


def bound_memory(memory_bytes: int) -> None:
    with open("/proc/self/status") as status:
        used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + memory_bytes + BESIDE_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def main() -> None:
    broker = Broker()
    _, start = broker.receive()
    worker = Worker(broker, start)
    bound_memory(start.memory_bytes)
    jobs = ThreadPoolExecutor(1, thread_name_prefix="job")
    try:
        while True:
            _, job = broker.receive()
            jobs.submit(worker.run, job)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # Other threads would go on, and the broker would wait.


if __name__ == "__main__":
    main()
