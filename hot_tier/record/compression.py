"""The codecs a batch's records may be compressed with.

`decompress` holds its cap before and while it decompresses: 262 KB of zstd can ask for 8 GiB, and a snappy
block for 4 GiB in its first five bytes, so neither the output nor an allocation ever passes `max_bytes`.
Garbage raises CorruptBatch, whatever the library underneath raises.

Frames may follow each other inside one batch, and each costs time however little it holds. So the cap bounds their
number too (`most_parts`): a batch of thousands of empty frames is too large.

Snappy comes in two framings: xerial's (Java clients, kafka-python, aiokafka) and one raw block (librdkafka).
Both are read; xerial's is written, as the Java client does.

Contexts are kept per thread, because making one costs more than decompressing a small batch.
"""

import threading
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import islice
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

import cramjam
import lz4.frame
import zstandard

from hot_tier.errors import BatchTooLarge, CorruptBatch, UnsupportedBatch
from hot_tier.record.batch import ReadBuffer


class Codec(IntEnum):
    """The codecs, by their number in the `attributes` field."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_HINT: Final = "0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd"

_GZIP_WBITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_LENGTH: Final = Struct(">i")
_SNAPPY_MOST_RATIO: Final = 22  # its densest element makes 64 bytes of 3
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50  # the last four bits are free
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_LE32: Final = Struct("<I")
_PART_BYTES: Final = 2048
"""Opening a gzip member, a zstd frame or a snappy block takes as long as decompressing so many bytes, or longer."""
_ZSTD_BLOCKS_PER_PART: Final = 16
"""A block inside a zstd frame costs less than a part, because only its header is looked at."""


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.lz4: Any = lz4.frame.create_decompression_context()
        self.zstd = zstandard.ZstdDecompressor()
        self.zstd_compressor = zstandard.ZstdCompressor(level=3)


_contexts: Final = _Contexts()


def compress(codec: int, data: ReadBuffer) -> ReadBuffer:
    """Returns `data` in one frame of `codec`; with `Codec.NONE` returns `data` itself."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return zlib.compress(data, wbits=_GZIP_WBITS)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        frame: bytes = lz4.frame.compress(data, block_linked=False)
        return frame
    if codec == Codec.ZSTD:
        return _contexts.zstd_compressor.compress(data)
    raise UnsupportedBatch(f"no compression codec {codec}", hint=CODEC_HINT)


def decompress(codec: int, data: ReadBuffer, max_bytes: int) -> ReadBuffer:
    """Returns `data` decompressed; with `Codec.NONE` returns `data` itself.

    Raises BatchTooLarge as soon as the result is known to pass `max_bytes`, CorruptBatch if `data` is not whole frames.
    """
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise UnsupportedBatch(f"no compression codec {codec}", hint=CODEC_HINT)
    try:
        return decompressor(memoryview(data), max_bytes)
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError) as error:
        raise CorruptBatch(f"not a {Codec(codec).name.lower()} frame: {error}") from error


def most_parts(max_bytes: int) -> int:
    """Returns how many frames or blocks a batch may have if its records may take `max_bytes`."""
    return 16 + max_bytes // _PART_BYTES


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"records take more than {max_bytes} bytes once decompressed", hint="send smaller batches")


def _decompress_gzip(data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    position = 0
    # A member hands back a copy of what follows it. The first is nearly always alone and gets everything; the others
    # get a little, and more if they need it.
    window = len(data)
    while position < len(data) or not parts:
        member = zlib.decompressobj(_GZIP_WBITS)
        while not member.eof:
            piece = data[position : position + window]
            if not piece:
                raise CorruptBatch("gzip frame ends too early")
            part = member.decompress(piece, room + 1)
            room -= len(part)
            parts.append(part)
            if room < 0 or len(parts) > most_parts(max_bytes):
                raise _too_large(max_bytes)
            position += len(piece) - len(member.unused_data)
            window *= 4
        window = 256
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_snappy(data: ReadBuffer) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_bytes: int) -> bytearray:
    framed = bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = list(islice(_xerial_blocks(data), most_parts(max_bytes) + 1)) if framed else [data]
    lengths = [_snappy_length(block) for block in blocks]
    total = sum(lengths)
    if total > max_bytes or len(blocks) > most_parts(max_bytes):
        raise _too_large(max_bytes)
    out = bytearray(total)
    view = memoryview(out)
    position = 0
    for block, length in zip(blocks, lengths, strict=True):
        if length:
            cramjam.snappy.decompress_raw_into(block, view[position : position + length])
        position += length
    return out


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptBatch("snappy stream ends inside its header")
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + _XERIAL_LENGTH.size
        if start > len(data):
            raise CorruptBatch("snappy stream ends inside a block length")
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        position = start + length
        if length < 0 or position > len(data):
            raise CorruptBatch(f"snappy block of {length} bytes where {len(data) - start} are left")
        yield data[start:position]


def _snappy_length(block: memoryview) -> int:
    if not block:
        raise CorruptBatch("snappy block without its length")
    length: int = cramjam.snappy.decompress_raw_len(block)
    if length > _SNAPPY_MOST_RATIO * len(block):
        raise CorruptBatch(f"snappy block of {len(block)} bytes claims to hold {length}")
    return length


def _decompress_lz4(data: memoryview, max_bytes: int) -> bytes:
    context = _contexts.lz4
    parts: list[bytes] = []
    room = max_bytes + 1
    used = 0
    whole = False
    # The library allocates all it is allowed to write. Four times the frame is enough for most batches, and
    # below 128 KiB malloc hands out memory that it has; mapping fresh pages would double the cost.
    portion = max(4 * len(data), 64 << 10)
    try:
        while not whole and room:
            part, read, whole = lz4.frame.decompress_chunk(context, data[used:], max_length=min(portion, room))
            if not part and not read:
                break
            parts.append(part)
            room -= len(part)
            used += read
            portion *= 4
    finally:
        if not whole:
            # A reset keeps how many bytes a cut frame still owed, and the next frame, which is whole, would be refused.
            _contexts.lz4 = lz4.frame.create_decompression_context()
    if not room:
        raise _too_large(max_bytes)
    if not whole:
        raise CorruptBatch("lz4 frame ends too early")
    if used != len(data):
        raise CorruptBatch(f"{len(data) - used} bytes follow the lz4 frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_zstd(data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    for frame, most_bytes in _zstd_frames(data, max_bytes):
        if zstandard.frame_content_size(frame) > room:
            raise _too_large(max_bytes)
        try:
            part = _contexts.zstd.decompress(frame, max_output_size=max(1, min(most_bytes, room)))
        except zstandard.ZstdError:
            if most_bytes > room:
                # The frame is whole, so what stopped it is most likely the room.
                raise _too_large(max_bytes) from None
            raise
        parts.append(part)
        room -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_frames(data: memoryview, max_bytes: int) -> Iterator[tuple[memoryview, int]]:
    """Yields each frame and the most bytes that it can hold, from its block headers alone.

    Stops at a frame whose raw and run-length blocks alone pass `max_bytes`, so the usual bomb costs nothing.
    """
    position = 0
    left = most_parts(max_bytes) * _ZSTD_BLOCKS_PER_PART
    try:
        while position < len(data) or position == 0:
            start = position
            left -= _ZSTD_BLOCKS_PER_PART
            if left < 0:
                raise _too_large(max_bytes)
            (magic,) = _LE32.unpack_from(data, position)
            if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
                position += 8 + _LE32.unpack_from(data, position + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptBatch("not a zstd frame")
            descriptor = data[position + 4]
            single_segment = descriptor >> 5 & 1
            content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
            position += 6 - single_segment + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
            exact = compressed = last = 0
            while not last:
                block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last, kind, size = block & 1, block >> 1 & 3, block >> 3
                position += 3 + (1 if kind == 1 else size)
                if kind == 2:
                    compressed += 1
                else:
                    exact += size
                left -= 1
                if exact > max_bytes or left < 0:
                    raise _too_large(max_bytes)
            position += 4 * (descriptor >> 2 & 1)
            if position > len(data):
                raise CorruptBatch("zstd frame ends too early")
            yield data[start:position], exact + compressed * _ZSTD_BLOCK_BYTES
    except (IndexError, struct_error) as error:
        raise CorruptBatch("zstd frame ends too early") from error


_DECOMPRESSORS: Final[dict[int, Callable[[memoryview, int], ReadBuffer]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
