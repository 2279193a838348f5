"""Reads the batches of a sealed segment, each once into its own memory, and proves them there. Rows come from these
bytes.

The kernel may read a mapped file twice and get different bytes, and reading a mapped file after its cut end kills the
process. So the file is read part by part, and exactly the bytes that were proven are converted.
"""

import os
from collections.abc import Iterator
from typing import Final

from hot_tier.errors import CorruptBatch, CorruptLog
from hot_tier.log.files import read_at
from hot_tier.log.index import UNKNOWN, Contents
from hot_tier.log.scan import HEADS_DIFFER, digest_of_heads
from hot_tier.record.batch import HEADER_BYTES, BatchHeader, check_crc, iter_headers, read_header

_READ_BYTES: Final = 4 << 20

REPLACE_IT: Final = "put an undamaged copy of the file in its place; until then it is not archived"


def proven_batches(path: str, contents: Contents) -> Iterator[tuple[memoryview, int, BatchHeader]]:
    """Yields each batch as the buffer that holds it, its position there, and its header.

    Raises CorruptLog if the file is not what its seal says: at the batch that shows it, or at the latest after all
    batches.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _damaged(path, "the file is missing") from error
    try:
        size = os.fstat(fd).st_size
        if size != contents.log_bytes:
            raise _damaged(path, f"the file has {size} bytes, its seal says {contents.log_bytes}")
        position, next_offset = 0, contents.base_offset
        batches = digest = 0
        while position < size:
            data = _whole_batch(fd, position, size, path)
            start = position
            for at, header in iter_headers(data):
                check_crc(data, header, at)
                gap = header.base_offset - next_offset
                if gap < 0 or (gap and contents.dense) or header.last_offset_delta < 0:
                    raise _damaged(
                        path, f"found offset {header.base_offset} at byte {position}, expected {next_offset}"
                    )
                digest = digest_of_heads(data[at:], digest)
                batches += 1
                yield data, at, header
                next_offset = header.end_offset
                position = start + at + header.size
            if position == start:
                raise _damaged(path, f"there is no complete batch at byte {position}")
        if next_offset > contents.end_offset or (next_offset < contents.end_offset and contents.dense):
            raise _damaged(path, f"the batches end at offset {next_offset}, the seal says {contents.end_offset}")
        if contents.batches != UNKNOWN and (batches, digest) != (contents.batches, contents.header_digest):
            raise _damaged(path, HEADS_DIFFER)
    except CorruptBatch as error:
        raise _damaged(path, f"{error.where}: {error.what}") from error
    finally:
        os.close(fd)


def _whole_batch(fd: int, position: int, size: int, path: str) -> memoryview:
    """Returns bytes that hold at least the complete batch that begins at `position`."""
    data = read_at(fd, position, min(_READ_BYTES, size - position))
    if len(data) < HEADER_BYTES:
        raise _damaged(path, f"only {len(data)} bytes are left at byte {position}, a batch header takes {HEADER_BYTES}")
    batch_bytes = read_header(data).size
    if batch_bytes > size - position:
        raise _damaged(
            path, f"the batch at byte {position} has {batch_bytes} bytes, but only {size - position} are left"
        )
    return data if batch_bytes <= len(data) else read_at(fd, position, batch_bytes)


def _damaged(path: str, what: str) -> CorruptLog:
    return CorruptLog(what, where=path, hint=REPLACE_IT)
