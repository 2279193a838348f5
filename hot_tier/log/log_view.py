"""A partition's log as those see it who only look: how far it goes, which segments it has, what is in them.

`partition_log` is the same log for those who write. Reading is `reading`'s; nothing here changes anything.
"""

import os

from hot_tier.errors import StorageFailure
from hot_tier.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from hot_tier.log import names
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.log_files import LogFiles
from hot_tier.log.log_sync import LogSync
from hot_tier.log.reading import FileSlice, LogReader, TimestampOffset
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.state import LogState
from hot_tier.log.transactions import AbortedIndex


class LogView:
    def __init__(
        self, disk: Disk, topic_partition: TopicPartition, topic_id: TopicId, config: TopicConfig, state: LogState
    ) -> None:
        self.tp = topic_partition
        self.topic_id = topic_id
        directory = names.log_directory(topic_partition.topic, topic_id, topic_partition.partition)
        self.directory = os.path.join(disk.logs_directory, directory)
        self.epochs = state.epochs
        self.producers = state.producers
        self._disk = disk
        self._key = (topic_id, int(topic_partition.partition))
        self._files = LogFiles(disk, self.directory, self._key, config, state)
        self._segments = self._files.segments
        self.log_end_offset = self._files.end_offset
        self.sync = LogSync(topic_partition, self._files)
        self._reader = LogReader(str(topic_partition), disk, self._segments, lambda: self.epochs.history())

    # What it holds

    @property
    def log_start_offset(self) -> Offset:
        return self._files.start_offset

    @property
    def local_log_start_offset(self) -> Offset:
        return self._files.local_start_offset

    @property
    def flushed_offset(self) -> Offset:
        return self.sync.flushed_offset

    @property
    def failure(self) -> StorageFailure | None:
        return self.sync.failure

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.epochs.latest

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def segments(self) -> list[SegmentInfo]:
        return self._segments.infos()

    def sealed_segments(self) -> list[SegmentInfo]:
        return self._segments.sealed()

    def damaged_segments(self) -> list[SegmentInfo]:
        return self._segments.damaged()

    def known_damage(self) -> list[str]:
        return self._segments.known_damage()

    @property
    def in_doubt(self) -> bool:
        """Returns whether the log misses something that was synced, and nobody counts on it."""
        return self._key in self._disk.doubts.damaged

    # Transactions

    @property
    def first_unstable_offset(self) -> int | None:
        """Returns where the first transaction starts that is open, or whose marker is not committed."""
        return self.producers.transactions.first_unstable

    @property
    def aborted(self) -> AbortedIndex:
        """Returns the aborted transactions whose markers are in local segments. What is taken away later, by retention
        or compaction, stays in the index that the caller holds."""
        return self.producers.transactions.aborted

    # Reading
    def locate(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True) -> FileSlice | None:
        """Returns where the batch of `offset` and those after it are. Never waits for the disk."""
        start = self._files.local_start_offset
        return self._reader.locate(offset, max_bytes, end_offset, min_one=min_one, start=start, end=self.log_end_offset)

    def gaps_below(self, slice_: FileSlice) -> int:
        """Returns the offset up to which compaction may have removed batches inside the slice; 0: none."""
        return self._segments.gaps_below(slice_.offset, slice_.segment)

    def read_now(self, slice_: FileSlice) -> memoryview | None:
        """Returns the checked bytes if the page cache has them. None means: use `read`."""
        return self._reader.read_now(slice_)

    async def read(self, slice_: FileSlice) -> memoryview:
        """Returns the bytes up to the first damaged batch, checked in a thread. CorruptLog if that is the first."""
        return await self._reader.read(slice_)

    async def offset_for_timestamp(self, timestamp: int, end_offset: int) -> TimestampOffset | None:
        """Returns the earliest record before `end_offset` whose timestamp is `timestamp` or later."""
        return await self._reader.offset_for_timestamp(timestamp, self.local_log_start_offset, end_offset)

    async def max_timestamp_offset(self, end_offset: int | None = None) -> TimestampOffset | None:
        """Returns the first record with the greatest timestamp."""
        end = self.log_end_offset if end_offset is None else end_offset
        return await self._reader.max_timestamp_offset(self.local_log_start_offset, end)

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_of(epoch, self.log_end_offset)
