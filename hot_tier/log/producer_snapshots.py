"""Producer state from disk: the newest snapshot that is whole, and the batches after it.

A snapshot is written when a segment is closed, as of its end. Those below the first local segment go with it; one
that a crash tore counts as missing, and an older one is brought up to date instead.
"""

import os
from collections.abc import Iterable

from hot_tier.log import names
from hot_tier.log.files import write_synced
from hot_tier.log.producers import ProducerState, read_producers
from hot_tier.log.scan import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Rows,
    Walk,
)
from hot_tier.log.segment import Segment


def snapshot_offsets(directory: str) -> list[int]:
    found = (names.parse_offset_file(name) for name in os.listdir(directory))
    return sorted(file.offset for file in found if file is not None and file.suffix == names.PRODUCERS)


def snapshot_path(directory: str, offset: int) -> str:
    return os.path.join(directory, names.offset_file(offset, names.PRODUCERS))


def snapshot_bytes(directory: str, offset: int) -> bytes:
    """Returns the content of the snapshot at `offset`, nothing where there is none."""
    try:
        with open(snapshot_path(directory, offset), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def newest_snapshot(directory: str, end_offset: int) -> tuple[int, ProducerState]:
    """The newest whole snapshot at or below `end_offset` and its offset; later ones are deleted, they speak of
    batches that are gone."""
    for offset in reversed(snapshot_offsets(directory)):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            os.unlink(path)
            continue
        with open(path, "rb") as file:
            found = read_producers(file.read())
        if found is not None and found[0] == offset:
            return found
    return 0, ProducerState()


def replay_rows(state: ProducerState, rows: Rows, from_offset: int, now_ms: int) -> None:
    chosen = rows[(rows[:, PRODUCER_ID] >= 0) & (rows[:, BASE_OFFSET] >= from_offset)]
    columns = (PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, BASE_OFFSET, LAST_OFFSET, ATTRIBUTES)
    state.replay(chosen[:, columns].tolist(), now_ms)


def restore_producers(directory: str, segments: Iterable[Segment], end_offset: int, now_ms: int) -> ProducerState:
    """The state as of `end_offset`. Waits for the disk.

    Snapshots that a crash kept from being written are written now: once the segment before one is deleted, what it
    says can be learned from nowhere else.
    """
    offset, state = newest_snapshot(directory, end_offset)
    for segment in segments:
        if segment.end_offset > offset and not segment.damage.unsound:
            fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for rows in Walk(fd, 0, segment.size, segment.base_offset):
                    replay_rows(state, rows, offset, now_ms)
            finally:
                os.close(fd)
            if segment.sealed:
                write_synced(snapshot_path(directory, segment.end_offset), state.write(segment.end_offset))
    return state
