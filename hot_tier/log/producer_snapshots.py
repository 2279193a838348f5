"""Producers and transactions from disk: the newest snapshot that is whole, and the batches after it.

A snapshot is written when a segment is closed, as of its end. Those below the first local segment go with it; one
that a crash tore counts as missing, and an older one is brought up to date instead.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final

from hot_tier.errors import CorruptBatch, StorageFailure
from hot_tier.log import names
from hot_tier.log.aborted_files import load_aborted, write_aborted
from hot_tier.log.files import read_at, write_synced
from hot_tier.log.index import NO_TIMESTAMP
from hot_tier.log.producers import ProducerState, Replayed, read_producers
from hot_tier.log.proof import prove_segment
from hot_tier.log.scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    Walk,
)
from hot_tier.log.segment import Segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.transactions import AbortedIndex
from hot_tier.record.batch import CONTROL, TRANSACTIONAL, read_header
from hot_tier.record.control import Marker, read_marker
from hot_tier.record.records import LAST_OFFSET as HIGHEST_OFFSET

_MOST_MARKER_BYTES: Final = 4096


def snapshot_offsets(directory: str) -> list[int]:
    found = (names.parse_offset_file(name) for name in os.listdir(directory))
    return sorted(file.offset for file in found if file is not None and file.suffix == names.PRODUCERS)


def snapshot_path(directory: str, offset: int) -> str:
    return os.path.join(directory, names.offset_file(offset, names.PRODUCERS))


def newest_snapshot(directory: str, end_offset: int) -> tuple[int, ProducerState]:
    """Returns the newest whole snapshot at or below `end_offset`, and its offset."""
    for offset in reversed(snapshot_offsets(directory)):
        if offset > end_offset:
            continue
        with open(snapshot_path(directory, offset), "rb") as file:
            found = read_producers(file.read())
        if found is not None and found[0] == offset:
            return found
    return 0, ProducerState()


def producers_at(directory: str, segments: Iterable[SegmentInfo], end_offset: int, now_ms: int) -> bytes:
    """Returns the snapshot at `end_offset`, below which all is committed. If it is missing or damaged it is made from
    an older one and written to disk, because the segments before it may be deleted next. Waits for the disk."""
    offset, state = newest_snapshot(directory, end_offset)
    following = [each for each in segments if each.end_offset > offset and each.base_offset < end_offset]
    if following and following[0].base_offset > offset:
        raise StorageFailure(
            f"no whole snapshot of its producers from offset {following[0].base_offset} to {end_offset}",
            where=directory,
            hint="put a .producers file back from a copy of this directory",
        )
    for info in following:
        prove_segment(info.path, info.contents, crcs=False)
        with open(info.path, "rb") as file:
            replay_file(state, file.fileno(), info.size, info.base_offset, offset, now_ms)
    state.transactions.committed(end_offset)
    content = state.write(end_offset)
    if offset < end_offset:
        write_synced(snapshot_path(directory, end_offset), content)
    return content


def replay_file(state: ProducerState, fd: int, size: int, base_offset: int, from_offset: int, now_ms: int) -> bool:
    """Replays a segment's batches from `from_offset` on. Returns whether all of them could be read."""
    walk = Walk(fd, 0, size, base_offset)
    unread = False
    for rows in walk:
        chosen = rows[(rows[:, PRODUCER_ID] >= 0) & (rows[:, BASE_OFFSET] >= from_offset)]
        for row in chosen.tolist():
            batch = _replayed(fd, row, now_ms)
            unread |= bool(batch.attributes & CONTROL) and batch.marker is None
            state.wrote(*batch)
    return walk.fault is None and not unread


def _replayed(fd: int, row: list[int], now_ms: int) -> Replayed:
    attributes, written_ms = row[ATTRIBUTES], row[MAX_TIMESTAMP]
    return Replayed(
        row[PRODUCER_ID],
        row[PRODUCER_EPOCH],
        row[BASE_SEQUENCE],
        row[BASE_OFFSET],
        row[LAST_OFFSET],
        attributes,
        # Of a producer that writes no more it is not known when it wrote; of a transaction the batch tells.
        min(written_ms, now_ms) if attributes & TRANSACTIONAL and written_ms != NO_TIMESTAMP else now_ms,
        _marker(fd, row) if attributes & CONTROL else None,
    )


def _marker(fd: int, row: list[int]) -> Marker | None:
    """Returns what a marker says. None if it is damaged: then its transaction stays undecided, and nobody sees it."""
    try:
        batch = read_at(fd, row[POSITION], min(row[SIZE], _MOST_MARKER_BYTES))
        return read_marker(batch, read_header(batch))
    except CorruptBatch:
        return None


def restore_producers(
    directory: str, segments: Sequence[Segment], end_offset: int, now_ms: int, known_to: int | None = None
) -> ProducerState:
    """Returns the state as of `end_offset`, and of the aborted transactions at least those whose markers are at or
    above `known_to`. Waits for the disk.

    Writes snapshots that a crash prevented: once the segment before a snapshot is deleted, nothing else holds that
    state.
    """
    for later in snapshot_offsets(directory):
        if later > end_offset:
            os.unlink(snapshot_path(directory, later))  # It speaks of batches that are gone.
    offset, state = newest_snapshot(directory, end_offset if known_to is None else min(known_to, end_offset))
    for segment in segments:
        if segment.end_offset > offset:
            whole = _replay(state, segment, offset, now_ms)
            if state.transactional and not (whole and not segment.lost_tail):
                _hide_undecided(state, segments, segment, whole=whole)
            if segment.sealed:
                write_synced(snapshot_path(directory, segment.end_offset), state.write(segment.end_offset))
    return state


def _replay(state: ProducerState, segment: Segment, from_offset: int, now_ms: int) -> bool:
    """Returns whether all of the file could be read. One that is not served for its transactions alone may be whole
    again."""
    if segment.damage.unsound and not segment.unread:
        return False
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return replay_file(state, fd, segment.size, segment.base_offset, from_offset, now_ms)
    finally:
        os.close(fd)


def _hide_undecided(state: ProducerState, segments: Sequence[Segment], hole: Segment, *, whole: bool) -> None:
    """Serves nothing of the transactions that were open at a hole in the log, nor of the segment with the hole itself
    where that is inside: how they ended is not known."""
    first = state.forget_open()
    hidden_from = hole.end_offset if whole else hole.base_offset
    if first is not None:
        hidden_from = min(hidden_from, first)
    hole.aborts = hole.aborts or not whole
    for segment in segments:
        if segment.end_offset > hidden_from and segment.base_offset <= hole.base_offset:
            segment.unread = True
            segment.damage.mark_unsound("which of its transactions were aborted cannot be read")


def restore_history(directory: str, segments: Sequence[Segment], end_offset: int, now_ms: int) -> ProducerState:
    """Returns the state as of `end_offset` with all aborted transactions of the segments. Waits for the disk.

    Of those of sealed segments their files tell; from the first file on that is missing or damaged, and in segments
    without a seal, the batches do. Files that were not right are written anew.
    """
    known, known_to = AbortedIndex(), segments[0].base_offset if segments else 0
    for segment in segments:
        found = _aborted_of(segment)
        if found is None:
            break
        known, known_to = known.joined(found), segment.end_offset
    state = restore_producers(directory, segments, end_offset, now_ms, known_to)
    state.transactions.aborted = known.joined(state.transactions.aborted.between(known_to, HIGHEST_OFFSET))
    for segment in segments:
        if segment.sealed and not segment.unread and segment.base_offset >= known_to:
            aborted = state.transactions.aborted.between(segment.base_offset, segment.end_offset)
            segment.aborts = segment.aborts or len(aborted) > 0
            if segment.aborts:
                content = write_aborted(aborted, segment.base_offset, segment.end_offset)
                write_synced(segment.stem + names.ABORTED, content)
    return state


def _aborted_of(segment: Segment) -> AbortedIndex | None:
    """Returns the aborted transactions of a segment as far as its seal and the file beside it tell."""
    if not segment.seal_written or segment.lost_tail:
        return None
    return load_aborted(segment) if segment.aborts else AbortedIndex()
