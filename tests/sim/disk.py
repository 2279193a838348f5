"""A broker's disk: what it holds of each partition, and what of that survives.

`Log` stands in the place of `hot_tier.log.partition_log.PartitionLog` for the production code that drives it. A killed
process leaves everything it wrote. When the power goes only what was synced is sure to stay; of the rest a part from
the front may be there, because recovery cuts a log at the first batch that is not whole. Each record is a batch of its
own. The history of leader epochs and the producers' sequences are the real ones.
"""

import random
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from hot_tier.errors import StorageFailure
from hot_tier.ids import NO_PRODUCER, LeaderEpoch, Offset
from hot_tier.log.config import TopicConfig
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.partition_log import Appended
from hot_tier.log.producers import ProducerState, read_producers
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.transactions import AbortedIndex
from hot_tier.record.batch import BatchHeader
from hot_tier.record.crc import crc32c

SEGMENT_RECORDS: Final = 8
RECORD_BYTES: Final = 100
_RECORD: Final = struct.Struct(">iqqi")


class Record(NamedTuple):
    epoch: LeaderEpoch
    value: int
    producer: int = NO_PRODUCER
    sequence: int = -1


def encode_records(records: list[Record]) -> bytes:
    return b"".join(_RECORD.pack(*record) for record in records)


def decode_records(data: bytes | memoryview) -> list[Record]:
    return [Record(LeaderEpoch(epoch), *rest) for epoch, *rest in _RECORD.iter_unpack(data)]


def header_of(record: Record) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, -1, record.producer, 0, record.sequence, 1)


class Sync:
    """What the drivers know of a log's syncing."""

    listener: Callable[[], None] | None = None


class Log:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.log_start_offset = Offset(0)
        self.flushed_offset = Offset(0)
        self.cuts = 0
        """How often its end was taken away: a sync that was under way then says nothing."""
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self._bases = [Offset(0)]
        """Where its segments begin; the last one is written to."""
        self.snapshots: dict[int, bytes] = {}
        """What producers had written, at the end of each segment."""
        self.open(TopicConfig(), lambda: None)

    def open(self, config: TopicConfig, request_flush: Callable[[], None]) -> None:
        """By another process: it knows what is on the disk, and nothing else."""
        self.config = config
        self.request_flush = request_flush
        self.sync = Sync()
        self.committed_offset: Offset | None = None
        self.first_unstable_offset: Offset | None = None
        self.failure: StorageFailure | None = None
        self.in_doubt = False
        self.when_dropped: Callable[[int, int, int], None] = lambda start, end, log_start: None
        self.cuts += 1

    def commit(self, high_watermark: Offset) -> None:
        self.committed_offset = high_watermark

    def trust(self) -> None:
        """Nothing here is ever in doubt."""

    def set_config(self, config: TopicConfig) -> None:
        self.config = config

    @property
    def directory(self) -> "Log":
        """Where production code looks for the snapshots of producers: here."""
        return self

    # What it holds

    @property
    def local_log_start_offset(self) -> Offset:
        return max(self.log_start_offset, self._bases[0])

    @property
    def aborted(self) -> AbortedIndex:
        return self.producers.transactions.aborted

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self._bases[0] + len(self.records))

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.epochs.latest

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_of(epoch, self.log_end_offset)

    def at(self, offset: int) -> Record:
        return self.records[offset - self._bases[0]]

    def read(self, start: int, end: int) -> list[Record]:
        return self.records[start - self._bases[0] : end - self._bases[0]]

    def segments(self) -> list[SegmentInfo]:
        ends = [*self._bases[1:], self.log_end_offset]
        return [self._info(base, end) for base, end in zip(self._bases, ends, strict=True)]

    def note_damage(self, info: SegmentInfo, what: str) -> None:
        """A segment that was cut under the worker; none is ever damaged here."""

    def sealed_segments(self) -> list[SegmentInfo]:
        return [info for info in self.segments() if info.sealed]

    def _info(self, base: Offset, end: Offset) -> SegmentInfo:
        sealed = base != self._bases[-1] and end <= self.flushed_offset
        digest = crc32c(encode_records(self.read(base, end)))
        return SegmentInfo(base, end, (end - base) * RECORD_BYTES, 0, f"{base}", sealed, -1, True, end - base, digest)

    # Writing

    def append(
        self, record: Record, header: BatchHeader, leader_epoch: int, now_ms: int, verification: None = None
    ) -> Appended:
        """As leader."""
        if header.producer_id != NO_PRODUCER:
            stored = self.producers.check(header)
            if stored is not None:
                return Appended(Offset(stored.base_offset), Offset(stored.end_offset), -1, True)
        offset = self._append(record._replace(epoch=LeaderEpoch(leader_epoch)))
        return Appended(offset, Offset(offset + 1), -1, False)

    def append_replica(self, batches: memoryview, leader_epoch: int, now_ms: int, gaps_below: int = 0) -> None:
        for record in decode_records(batches):
            self._append(record)

    def _append(self, record: Record) -> Offset:
        offset = self.log_end_offset
        if offset - self._bases[-1] >= SEGMENT_RECORDS:
            self.snapshots[offset] = self.producers.write(offset)
            self._bases.append(offset)
            self.request_flush()
        self.records.append(record)
        self.epochs.assign(record.epoch, offset)
        self._wrote(record, offset)
        return offset

    def settle_flush(self, end: Offset, cuts: int) -> None:
        """What was written when a sync began is durable, if nothing was cut since."""
        if self.cuts == cuts:
            self.flushed_offset = max(self.flushed_offset, end)
        if self.sync.listener is not None:
            self.sync.listener()

    # Cutting

    def truncate_to(self, offset: Offset, now_ms: int = 0) -> None:
        """Certain at once, as the real cut is."""
        if offset < self._bases[0]:
            self.reset_to(offset)
            return
        self.cuts += 1
        del self.records[offset - self._bases[0] :]
        self._bases = [self._bases[0], *(base for base in self._bases[1:] if base < offset)]
        self.flushed_offset = min(self.flushed_offset, offset)
        self.epochs.truncate_end(offset)
        self._learn_producers()

    def reset_to(self, offset: Offset, now_ms: int = 0) -> None:
        self._begin(offset, offset, LeaderEpochs(), ProducerState())

    def start_from_archive(
        self, start_offset: Offset, end_offset: Offset, epochs: list[tuple[int, int]], producers: ProducerState
    ) -> None:
        self._begin(start_offset, end_offset, LeaderEpochs(epochs), producers)
        self.snapshots[end_offset] = producers.write(end_offset)

    def _begin(self, start: Offset, at: Offset, epochs: LeaderEpochs, producers: ProducerState) -> None:
        self.cuts += 1
        self.records.clear()
        self.snapshots.clear()
        self._bases = [at]
        self.log_start_offset, self.flushed_offset = start, at
        self.epochs, self.producers = epochs, producers

    def delete_records_before(self, offset: Offset) -> None:
        """The log starts here from now on; what producers wrote before stays known, as in the real snapshots."""
        if not self.log_start_offset < offset <= self.log_end_offset:
            return
        self.log_start_offset = offset
        self.flushed_offset = max(self.flushed_offset, offset)
        if self.epochs.latest >= 0:
            self.epochs.truncate_start(offset)
        if not self.config.remote_storage_enable and offset > self._bases[0]:
            del self.records[: offset - self._bases[0]]
            self._bases = [offset, *(base for base in self._bases if base > offset)]

    def drop_local_before(self, offset: int, now_ms: int) -> int:
        gone = [info for info in self.sealed_segments() if info.end_offset <= offset]
        if gone:
            self.when_dropped(self._bases[0], gone[-1].end_offset, self.log_start_offset)
            del self.records[: gone[-1].end_offset - self._bases[0]]
            self._bases = self._bases[len(gone) :]
        return len(gone)

    def lose_unsynced(self, chance: random.Random) -> None:
        self.truncate_to(Offset(chance.randint(self.flushed_offset, self.log_end_offset)))
        self.flushed_offset = self.log_end_offset

    # Producers

    def _wrote(self, record: Record, offset: Offset) -> None:
        if record.producer != NO_PRODUCER:
            self.producers.wrote(record.producer, 0, record.sequence, offset, offset, 0, 0)

    def _learn_producers(self) -> None:
        """From the newest snapshot that still counts, and what was written after it."""
        self.snapshots = {at: data for at, data in self.snapshots.items() if at <= self.log_end_offset}
        known = max(self.snapshots, default=self._bases[0])
        found = read_producers(self.snapshots.get(known, b""))
        self.producers = ProducerState() if found is None else found[1]
        for offset in range(max(known, self._bases[0]), self.log_end_offset):
            self._wrote(self.at(offset), Offset(offset))


class Disk:
    """`data_id` names the directory; `tail_doubtful` is what a broker finds out by comparing boot ids."""

    def __init__(self, data_id: int, sync_ms: float) -> None:
        self.data_id = data_id
        self.tail_doubtful = False
        self.logs: dict[int, Log] = {}
        self._usual_sync_ms = self.sync_ms = sync_ms

    def log(self, partition: int) -> Log:
        return self.logs.setdefault(partition, Log())

    def lose_power(self, chance: random.Random) -> None:
        self.tail_doubtful = True
        for log in self.logs.values():
            log.lose_unsynced(chance)

    def recover(self) -> None:
        """A slow disk is as fast again as it was."""
        self.sync_ms = self._usual_sync_ms

    def wipe(self) -> None:
        self.data_id += 1
        self.tail_doubtful = False
        self.logs.clear()
