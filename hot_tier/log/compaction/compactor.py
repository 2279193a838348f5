"""Runs a compaction: a thread gathers keys and rewrites segments, the loop exchanges them.

The rules are in `plan`, the order of the exchange in `swap`. A log with more keys than fit into the
table takes several passes; each covers the next stretch of dirty log and rewrites everything before it.

Bytes are read and checked like any foreign bytes. A damaged batch ends the compaction of that log, and nothing is
changed: damage is for readers to see, not for compaction to carry over.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

import structlog

from hot_tier.errors import CorruptBatch, StorageFailure, TierlogError
from hot_tier.log import names
from hot_tier.log.compaction.key_table import (
    RECORD_END,
    RECORD_FLAGS,
    RECORD_START,
    RECORD_TIMESTAMP,
    KeyTable,
    Rows,
)
from hot_tier.log.compaction.plan import Merge, cleanable, dirty_ratio, first_dirty, is_due, merges
from hot_tier.log.compaction.swap import remove_cleaned
from hot_tier.log.config import TopicConfig
from hot_tier.log.files import read_at, sync_data, write_at
from hot_tier.log.index import NEVER_CLEANED, NO_TIMESTAMP, UNKNOWN, Seal, SparseIndex
from hot_tier.log.index_files import index_contents
from hot_tier.log.kernels import HAS_KEY, HAS_VALUE
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.proof import NotWhole
from hot_tier.log.scan import HEADS_DIFFER, digest_of_heads
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.transactions import AbortedIndex, Hidden
from hot_tier.record.batch import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    iter_headers,
    read_header,
    whole_batches_bytes,
    write_batch,
)
from hot_tier.record.compression import Codec, compress

_log = structlog.get_logger()

_READ_BYTES: Final = 4 << 20
_WRITE_BYTES: Final = 1 << 20

T = TypeVar("T")


class Stopped(Exception):
    """The broker stops. The compaction is given up and nothing has changed."""


@dataclass(slots=True)
class Rewritten:
    seal: Seal
    index: SparseIndex


class Compactor:
    def __init__(self, threads: Executor, buffer_bytes: int, clock: Callable[[], int]) -> None:
        self._threads = threads
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._stopping = False
        self._refused: set[PartitionLog] = set()
        self.removed_bytes = 0
        self.runs = 0

    def stop(self) -> None:
        self._stopping = True

    def next_log(self, logs: Sequence[PartitionLog]) -> PartitionLog | None:
        """Returns the log that most needs to be compacted."""
        best: tuple[float, PartitionLog] | None = None
        now_ms = self._clock()
        for log in logs:
            if log.config.compacted and log not in self._refused and log.failure is None:
                segments = self._cleanable(log, now_ms)
                if is_due(log.config, segments, now_ms=now_ms):
                    ratio = dirty_ratio(segments)
                    if best is None or ratio > best[0]:
                        best = ratio, log
        return best[1] if best is not None else None

    async def compact(self, log: PartitionLog) -> bool:
        """Cleans all that may be cleaned now, due or not. Returns whether it did."""
        now_ms = self._clock()
        segments = self._cleanable(log, now_ms)
        try:
            return await self._compact(log, segments, now_ms)
        except Stopped:
            return False
        except (OSError, StorageFailure) as error:
            # Retention or a deletion took a segment away meanwhile, or the disk is full: a later run sees to it.
            _log.warning("compaction given up for now", partition=str(log.tp), error=str(error))
            return False
        except NotWhole as error:
            self._found_damaged(log, error)
            return False
        except TierlogError as error:
            if set(segments).issubset(log.sealed_segments()):
                self._refused.add(log)
                _log.error("log cannot be compacted", partition=str(log.tp), error=str(error))
            return False

    def _found_damaged(self, log: PartitionLog, error: NotWhole) -> None:
        """Marks a segment as damaged: nothing from it on is compacted until it is mended. A segment that was deleted
        meanwhile is not damaged."""
        for segment in log.sealed_segments():
            if segment.path == error.path:
                log.note_damage(segment, error.what)
                _log.error("log is not compacted: a segment is damaged", partition=str(log.tp), error=str(error))

    def _cleanable(self, log: PartitionLog, now_ms: int) -> list[SegmentInfo]:
        return cleanable(log.config, log.sealed_segments(), committed_offset=log.compactable_end, now_ms=now_ms)

    async def _compact(self, log: PartitionLog, segments: list[SegmentInfo], now_ms: int) -> bool:
        dirty = segments[first_dirty(segments) :]
        if not dirty:
            return False
        end_offset = segments[-1].end_offset
        covered: int = dirty[0].base_offset
        size = sum(segment.size for segment in segments)
        while covered < end_offset:
            wanted = [segment for segment in dirty if segment.end_offset > covered]
            table, covered = await self._in_thread(
                partial(build_table, wanted, covered, self._buffer_bytes, log.aborted, self._check)
            )
            segments = [segment for segment in log.sealed_segments() if segment.base_offset < min(covered, end_offset)]
            archived = log.config.remote_storage_enable or log.log_start_offset < log.local_log_start_offset
            for merge in merges(log.config, segments, now_ms=now_ms, archived=archived):
                await self._rewrite(log, merge, table, covered, now_ms)
            dirty = [segment for segment in log.sealed_segments() if segment.end_offset <= end_offset]
        left = sum(segment.size for segment in log.sealed_segments() if segment.end_offset <= end_offset)
        self.runs += 1
        self.removed_bytes += size - left
        _log.debug("log compacted", partition=str(log.tp), bytes_before=size, bytes_after=left)
        return True

    async def _rewrite(self, log: PartitionLog, merge: Merge, table: KeyTable, covered: int, now_ms: int) -> None:
        cleaned_ms = merge.cleaned_ms
        if cleaned_ms == NEVER_CLEANED and merge.end_offset <= covered:
            cleaned_ms = now_ms
        if _needed_outside(log, merge):
            return
        keep = Keep(
            table,
            Hidden(log.aborted.overlapping(merge.base_offset, merge.end_offset)),
            merge.drop_markers,
            merge.drop_control,
            log.producers.last_offsets(),
            log.producers.without_batches(),
        )
        rewritten = await self._in_thread(partial(rewrite, merge, keep, log.config, cleaned_ms, self._check))
        if rewritten is None:
            return
        swap = log.begin_swap([member.base_offset for member in merge.members])
        if swap is None:
            remove_cleaned(log.directory, merge.base_offset)
            return
        try:
            await self._in_thread(swap.decide)
        except OSError:
            log.cancel_swap()
            raise
        with log.sync.whole_or_failed((OSError,)):
            if log.finish_swap(swap, rewritten.seal, rewritten.index):
                await self._in_thread(swap.settle)

    def _check(self) -> None:
        if self._stopping:
            raise Stopped

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


def _needed_outside(log: PartitionLog, merge: Merge) -> bool:
    """Returns whether an aborted transaction whose marker is here may have records in a segment before, which was not
    cleaned: what is known of the transaction must not go before these records have gone."""
    ended_here = log.aborted.between(merge.base_offset, merge.end_offset)
    first = min((entry.first_offset for entry in ended_here), default=merge.base_offset)
    return any(
        segment.cleaned_ms == NEVER_CLEANED and segment.base_offset < merge.base_offset and segment.end_offset > first
        for segment in log.sealed_segments()
    )


def iter_batches(segment: SegmentInfo) -> Generator[tuple[memoryview, BatchHeader], None, None]:
    """Yields every batch of a segment, checked. Raises NotWhole at the first wrong batch, or after the last one if all
    together are not what the seal says. So a caller that keeps something reads to the end first."""
    path = segment.path
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotWhole("a segment's file is missing", path, 0) from None
    try:
        position = batches = digest = 0
        next_offset: int = segment.base_offset
        wanted = _READ_BYTES
        while position < segment.size:
            data = read_at(fd, position, min(wanted, segment.size - position))
            taken = 0
            try:
                whole = whole_batches_bytes(data)
                for at, header in iter_headers(data[:whole]):
                    check_crc(data, header, at)
                    if not next_offset <= header.base_offset <= header.last_offset < segment.end_offset or (
                        segment.dense and header.base_offset != next_offset
                    ):
                        raise CorruptBatch(f"offset {header.base_offset} is out of order")
                    next_offset = header.last_offset + 1
                    taken = at + header.size
                    digest = digest_of_heads(data[at:taken], digest)
                    batches += 1
                    yield data[at:taken], header
                wanted = _READ_BYTES
                if not whole:
                    wanted = read_header(data).size
                    if wanted <= len(data) or wanted > segment.size - position:
                        raise CorruptBatch("a batch runs past the end of its segment")
            except CorruptBatch as error:
                raise NotWhole(error.what, path, position + taken) from None
            position += taken
        if segment.batches != UNKNOWN and (segment.batches, segment.header_digest) != (batches, digest):
            raise NotWhole(HEADS_DIFFER, path, 0)
    finally:
        os.close(fd)


def build_table(
    segments: Sequence[SegmentInfo], from_offset: int, max_bytes: int, aborted: AbortedIndex, check: Callable[[], None]
) -> tuple[KeyTable, int]:
    """Returns the latest offset of each key from `from_offset` on, and the offset up to which the table knows all keys.
    Records of aborted transactions do not count."""
    table = KeyTable(max_bytes, sum(segment.size for segment in segments))
    for segment in segments:
        hidden = Hidden(aborted.overlapping(segment.base_offset, segment.end_offset))
        with closing(iter_batches(segment)) as batches:
            for batch, header in batches:
                check()
                if header.base_offset < from_offset or header.is_control or header.record_count == 0:
                    continue
                if header in hidden:
                    continue
                if not table.add(table.scan(batch, header)[1]):
                    return table, header.base_offset
    return table, segments[-1].end_offset


class Keep(NamedTuple):
    """What decides which records and batches stay."""

    table: KeyTable
    hidden: Hidden
    drop_markers: bool
    drop_control: bool
    traces: frozenset[int]
    """Last offsets of the last batches of producers."""
    epochs: frozenset[tuple[int, int]]
    """Producer ids and epochs of which only markers tell."""


def rewrite(
    merge: Merge, keep: Keep, config: TopicConfig, cleaned_ms: int, check: Callable[[], None]
) -> Rewritten | None:
    """Writes and syncs a merge's `.cleaned` files. Returns None if the merge would change nothing."""
    stem = merge.members[0].path.removesuffix(names.LOG)
    fd = os.open(stem + names.LOG + names.CLEANED, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        output = _Output(fd, merge, config.index_interval_bytes)
        try:
            for member in merge.members:
                with closing(iter_batches(member)) as batches:
                    for batch, header in batches:
                        check()
                        kept = _kept(batch, header, keep)
                        if kept is not None:
                            output.add(*kept)
        except BaseException:
            remove_cleaned(os.path.dirname(stem), merge.base_offset)
            raise
        output.finish()
    finally:
        os.close(fd)
    only = merge.members[0]
    same = len(merge.members) == 1 and output.size == only.size and only.cleaned_ms == cleaned_ms
    if same and only.batches != UNKNOWN:  # Else it gets a seal with a digest.
        remove_cleaned(os.path.dirname(stem), merge.base_offset)
        return None
    seal = Seal(
        merge.base_offset,
        merge.end_offset,
        output.size,
        output.max_timestamp,
        output.max_timestamp_offset,
        cleaned_ms,
        sealed=True,
        dense=False,
        batches=output.batches,
        header_digest=output.header_digest,
    )
    for path, content in index_contents(stem, output.index, seal):
        _write_cleaned(path, content)
    return Rewritten(seal, output.index)


def _write_cleaned(path: str, content: bytes) -> None:
    fd = os.open(path + names.CLEANED, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_at(fd, memoryview(content), 0)
        sync_data(fd)
    finally:
        os.close(fd)


class _Output:
    def __init__(self, fd: int, merge: Merge, index_interval: int) -> None:
        self._fd = fd
        self._base_offset = merge.base_offset
        self._index_interval = index_interval
        self._buffer = bytearray()
        self.index = SparseIndex()
        self.size = 0
        self.batches = 0
        self.header_digest = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = merge.base_offset

    def add(self, batch: memoryview | bytearray, base_offset: int, max_timestamp: int) -> None:
        self.index.note(
            base_offset - self._base_offset, self.size, len(batch), self.max_timestamp, self._index_interval
        )
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        self._buffer += batch
        self.size += len(batch)
        self.batches += 1
        self.header_digest = digest_of_heads(memoryview(batch), self.header_digest)
        if len(self._buffer) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        write_at(self._fd, memoryview(self._buffer), self.size - len(self._buffer))
        self._buffer = bytearray()

    def finish(self) -> None:
        self._write()
        sync_data(self._fd)


def _kept(batch: memoryview, header: BatchHeader, keep: Keep) -> tuple[memoryview | bytearray, int, int] | None:
    """Returns what stays of a batch, its base offset and its greatest timestamp."""
    if header.is_control:
        if keep.drop_control and (header.producer_id, header.producer_epoch) not in keep.epochs:
            return None
        return batch, header.base_offset, header.max_timestamp
    if header in keep.hidden:
        return _trace(header, keep)
    records, rows = keep.table.scan(batch, header)
    flags = rows[:, RECORD_FLAGS]
    stays = (flags & HAS_KEY != 0) & ~keep.table.superseded(rows)
    if keep.drop_markers:
        stays &= flags & HAS_VALUE != 0
    if header.record_count and stays.all():
        if not header.is_transactional:
            return batch, header.base_offset, header.max_timestamp
        whole = _with_records(
            header, batch[HEADER_BYTES:], header.record_count, Codec(header.codec), header.max_timestamp
        )
        return whole, header.base_offset, header.max_timestamp
    if not stays.any():
        return _trace(header, keep)
    chosen: Rows = rows[stays]
    max_timestamp = header.max_timestamp if header.log_append_time else int(chosen[:, RECORD_TIMESTAMP].max())
    view = records.data
    body = b"".join(view[start:end] for start, end in chosen[:, (RECORD_START, RECORD_END)].tolist())
    codec = Codec(header.codec)
    return (
        _with_records(header, compress(codec, body), len(chosen), codec, max_timestamp),
        header.base_offset,
        max_timestamp,
    )


def _trace(header: BatchHeader, keep: Keep) -> tuple[bytearray, int, int] | None:
    """Returns the bare header of a batch without records, if it is the last one of its producer."""
    if header.producer_id < 0 or header.last_offset not in keep.traces:
        return None
    return _with_records(header, b"", 0, Codec.NONE, NO_TIMESTAMP), header.base_offset, NO_TIMESTAMP


def _with_records(
    header: BatchHeader, records: "bytes | bytearray | memoryview", count: int, codec: Codec, max_timestamp: int
) -> bytearray:
    """Returns the batch with other records, and without a transaction, which is decided. Offsets, epoch and producer
    stay, and so do the deltas of the records."""
    return write_batch(
        records,
        codec=codec,
        record_count=count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        log_append_time=header.log_append_time,
    )
