"""Logs with transactions, made from a list of steps, and their archive in a bucket in memory.

The model keeps its own books: which records are committed, which batches are not rows. It does not ask the service.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from hypothesis import strategies as st

from cold_tier.cache import ColdReadSettings
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import EpochStart, SegmentEntry
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.memory import MemoryStore
from cold_tier.reader import ColdReader
from hot_tier.log.index import Contents
from hot_tier.log.scan import digest_of_heads
from hot_tier.log.transactions import Aborted
from hot_tier.record.batch import assign, iter_headers, read_header
from hot_tier.record.columns import NewRecord, Record, decode_records, encode_records
from hot_tier.record.control import Marker, MarkerKind, encode_marker
from offloader.archive import ArchiveJob, archive_segment

LAYOUT = PartitionLayout("orders", UUID(int=7), 0)
START_MS = 1_700_000_000_000
PLAIN = -1
"""The producer of records without a transaction."""


class Write(NamedTuple):
    producer: int
    count: int
    codec: int = 0
    late_ms: int = 0


class End(NamedTuple):
    producer: int
    commit: bool


Step = Write | End

steps = st.lists(
    st.one_of(
        st.builds(Write, st.integers(-1, 2), st.integers(1, 4), st.sampled_from([0, 0, 4]), st.integers(-3, 3)),
        st.builds(End, st.integers(0, 2), st.booleans()),
    ),
    min_size=1,
    max_size=30,
)


@dataclass
class Log:
    """All transactions end in it: what is open after the last step is aborted."""

    batches: list[bytes] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)
    aside: list[bytes] = field(default_factory=list)
    """The batches that must not be rows, in offset order."""

    @classmethod
    def of(cls, steps: Sequence[Step], epoch: int = 3) -> "Log":
        log = cls()
        open_: dict[int, list[bytes]] = {}
        outcomes: dict[int, bool] = {}
        end = 0

        def append(batch: bytearray) -> bytes:
            nonlocal end
            assign(batch, end, epoch)
            end = read_header(batch).end_offset
            log.batches.append(bytes(batch))
            return log.batches[-1]

        def finish(producer: int, commit: bool) -> None:
            at = end
            append(encode_marker(producer, 1, Marker(MarkerKind(int(commit)), 5), START_MS + at))
            outcomes[at] = False
            mine = open_.pop(producer, [])
            for batch in mine:
                outcomes[read_header(batch).base_offset] = commit
            if mine and not commit:
                log.aborted.append(Aborted(producer, read_header(mine[0]).base_offset, at, at))

        for step in steps:
            if isinstance(step, End):
                finish(step.producer, step.commit)
                continue
            first = end
            records = [
                NewRecord(START_MS + 10 * (first + n) + step.late_ms, b"k%d" % (n % 3), b"value-%d" % (first + n), ())
                for n in range(step.count)
            ]
            transactional = step.producer != PLAIN
            ids = {"producer_id": step.producer, "producer_epoch": 1, "base_sequence": first} if transactional else {}
            batch = append(encode_records(records, codec=step.codec, transactional=transactional, **ids))
            outcomes[first] = True
            if transactional:
                open_.setdefault(step.producer, []).append(batch)
        for producer in list(open_):
            finish(producer, False)
        for batch in log.batches:
            if outcomes[read_header(batch).base_offset]:
                log.committed += decode_records(batch)
            else:
                log.aside.append(batch)
        log.aborted.sort(key=lambda each: each.first_offset)
        return log

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).end_offset

    @property
    def everything(self) -> list[Record]:
        """With the records of markers."""
        return decode_records(b"".join(self.batches), skip_control=False)

    def cut(self, cuts: Sequence[int]) -> list[list[bytes]]:
        """Returns the batches of each segment. `cuts` are numbers of batches."""
        places = sorted({0, len(self.batches), *(cut for cut in cuts if 0 < cut < len(self.batches))})
        return [self.batches[low:high] for low, high in pairwise(places)]


def job_of(folder: Path, batches: Sequence[bytes], aborted: Sequence[Aborted], **changes) -> ArchiveJob:
    """The job that archives these batches as one segment."""
    data = b"".join(batches)
    base, end = read_header(batches[0]).base_offset, read_header(batches[-1]).end_offset
    path = folder / f"{base:020}.log"
    path.write_bytes(data)
    digest = 0
    for at, _ in iter_headers(data):
        digest = digest_of_heads(memoryview(data)[at:], digest)
    contents = Contents(base, end, len(data), True, len(batches), digest)
    mine = tuple(each for each in aborted if each.first_offset < end and each.last_offset >= base)
    job = ArchiveJob(
        layout=LAYOUT,
        name=SegmentName(base, 3, f"{base:032x}"),
        log_path=str(path),
        contents=contents,
        base_offset=base,
        epochs=(EpochStart(3, base),),
        producers=b"producers",
        now_ms=START_MS,
        bytes_per_second=0,
        zstd_level=1,
        aborted=mine,
    )
    return replace(job, **changes)


@dataclass
class Bucketed:
    store: Bucket
    writer: ManifestWriter

    @property
    def manifest(self) -> Manifest:
        return Manifest(self.writer.current, PageCache(self.store))

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        return self.writer.current.tail

    async def batches(
        self, *, committed: bool, start: int = 0, max_bytes: int = 1 << 16, disk: str = ""
    ) -> list[bytes]:
        """All batches from the one that holds `start`, each answer going on where the one before it ended."""
        reader = ColdReader(self.store, ColdReadSettings(), disk or None)
        found: list[bytes] = []
        offset = start
        while True:
            read = await reader.read(self.manifest, offset, max_bytes, committed=committed)
            if read is None:
                break
            for at, header in iter_headers(read.data):
                found.append(read.data[at : at + header.size])
            offset = read.end_offset
        # The disk cache is written when the reader has its data already; closing would end that.
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        await reader.close()
        return found

    async def records(self, *, committed: bool, **how) -> list[Record]:
        return decode_records(b"".join(await self.batches(committed=committed, **how)), skip_control=False)


async def bucketed(folder: Path, log: Log, cuts: Sequence[int] = (), *, store: Bucket | None = None, **job) -> Bucketed:
    store = store or Bucket(MemoryStore())
    writer = await ManifestWriter.open(store, LAYOUT, 3, 0, START_MS)
    for batches in log.cut(cuts):
        entry = await archive_segment(store, job_of(folder, batches, log.aborted, **job), str(folder))
        await writer.append([entry], START_MS)
    return Bucketed(store, writer)
