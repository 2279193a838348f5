"""The file that names the aborted transactions whose markers are in one segment. `docs/formats/aborted.md`.

It is written before the segment is sealed, and the seal says that there is one. Where it is missing or damaged, it is
made again from the batches. Nobody may take its absence for "none": readers would see what was rolled back.
"""

from struct import Struct
from typing import Final

from hot_tier.log import names
from hot_tier.log.segment import Segment
from hot_tier.log.transactions import Aborted, AbortedIndex
from hot_tier.record.crc import crc32c

_MAGIC: Final = b"TLAT"
_VERSION: Final = 1
_HEAD: Final = Struct(
    "<"
    "4s"  # magic
    "H"  # version
    "H"  # zero
    "q"  # base offset of the segment
    "q"  # its end offset
    "I"  # transactions
    "I"  # CRC-32C of the file with this field zero
)
_CRC_BYTES: Final = 4
_ENTRY: Final = Struct(
    "<"
    "q"  # producer id
    "q"  # first offset
    "q"  # offset of the marker
    "q"  # last stable offset after the marker
)


def write_aborted(index: AbortedIndex, base_offset: int, end_offset: int) -> bytes:
    body = b"".join(_ENTRY.pack(*entry) for entry in index)
    head = _HEAD.pack(_MAGIC, _VERSION, 0, base_offset, end_offset, len(index), 0)
    crc = crc32c(body, crc32c(head))
    return head[:-_CRC_BYTES] + crc.to_bytes(_CRC_BYTES, "little") + body


def read_aborted(content: bytes, base_offset: int, end_offset: int) -> AbortedIndex | None:
    """Returns the transactions of the segment, or None if the file is damaged, not whole, or of another segment."""
    if len(content) < _HEAD.size:
        return None
    magic, version, _, base, end, count, crc = _HEAD.unpack_from(content)
    head, body = content[: _HEAD.size - _CRC_BYTES] + bytes(_CRC_BYTES), content[_HEAD.size :]
    if (magic, version, base, end) != (_MAGIC, _VERSION, base_offset, end_offset):
        return None
    if len(body) != count * _ENTRY.size or crc32c(body, crc32c(head)) != crc:
        return None
    return AbortedIndex(Aborted._make(entry) for entry in _ENTRY.iter_unpack(body))


def load_aborted(segment: Segment) -> AbortedIndex | None:
    """Returns what the file beside a segment says, None if it does not count. Waits for the disk."""
    try:
        with open(segment.stem + names.ABORTED, "rb") as file:
            return read_aborted(file.read(), segment.base_offset, segment.end_offset)
    except FileNotFoundError:
        return None
