"""CRC-32C (Castagnoli) of any contiguous buffer, without copying it.

`docs/decisions/crc32c.md` says why it comes from this library.
"""

from typing import TYPE_CHECKING

from awscrt import checksums

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def crc32c(buffer: "ReadableBuffer", previous: int = 0) -> int:
    """Returns the checksum of `buffer`. It continues from `previous` where a message comes in parts."""
    checksum: int = checksums.crc32c(buffer, previous)
    return checksum
