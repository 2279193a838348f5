"""Finds out whether SQLite would ignore a part of its write-ahead log, because SQLite does not say so.

SQLite reads the log up to the first damaged frame and takes that for the end. It has to, because a stop may have cut
the last transaction. But then commits behind a damaged frame are gone without an error.

The layout (https://www.sqlite.org/fileformat2.html#walformat) is a header, then frames of one page each. Those of
an earlier use of the file lie behind the last one, and have other salts.
"""

import struct
from typing import Final

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""With the byte order of the words that are summed."""


def leaves_out_commits(content: bytes) -> bool:
    """Returns whether a committed transaction lies behind the first damaged frame, or behind a damaged header."""
    if len(content) <= _HEADER.size:
        return False
    magic, _, page_bytes, _, *salts, _, _ = _HEADER.unpack_from(content)
    order = _MAGIC.get(magic, "<")
    sums = _sums(order, content[:24])
    if magic not in _MAGIC or sums != _HEADER.unpack_from(content)[6:]:
        return True
    whole = True
    for at in range(_HEADER.size, len(content) - _FRAME.size - page_bytes + 1, _FRAME.size + page_bytes):
        _, committed, *frame_salts, first, second = _FRAME.unpack_from(content, at)
        current = frame_salts == salts
        if whole:
            page = at + _FRAME.size
            sums = _sums(order, content[at : at + 8] + content[page : page + page_bytes], sums)
            whole = current and sums == (first, second)
        if not whole and current and committed:
            return True
    return False


def _sums(order: str, content: bytes, sums: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    first, second = sums
    for one, other in struct.iter_unpack(f"{order}II", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
