"""What can become of a file: each harm is called with a `Target`."""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hot_tier.record.batch import CRC_COVERED_FROM, iter_headers

HEAD_BITS: Final = 8 * CRC_COVERED_FROM
"""Of each batch: what its CRC does not cover, and the CRC."""
ENDS: Final = 64


@dataclass
class Target:
    path: Path
    chance: random.Random
    others: list[Path] = field(default_factory=list)
    """Files of the same kind."""
    older: Path | None = None
    """What it was some time ago; it is not there if the file was not."""

    @property
    def content(self) -> bytearray:
        return bytearray(self.path.read_bytes())


Harm = Callable[[Target], None]


def write(path: Path, content: bytes) -> None:
    """In place, as a disk does it: whoever has the file open sees it."""
    with open(path, "r+b") as file:
        file.truncate(len(content))
        file.write(content)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (7 - bit % 8)
    write(path, content)


def flip_head(path: Path, number: int, bit: int) -> None:
    """A bit, counted from the first, in the head of a batch."""
    positions = [position for position, _ in iter_headers(path.read_bytes())]
    flip(path, 8 * positions[number % len(positions)] + bit)


def _head_bit(bit: int) -> Harm:
    return lambda target: flip_head(target.path, target.chance.randrange(100), bit)


def _bit(start: int, end: int) -> Harm:
    """Of the bytes from `start` to `end`; a negative start counts from the last byte, and 0 ends with the file."""

    def harm(target: Target) -> None:
        size = len(target.content)
        first, last = max(size + start if start < 0 else start, 0), min(end or size, size)
        flip(target.path, target.chance.randrange(8 * first, 8 * last))

    return harm


def _some_bytes(target: Target) -> None:
    content = target.content
    at = target.chance.randrange(len(content))
    content[at : at + 16] = target.chance.randbytes(len(content[at : at + 16]))
    write(target.path, content)


def _cut(target: Target) -> None:
    os.truncate(target.path, target.chance.randrange(len(target.content)))


def _cut_at_a_batch(target: Target) -> None:
    os.truncate(target.path, target.chance.choice([position for position, _ in iter_headers(target.content)]))


def _longer(target: Target) -> None:
    write(target.path, target.content + target.chance.choice((b"\0", target.content[-70:])))


def _swap(target: Target) -> None:
    mine, other = target.content, target.chance.choice(target.others)
    write(target.path, other.read_bytes())
    write(other, mine)


def _roll_back(target: Target) -> None:
    if target.older is not None and target.older.exists():
        write(target.path, target.older.read_bytes())
    else:
        target.path.unlink()


HARMS: Final[dict[str, Harm]] = {
    **{f"head bit {bit}": _head_bit(bit) for bit in range(HEAD_BITS)},
    "a bit": _bit(0, 0),
    "a bit of the first bytes": _bit(0, ENDS),
    "a bit of the last bytes": _bit(-ENDS, 0),
    "some bytes": _some_bytes,
    "cut": _cut,
    "cut at a batch": _cut_at_a_batch,
    "emptied": lambda target: os.truncate(target.path, 0),
    "longer": _longer,
    "removed": lambda target: target.path.unlink(),
    "directory removed": lambda target: shutil.rmtree(target.path.parent),
    "swapped": _swap,
    "rolled back": _roll_back,
}


def do(harm: str, target: Target) -> bool:
    """False where that changes nothing."""
    before = target.path.read_bytes()
    HARMS[harm](target)
    return not target.path.exists() or target.path.read_bytes() != before
