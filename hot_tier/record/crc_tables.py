"""How the CRC-32C of bytes follows from those of their parts: `crc(a + b) = (crc(a) behind len(b) zeros) ^ crc(b)`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL: Final = 0x82F63B78
_LEVELS: Final = 31
"""A length is below 2**31."""


def _behind_zeros() -> NDArray[np.uint32]:
    tables = np.zeros((_LEVELS, 4, 256), np.uint32)
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, (one >> 1) ^ np.uint32(_POLYNOMIAL), one >> 1)
    byte = np.arange(256, dtype=np.uint32)
    tables[0] = [one, byte, byte << 8, byte << 16]
    for level in range(1, _LEVELS):
        half = tables[level - 1]
        tables[level] = half[0][half & 255] ^ half[1][half >> 8 & 255] ^ half[2][half >> 16 & 255] ^ half[3][half >> 24]
    return tables


BEHIND_ZEROS: Final = _behind_zeros()
"""What becomes of a CRC when 2**level zero bytes follow, by level, byte of the CRC, and value of that byte. The first
table is the one that adds a byte to a CRC."""
