"""The codecs a batch's records may be compressed with.

`decompress` holds its cap while it decompresses: a frame of 262 KB of zstd can ask for 8 GiB, and a snappy
block for 4 GiB in its first five bytes, so neither the output nor an allocation ever passes `max_bytes`.
Garbage raises CorruptBatch, whatever the library underneath raises.

Snappy comes in two framings: xerial's (Java clients, kafka-python, aiokafka) and one raw block (librdkafka).
Both are read; xerial's is written, as the Java client does.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam
import lz4.frame
import zstandard

from hot_tier.errors import BatchTooLarge, CorruptBatch, UnsupportedBatch
from hot_tier.record.batch import ReadBuffer


class Codec(IntEnum):
    """The numbers of the `attributes` field."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")


def compress(codec: int, data: ReadBuffer) -> bytes:
    """`data` in one frame of `codec`; `Codec.NONE` gives the bytes as they are."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, wbits=31)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        frame: bytes = lz4.frame.compress(data, block_linked=False)
        return frame
    if codec == Codec.ZSTD:
        return zstandard.ZstdCompressor(level=3).compress(data)
    raise UnsupportedBatch(f"no compression codec {codec}", hint="0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd")


def decompress(codec: int, data: ReadBuffer, max_bytes: int) -> ReadBuffer:
    """What `data` held before compression. BatchTooLarge as soon as that is more than `max_bytes`."""
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return data
    if codec not in _DECOMPRESSORS:
        raise UnsupportedBatch(f"no compression codec {codec}", hint="0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd")
    try:
        return _DECOMPRESSORS[codec](memoryview(data), max_bytes)
    except (zlib.error, cramjam.DecompressionError, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise CorruptBatch(f"not a {Codec(codec).name.lower()} frame: {error}") from error


def _too_large(max_bytes: int) -> BatchTooLarge:
    return BatchTooLarge(f"records take more than {max_bytes} bytes once decompressed", hint="send smaller batches")


def _compress_snappy(data: ReadBuffer) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    pending: ReadBuffer = data
    while pending:
        member = zlib.decompressobj(wbits=31)
        part = member.decompress(pending, room + 1)
        if len(part) > room:
            raise _too_large(max_bytes)
        if not member.eof:
            raise CorruptBatch("gzip frame ends too early")
        parts.append(part)
        room -= len(part)
        pending = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    length = cramjam.snappy.decompress_raw_len(block)
    if length > room:
        raise _too_large(max_bytes)
    if length > 22 * len(block) + 64:
        raise CorruptBatch(f"snappy block of {len(block)} bytes claims to hold {length}")
    return bytes(cramjam.snappy.decompress_raw(block, output_len=length))


def _unsnappy(data: memoryview, max_bytes: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_bytes, max_bytes)
    parts: list[bytes] = []
    room = max_bytes
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < 4:
            raise CorruptBatch("snappy stream ends inside a block length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise CorruptBatch(f"snappy block of {length} bytes where {len(data) - position} are left")
        part = _unsnappy_block(data[position : position + length], room, max_bytes)
        parts.append(part)
        room -= len(part)
        position += length
    return b"".join(parts)


def _unlz4(data: memoryview, max_bytes: int) -> bytes:
    context = lz4.frame.create_decompression_context()
    out, used, eof = lz4.frame.decompress_chunk(context, data, max_length=min(max_bytes, 255 * len(data)) + 1)
    if len(out) > max_bytes:
        raise _too_large(max_bytes)
    if not eof or used != len(data):
        raise CorruptBatch("lz4 frame ends too early or is followed by other bytes")
    part: bytes = out
    return part


def _unzstd(data: memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while part := reader.read(min(room + 1, 1 << 20)):
            room -= len(part)
            if room < 0:
                raise _too_large(max_bytes)
            parts.append(part)
    return b"".join(parts)


_DECOMPRESSORS: Final = {
    int(Codec.GZIP): _gunzip,
    int(Codec.SNAPPY): _unsnappy,
    int(Codec.LZ4): _unlz4,
    int(Codec.ZSTD): _unzstd,
}
