"""Figures of each partition's archive, with what has to be remembered for them from one look to the next.

How long a segment has waited is counted from the first look that found it sealed. What a manifest names is added up
once per manifest.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from cold_tier.manifest.model import Snapshot
from cold_tier.reports import ArchivedRange, PartitionFigures
from hot_tier.ids import Offset
from hot_tier.log.segment_info import SegmentInfo
from offloader.held import holding_transaction
from offloader.partition_archive import PartitionArchive
from offloader.plan import waiting


class Backlog:
    def __init__(self) -> None:
        self.bytes = 0
        self._since: dict[Offset, int] = {}

    def look(self, segments: Sequence[SegmentInfo], archived_end: Offset, now_ms: int) -> None:
        found = waiting(segments, archived_end)
        self.bytes = sum(info.size for info in found)
        self._since = {info.base_offset: self._since.get(info.base_offset, now_ms) for info in found}

    def lag_ms(self, now_ms: int) -> int:
        """Returns for how long the oldest segment has waited; 0 if none waits."""
        return max(0, now_ms - min(self._since.values(), default=now_ms))


class _Remembered:
    def __init__(self) -> None:
        self.backlog = Backlog()
        self.snapshot: Snapshot | None = None
        self.stored_bytes = 0

    def look(self, archive: PartitionArchive, now_ms: int) -> None:
        end = archive.writer.current.end_offset if archive.is_open else archive.partition.log.log_start_offset
        self.backlog.look(archive.partition.log.segments(), end, now_ms)
        snapshot = archive.writer.current if archive.is_open else None
        if snapshot is not self.snapshot:
            self.snapshot = snapshot
            found = None if snapshot is None else ArchivedRange.of(snapshot)
            self.stored_bytes = 0 if found is None else found.rows_bytes + found.index_bytes


class PartitionLook:
    def __init__(self) -> None:
        self._remembered: WeakKeyDictionary[PartitionArchive, _Remembered] = WeakKeyDictionary()

    def at(self, archive: PartitionArchive, now_ms: int) -> PartitionFigures:
        seen = self._remembered.setdefault(archive, _Remembered())
        seen.look(archive, now_ms)
        return PartitionFigures(
            archive.partition.tp.topic,
            archive.partition.tp.partition,
            seen.backlog.bytes,
            archive.writer.current.end_offset if archive.is_open else 0,
            archive.archived_segments,
            archive.archived_bytes,
            archive.failures,
            archive.held is not None or archive.kept is not None,
            archive.stopped is not None,
            archive.last_success_ms,
            seen.backlog.lag_ms(now_ms),
            seen.stored_bytes,
            holding_transaction(archive.partition, archive.writer.current.end_offset) if archive.is_open else None,
        )
