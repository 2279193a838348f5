"""What can become of a segment's file: each is called with its path and with that of another segment."""

import os
from collections.abc import Callable
from pathlib import Path

from hot_tier.record.batch import iter_headers


def flip(field_at: int, bit: int) -> Callable[[Path, Path], None]:
    """A bit, counted from the least, of a big-endian field in the header of a batch in the middle."""

    def harm(path: Path, other: Path) -> None:
        data = bytearray(path.read_bytes())
        at = [position for position, _ in iter_headers(data)][1] + field_at - bit // 8
        data[at] ^= 1 << bit % 8
        write(path, data)

    return harm


def write(path: Path, data: bytes) -> None:
    """In place, as a disk does it: whoever has the file open sees it."""
    with open(path, "r+b") as file:
        file.truncate(len(data))
        file.write(data)


def cut(keep: Callable[[int], int]) -> Callable[[Path, Path], None]:
    return lambda path, other: os.truncate(path, keep(path.stat().st_size))


def swap(path: Path, other: Path) -> None:
    mine, its = path.read_bytes(), other.read_bytes()
    write(path, its)
    write(other, mine)


def first_batch_only(path: Path, other: Path) -> None:
    os.truncate(path, [position for position, _ in iter_headers(path.read_bytes())][1])


BASE_OFFSET_AT, LENGTH_AT, EPOCH_AT = 7, 11, 15
HARMS: dict[str, Callable[[Path, Path], None]] = {
    **{f"base offset bit {bit}": flip(BASE_OFFSET_AT, bit) for bit in range(64)},
    **{f"length bit {bit}": flip(LENGTH_AT, bit) for bit in range(32)},
    **{f"leader epoch bit {bit}": flip(EPOCH_AT, bit) for bit in range(32)},
    "body bit": flip(100, 3),
    "cut in a batch": cut(lambda size: size - 10),
    "cut between batches": first_batch_only,
    "emptied": cut(lambda size: 0),
    "longer": lambda path, other: write(path, path.read_bytes() + b"\0"),
    "removed": lambda path, other: path.unlink(),
    "swapped": swap,
}
