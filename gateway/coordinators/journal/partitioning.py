"""Which partition of a journal holds a key (a group, a transactional id): Kafka's rule, which Kafka's tools expect.

The hash is that of a Java string, over UTF-16 code units. The partition is its absolute value modulo the number of
partitions. The smallest int has no absolute value and counts as 0.
"""

from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def java_hash(text: str) -> int:
    """Returns what `String.hashCode` returns in Java: a signed 32-bit number."""
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(key: str, partitions: int) -> int:
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
