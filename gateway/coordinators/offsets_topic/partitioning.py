"""Which partition of the offsets topic holds a group: Kafka's rule, so that Kafka's tools look in the right place.

The hash is that of a Java string, over UTF-16 code units; the partition is its absolute value, with the one int that
has none counted as 0, modulo the number of partitions.
"""

from functools import lru_cache
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"


@lru_cache(maxsize=1 << 16)
def java_hash(text: str) -> int:
    """`String.hashCode`: a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(group_id: str, partitions: int) -> int:
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
