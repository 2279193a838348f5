"""Proves that the log file of a segment is what its seal says: every byte of it, or only the heads of its batches.

A CRC covers a batch but for its base offset, length and leader epoch. Those are covered by the digest over all heads
that a seal carries, so a file that passes holds the records that were written, at the offsets where they were written.
A seal of version 1 has no digest: then the length, the end offset and, in a dense segment, the order of the offsets are
all that can be proved.

Needs nothing but a path and values: any thread or process may call it.
"""

import os

from hot_tier.errors import CorruptLog, StorageFailure
from hot_tier.log.index import UNKNOWN, Contents
from hot_tier.log.scan import HEADS_DIFFER, WRONG_HEADER, Walk


class NotWhole(CorruptLog):
    """A segment's file is not what its seal says. What lies before `position` may still be read."""

    def __init__(self, what: str, path: str, position: int) -> None:
        super().__init__(
            what,
            where=f"{path}, byte {position}",
            hint="keep the file; it is not archived, compacted or deleted. Replace it with another replica's copy",
        )
        self.path = path
        self.position = position


def prove_segment(path: str, contents: Contents, *, crcs: bool = True) -> None:
    """Raises NotWhole unless the file holds exactly `contents`. Without `crcs` only the heads of batches are read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotWhole("a segment's file is missing", path, 0) from None
    except OSError as error:
        raise StorageFailure(f"cannot open: {error}", where=path) from error
    try:
        file_bytes = os.fstat(fd).st_size
        prove_start(fd, path, contents, crcs=crcs)
        if file_bytes != contents.log_bytes:
            raise NotWhole(f"{file_bytes} bytes where the seal says {contents.log_bytes}", path, contents.log_bytes)
    finally:
        os.close(fd)


def prove_start(fd: int, path: str, contents: Contents, *, crcs: bool) -> None:
    """As `prove_segment`, for an open file that may have grown since."""
    try:
        file_bytes = os.fstat(fd).st_size
        end = min(contents.log_bytes, file_bytes)
        walk = Walk(fd, 0, end, contents.base_offset, dense=contents.dense, check_from=0 if crcs else None)
        for _ in walk:
            pass
    except OSError as error:
        raise StorageFailure(f"cannot read: {error}", where=path) from error
    if walk.fault is not None or walk.position < end:
        raise NotWhole(walk.fault or WRONG_HEADER, path, walk.position)
    if end < contents.log_bytes:
        raise NotWhole(f"{file_bytes} bytes where the seal says {contents.log_bytes}", path, end)
    if walk.next_offset > contents.end_offset or (contents.dense and walk.next_offset != contents.end_offset):
        raise NotWhole(f"it ends at offset {walk.next_offset}, not at {contents.end_offset}", path, 0)
    if contents.batches != UNKNOWN and (walk.batches, walk.header_digest) != contents[-2:]:
        raise NotWhole(HEADS_DIFFER, path, 0)
