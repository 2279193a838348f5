"""Bytes of one segment, checked before they are served.

Invariants:
- Every read checks all that it hands out: the CRC of each batch, and what no CRC covers (base offset, length, leader
  epoch). Batches must follow each other, in the epochs that the log knows; where compaction left gaps, their heads must
  be what they were (`heads`). A byte that was right when it was written, or read before, may be wrong now: a disk may
  flip a bit at any time, and many clients check no CRC.
- Readers of the same batches share what one of them has read and checked, for as long as one of their answers holds it.
  It is in memory then, and what became of the file since does not matter to it.
- What another process wrote is proved against the seal, or what a clean stop wrote down, before any of it is served.
- What is found to be wrong is marked in the segment's `damage`, and ends the bytes before it.
"""

import os
from weakref import WeakValueDictionary

from hot_tier.errors import StorageFailure
from hot_tier.log.epochs import History
from hot_tier.log.files import read_at, read_cached_at
from hot_tier.log.heads import extended, read_marked
from hot_tier.log.index import UNKNOWN
from hot_tier.log.scan import HEADS_DIFFER, WRONG_HEADER, Walk, sound_bytes
from hot_tier.log.segment import Segment


def read_cached(segment: Segment, position: int, length: int, base_offset: int, history: History) -> memoryview | None:
    """Returns the batches there, from the one that starts at `base_offset` up to the first damaged one. Returns None if
    that would wait for the disk, or needs more than these bytes."""
    if segment.retired or not segment.dense or segment.damage.unsound or segment.known_heads.is_unproven(position):
        return None
    if segment.held is None:
        segment.held = WeakValueDictionary()
    data = segment.held.get((position, length))
    if data is not None:
        return data
    try:
        data = read_cached_at(segment.file().fd, position, length)
    except OSError as error:
        raise StorageFailure(f"cannot read: {error}", where=segment.path) from error
    if data is None:
        return None
    sound = sound_bytes(data, base_offset, segment.end_offset, dense=True, history=history)
    if sound != length:
        return _until_damage(segment, data, position, sound)
    segment.held[position, length] = data
    return data


def read_checked(
    segment: Segment, fd: int, position: int, length: int, base_offset: int, history: History
) -> memoryview:
    """As `read_cached`, but it waits for the disk. Any thread may call it."""
    if segment.known_heads.is_unproven(position):
        prove(segment, fd, history)
    if segment.damage.unsound:
        raise segment.damage.error(position)
    try:
        data = read_at(fd, position, length) if segment.dense else _read_marked(segment, fd, position, length, history)
    except OSError as error:
        raise StorageFailure(f"cannot read: {error}", where=segment.path) from error
    sound = sound_bytes(data, base_offset, segment.end_offset, dense=segment.dense, history=history)
    if position + length > segment.size:
        return data[:sound]  # It was cut meanwhile.
    return data if sound == length else _until_damage(segment, data, position, sound)


def _read_marked(segment: Segment, fd: int, position: int, length: int, history: History) -> memoryview:
    known_heads, damage = segment.known_heads, segment.damage
    marks, written = known_heads.marks, known_heads.written
    if marks is None or marks.end < position + length:
        marks, walk = extended(marks, fd, segment.base_offset, written.size, history)
        digest = written.digest if written.batches != UNKNOWN else walk.header_digest
        if walk.fault is not None or walk.header_digest != digest:
            if known_heads.written is written:
                damage.mark_unsound(walk.fault or HEADS_DIFFER)
            raise damage.error(position)
        known_heads.marks = marks
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
    """Checks that the bytes of another process are what it wrote, as far as heads tell. Waits for the disk."""
    known_heads, damage = segment.known_heads, segment.damage
    written = known_heads.unproven
    if written is None:
        return
    if segment.dense:
        walk = Walk(fd, 0, written.size, segment.base_offset, dense=True, history=history)
        for _ in walk:
            pass
    else:
        known_heads.marks, walk = extended(None, fd, segment.base_offset, written.size, history)
    if known_heads.unproven is not written:
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
    known_heads.unproven = None


def _find_damage(segment: Segment, fd: int, size: int, history: History) -> None:
    """Looks for damage where the heads are not what was written. If a CRC field is wrong, its batch is found."""
    walk = Walk(fd, 0, size, segment.base_offset, dense=segment.dense, check_from=0, history=history)
    for _ in walk:
        pass
    if walk.fault is not None:
        segment.damage.mark(walk.position, walk.fault)
    else:
        segment.damage.mark_unsound(HEADS_DIFFER)
