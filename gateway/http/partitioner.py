"""Chooses the partition of a message: for a key the same one as Kafka's clients choose, otherwise spread evenly.

Messages without a key stay at one partition while its batch is open, and then move to the next. So many single posts
make few large batches, and few posts go to the partitions in turn.
"""

from collections.abc import Callable
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns Kafka's murmur2 hash as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickySpread:
    """Chooses partitions for keyless messages. `is_open` says whether the batch of (topic, partition) takes more."""

    def __init__(self, is_open: Callable[[str, int], bool]) -> None:
        self._is_open = is_open
        self._current: dict[str, int] = {}

    def next(self, topic: str, partitions: int) -> int:
        current = self._current.get(topic, -1)
        if 0 <= current < partitions and self._is_open(topic, current):
            return current
        chosen = (current + 1) % partitions
        self._current[topic] = chosen
        return chosen
