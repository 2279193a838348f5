"""Compares the history of an archive with that of the local log: which leader epoch wrote which offset."""

from collections.abc import Iterable

from cold_tier.manifest.model import EpochStart, SegmentEntry, Snapshot, epoch_at
from hot_tier.errors import CorruptLog
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset
from hot_tier.log.partition_log import PartitionLog


def check_history(log: PartitionLog, found: Snapshot | None, where: str) -> None:
    """Raises CorruptLog unless the manifest and the local log have the same history."""
    if found is None:
        return
    if found.end_offset > log.log_end_offset:
        raise CorruptLog(
            f"the archive holds offsets up to {found.end_offset - 1}, the local log ends at {log.log_end_offset}",
            where=where,
            hint="local records were lost; delete the topic and `tierlog archive restore` it",
        )
    for segment in found.tail:
        other = other_epoch(log, segment)
        if other is not None:
            raise CorruptLog(
                other,
                where=where,
                hint="these are two histories; nothing is archived, dropped or deleted until one of them is gone",
            )


def other_epoch(log: PartitionLog, segment: SegmentEntry) -> str | None:
    """Returns a text that says where a segment's leader epochs differ from the local log's, or None."""
    for end in [*(epoch.start_offset for epoch in segment.epochs[1:]), segment.end_offset]:
        ours, theirs = log.epochs.epoch_at(end - 1), epoch_at(segment, Offset(end))
        if end > log.log_start_offset and NO_EPOCH not in (ours, theirs) and ours != theirs:
            return f"offset {end - 1} was written in leader epoch {theirs} by the archive, in {ours} by the local log"
    return None


def epochs_within(entries: Iterable[tuple[int, int]], base: Offset, end: Offset) -> tuple[EpochStart, ...]:
    """Returns the leader epochs of [base, end): the one that is current at `base`, and those that start inside."""
    before = [entry for entry in entries if entry[1] <= base][-1:]
    inside = [entry for entry in entries if base < entry[1] < end]
    return tuple(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in [*before, *inside])
