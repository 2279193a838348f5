"""Bytes of one segment, checked before they are served.

Invariants:
- Every byte is checked against its CRC once per life of the process before it is served: what was appended by
  this process counts as checked, the rest is checked by the first read (`read_checked`). Nothing counts as checked
  any more once a reader has found a wrong CRC (`CheckedBytes.doubt`).
- What no CRC covers (base offset, length, leader epoch) is checked at every read. Batches must follow each other, in
  the epochs that the log knows; where compaction left gaps, their heads must be what they were (`heads`).
- What another process wrote is proved against the seal, or what a clean stop wrote down, before any of it is served.
- What is found to be wrong is marked in the segment's `damage`, and ends the bytes before it.
"""

import os

from hot_tier.errors import StorageFailure
from hot_tier.log.epochs import History
from hot_tier.log.files import read_at, read_cached_at
from hot_tier.log.heads import extended, read_marked
from hot_tier.log.index import UNKNOWN
from hot_tier.log.scan import HEADS_DIFFER, WRONG_HEADER, Walk, following_bytes, sound_bytes
from hot_tier.log.segment import Segment


def read_cached(segment: Segment, position: int, length: int, base_offset: int, history: History) -> memoryview | None:
    """Returns the batches there, from the one that starts at `base_offset` up to the first damaged one. None where that
    would wait for the disk, or takes more than a look at their heads."""
    if (
        segment.retired
        or not segment.dense
        or segment.damage.unsound
        or not segment.checked_bytes.covers(position, length)
    ):
        return None
    try:
        data = read_cached_at(segment.file().fd, position, length)
    except OSError as error:
        raise StorageFailure(f"cannot read: {error}", where=segment.path) from error
    if data is None:
        return None
    sound = following_bytes(data, base_offset, segment.end_offset, history)
    return data if sound == length else _until_damage(segment, data, position, sound)


def read_checked(
    segment: Segment, fd: int, position: int, length: int, base_offset: int, history: History
) -> memoryview:
    """As `read_cached`, and CRCs are checked where they have not been. Waits for the disk; any thread may call it."""
    checked_bytes = segment.checked_bytes
    if checked_bytes.is_unproven(position):
        prove(segment, fd, history)
    if segment.damage.unsound:
        raise segment.damage.error(position)
    try:
        data = read_at(fd, position, length) if segment.dense else _read_marked(segment, fd, position, length, history)
    except OSError as error:
        raise StorageFailure(f"cannot read: {error}", where=segment.path) from error
    checked = len(data) == length and checked_bytes.covers(position, length)
    if checked and segment.dense:
        sound = following_bytes(data, base_offset, segment.end_offset, history)
    elif checked:
        sound = length
    else:
        sound = sound_bytes(data, base_offset, segment.end_offset, dense=segment.dense, history=history)
    if position + length > segment.size:
        return data[:sound]  # It was cut meanwhile.
    if sound < length:
        data = _until_damage(segment, data, position, sound)
    checked_bytes.add(position, position + sound)
    return data


def _read_marked(segment: Segment, fd: int, position: int, length: int, history: History) -> memoryview:
    checked_bytes, damage = segment.checked_bytes, segment.damage
    marks, written = checked_bytes.marks, checked_bytes.written
    if marks is None or marks.end < position + length:
        marks, walk = extended(marks, fd, segment.base_offset, written.size, history)
        digest = written.digest if written.batches != UNKNOWN else walk.header_digest
        if walk.fault is not None or walk.header_digest != digest:
            if checked_bytes.written is written:
                damage.mark_unsound(walk.fault or HEADS_DIFFER)
            raise damage.error(position)
        checked_bytes.marks = marks
    data = read_marked(fd, marks, position, length, segment.base_offset)
    if data is None:
        damage.mark_unsound(HEADS_DIFFER)
        raise damage.error(position)
    return data


def _until_damage(segment: Segment, data: memoryview, position: int, sound: int) -> memoryview:
    segment.damage.mark(position + sound, "the batch does not match its CRC, or " + WRONG_HEADER)
    if sound == 0:
        raise segment.damage.error(position)
    return data[:sound]


def prove(segment: Segment, fd: int, history: History) -> None:
    """Looks whether the bytes that another process wrote are what it wrote, as far as heads tell. Waits for the
    disk."""
    checked_bytes, damage = segment.checked_bytes, segment.damage
    written = checked_bytes.unproven
    if written is None:
        return
    if segment.dense:
        walk = Walk(fd, 0, written.size, segment.base_offset, dense=True, history=history)
        for _ in walk:
            pass
    else:
        checked_bytes.marks, walk = extended(None, fd, segment.base_offset, written.size, history)
    if checked_bytes.unproven is not written:
        return  # It was cut meanwhile.
    if walk.fault is not None:
        damage.blame(fd, walk.last if walk.batches else -1, walk.position, walk.fault)
        damage.unsound = not segment.dense
    elif written.batches != UNKNOWN and (walk.batches, walk.header_digest) != written[1:]:
        _find_damage(segment, fd, written.size, history)
    elif segment.sealed and os.fstat(fd).st_size > segment.size:
        damage.report(segment.size, "the file goes on where its seal says that it ends")
    elif (
        segment.sealed
        and segment.size == written.size  # This process added nothing to it.
        and segment.dense
        and not damage.positions
        and walk.next_offset != segment.end_offset
    ):
        damage.mark_unsound(f"it ends at offset {walk.next_offset}, not at {segment.end_offset}")
    checked_bytes.unproven = None


def _find_damage(segment: Segment, fd: int, size: int, history: History) -> None:
    """The heads are not what was written. A CRC field may be wrong: then its batch is found."""
    walk = Walk(fd, 0, size, segment.base_offset, dense=segment.dense, check_from=0, history=history)
    for _ in walk:
        pass
    if walk.fault is not None:
        segment.damage.mark(walk.position, walk.fault)
    else:
        segment.damage.mark_unsound(HEADS_DIFFER)
