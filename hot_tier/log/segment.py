"""One segment: a run of batches in a `.log` file, with the index that finds an offset or a time in it.

Owns the bytes of its file up to `size`, and its index. `segment_reading` reads and checks them; `damage` is what was
found to be wrong with them. When to roll, what is committed and what may be deleted is decided by `partition_log`.

Invariants:
- `size` is the end of the last whole batch; a failed write is cut off again, so nothing torn lies before it.
- A retired segment (deleted, replaced or cut) is never opened again; readers that hold its file may finish.
"""

import errno
import os
from typing import Final
from weakref import WeakValueDictionary

import structlog

from hot_tier.errors import CorruptBatch, CorruptLog, DiskFull, StorageFailure
from hot_tier.ids import Offset
from hot_tier.log import names
from hot_tier.log.damage import Damage
from hot_tier.log.files import FilePool, OpenFile, read_at, read_cached_at, sync_data, write_at
from hot_tier.log.heads import Heads, KnownHeads
from hot_tier.log.index import NEVER_CLEANED, NO_TIMESTAMP, UNKNOWN, Seal, SparseIndex
from hot_tier.log.index_files import index_contents, note_rows, read_index_files
from hot_tier.log.scan import BASE_OFFSET, LAST_OFFSET, MAX_TIMESTAMP, Walk, digest_of_heads
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.record.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header

_log = structlog.get_logger()

_RECENT: Final = 512
"""Batches of the tail whose positions are remembered exactly, twice over."""

_WORTH_SAVING: Final = 64
"""Entries; fewer are rebuilt by reading a quarter of a megabyte."""

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}


class WouldBlock(Exception):
    """The page cache does not hold what is needed; ask again from a thread."""


class Segment:
    __slots__ = (
        "_file",
        "_older",
        "_pool",
        "_recent",
        "aborts",
        "base_offset",
        "batches",
        "cleaned_ms",
        "created_ms",
        "damage",
        "dense",
        "end_offset",
        "header_digest",
        "held",
        "index",
        "index_interval",
        "known_heads",
        "max_timestamp",
        "max_timestamp_offset",
        "renewals",
        "retired",
        "seal_written",
        "sealed",
        "size",
        "stem",
        "unread",
    )

    def __init__(self, pool: FilePool, directory: str, base_offset: int, index_interval: int) -> None:
        self._pool = pool
        self._file: OpenFile | None = None
        self.base_offset = base_offset
        self.stem = os.path.join(directory, names.offset_file(base_offset, ""))
        self.index_interval = index_interval
        self.size = 0
        self.end_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.created_ms = 0
        """When its first batch was written."""
        self.cleaned_ms = NEVER_CLEANED
        """When compaction first wrote what it holds."""
        self.dense = True
        """Each batch so far starts where the one before it ends."""
        self.batches = 0
        self.header_digest = 0
        """Over the heads of its batches; it counts where `batches` are known."""
        self.aborts = False
        """It is closed, and has an `.aborted` file."""
        self.sealed = False
        """Closed: no batch is added any more."""
        self.seal_written = False
        """Synced, with its index files and the producer state at its end."""
        self.unread = False
        """It is damaged, and which transactions ended in it is not known: nothing of it may be served, also when
        somebody has put a whole file in its place, until the log has learnt it."""
        self.retired = False
        self.renewals = 0
        """How often its file was taken up anew, because it was mended or replaced."""
        self.index: SparseIndex | None = None
        self.held: WeakValueDictionary[tuple[int, int], memoryview] | None = None
        """Checked bytes by position and length, while an answer to somebody holds them."""
        self.damage = Damage(self.path)
        self.known_heads = KnownHeads()
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}

    @classmethod
    def from_seal(cls, pool: FilePool, directory: str, seal: Seal, index_interval: int) -> "Segment":
        segment = cls(pool, directory, seal.base_offset, index_interval)
        segment.size = seal.log_bytes
        segment.end_offset = seal.end_offset
        segment.max_timestamp = seal.max_timestamp
        segment.max_timestamp_offset = seal.max_timestamp_offset
        segment.cleaned_ms = seal.cleaned_ms
        segment.sealed = segment.seal_written = seal.sealed
        segment.dense = seal.dense
        segment.aborts = seal.aborts
        segment.wrote(seal.batches, seal.header_digest)
        return segment

    @classmethod
    def missing(cls, pool: FilePool, directory: str, base_offset: int, end_offset: int) -> "Segment":
        """A stretch of the log whose files are gone: readers must hear of it."""
        segment = cls(pool, directory, base_offset, 0)
        segment.end_offset = end_offset
        segment.sealed = segment.seal_written = True
        segment.batches = UNKNOWN
        segment.damage.mark_unsound("the file is missing")
        return segment

    def wrote(self, batches: int, header_digest: int) -> None:
        """Notes what the segment held when another process left it."""
        self.batches, self.header_digest = batches, header_digest
        self.known_heads.wrote_before(self.heads)

    def found(self, size: int, end_offset: int) -> None:
        """Notes how much the file holds that another process wrote. Its heads have been checked."""
        self.size = size
        self.end_offset = end_offset
        self.known_heads.written = self.heads

    @property
    def path(self) -> str:
        return self.stem + names.LOG

    @property
    def heads(self) -> Heads:
        return Heads(self.size, self.batches, self.header_digest)

    @property
    def lost_tail(self) -> bool:
        """Returns whether bytes are missing at the end: the range goes on, but no bytes are there."""
        positions = self.damage.positions
        return bool(positions) and positions[-1] >= self.size

    def info(self) -> SegmentInfo:
        return SegmentInfo(
            Offset(self.base_offset),
            Offset(self.end_offset),
            self.size,
            self.max_timestamp,
            self.path,
            self.seal_written,
            self.cleaned_ms,
            self.dense,
            self.batches,
            self.header_digest,
            self.damage.what,
            self.renewals,
        )

    # The file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def file(self) -> OpenFile:
        """Returns the open file. Pin it to use it beyond this step of the loop."""
        file = self._file
        if file is None:
            assert not self.retired
            try:
                file = self._file = self._pool.open(self, self.path, os.O_RDONLY if self.sealed else os.O_RDWR)
            except FileNotFoundError as error:
                self.damage.mark(0, "the file is missing")
                raise CorruptLog("a segment's file is missing", where=self.path) from error
            except OSError as error:
                raise StorageFailure(f"cannot open: {error}", where=self.path) from error
        else:
            self._pool.used(self)
        return file

    def create(self) -> None:
        self._file = self._pool.open(self, self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.index = SparseIndex()

    def close(self) -> None:
        self._pool.close(self)

    def file_closed(self) -> None:
        self._file = self.held = None
        if self.sealed:
            # The index is on disk, and sealed segments that nobody reads should cost no memory.
            self.index = None
            self.known_heads.marks = None
            self._recent = {}
            self._older = {}

    def retire(self) -> None:
        self.retired = True
        self.close()

    def unlink(self, *suffixes: str) -> None:
        for suffix in suffixes:
            try:
                os.unlink(self.stem + suffix)
            except FileNotFoundError:
                pass

    # Writing

    def append(self, batch: memoryview | bytearray, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        position = self.size
        size = len(batch)
        fd = self.file().fd
        index = self.index
        if index is None:
            index = self.load_index(fd)
        try:
            written = os.pwrite(fd, batch, position)
            if written != size:
                write_at(fd, memoryview(batch)[written:], position + written)
        except OSError as error:
            self._cut_off(fd, error)
        index.note(base_offset - self.base_offset, position, size, self.max_timestamp, self.index_interval)
        recent = self._recent
        if len(recent) >= _RECENT:
            self._older = recent
            recent = self._recent = {}
        recent[base_offset] = position
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        if base_offset != self.end_offset:
            self.dense = False
        if self.batches != UNKNOWN:
            self.header_digest = digest_of_heads(memoryview(batch), self.header_digest)
            self.batches += 1
        if not self.dense:
            self.known_heads.written = Heads(position + size, self.batches, self.header_digest)
        # The size last: a thread that sees these bytes also sees that their offsets belong to the segment.
        self.end_offset = last_offset + 1
        self.size = position + size

    def _cut_off(self, fd: int, error: OSError) -> None:
        try:
            os.ftruncate(fd, self.size)
        except OSError as worse:
            raise StorageFailure(f"cannot cut off a failed write: {worse}", where=self.path) from error
        if error.errno in _NO_ROOM:
            raise DiskFull("no room left on the disk", where=self.path, hint="free some or add more") from error
        raise StorageFailure(f"cannot write: {error}", where=self.path) from error

    def truncate(self, offset: int) -> None:
        """Cuts off the batch that holds `offset` and all after it. Its seal is gone already."""
        self.unseal()
        fd = self.file().fd
        index = self.load_index(fd)
        position = self.place_of(offset, fd)[0]
        end_offset, latest, latest_offset = self.base_offset, NO_TIMESTAMP, self.base_offset
        walk = Walk(fd, 0, position, self.base_offset)
        for rows in walk:
            end_offset = int(rows[-1, LAST_OFFSET]) + 1
            at = int(rows[:, MAX_TIMESTAMP].argmax())
            if rows[at, MAX_TIMESTAMP] > latest:
                latest, latest_offset = int(rows[at, MAX_TIMESTAMP]), int(rows[at, BASE_OFFSET])
        os.ftruncate(fd, position)
        sync_data(fd)
        self.held = None
        index.truncate(position)
        self.size, self.end_offset = position, end_offset
        self.max_timestamp, self.max_timestamp_offset = latest, latest_offset
        self.batches, self.header_digest = walk.batches, walk.header_digest
        self._recent, self._older = {}, {}
        self.known_heads.cut(self.heads)
        self.damage.cut(position)

    def unseal(self) -> None:
        if self.sealed:
            self.close()
            self.sealed = self.seal_written = self.aborts = False

    def look_again(self) -> None:
        """Looks whether somebody has put a whole copy in the place of a damaged file. Then all of it is proved
        again."""
        if self.lost_tail or self.unread or not self.damage.file_changed():
            return
        self.damage = Damage(self.path)
        self.renewals += 1
        self.close()
        self.index = None
        self.known_heads = KnownHeads()
        self.known_heads.wrote_before(self.heads)
        _log.info("damaged file has changed, it is checked again", file=self.path)

    # The index

    def seal(self, *, sealed: bool) -> Seal:
        return Seal(
            self.base_offset,
            self.end_offset,
            self.size,
            self.max_timestamp,
            self.max_timestamp_offset,
            self.cleaned_ms,
            sealed,
            self.dense,
            self.batches,
            self.header_digest,
            bool(self.damage.positions),
            self.aborts,
        )

    def index_files(self, fd: int, *, sealed: bool) -> list[tuple[str, bytes]]:
        """Returns path and content of both index files, the seal last."""
        index = self.load_index(fd)
        if self.batches == UNKNOWN and not self.damage.positions and fd >= 0:
            self._count_batches(fd)
        return index_contents(self.stem, index, self.seal(sealed=sealed))

    def _count_batches(self, fd: int) -> None:
        """Counts the batches of a segment that a process of an earlier version began."""
        walk = Walk(fd, 0, self.size, self.base_offset, dense=self.dense)
        for _ in walk:
            pass
        if walk.fault:
            self.damage.mark(walk.position, walk.fault)
        else:
            self.batches, self.header_digest = walk.batches, walk.header_digest

    def save_index(self) -> None:
        """Keeps an active segment's index at a clean stop, unless it is quicker to build it again. It is not synced:
        the file is checked against the log when it is loaded."""
        if self.index is not None and len(self.index.offsets) >= _WORTH_SAVING:
            for path, content in self.index_files(-1, sealed=False):
                with open(path, "wb") as file:
                    file.write(content)

    def load_index(self, fd: int) -> SparseIndex:
        """Returns the index, from memory, from its files, or built from the log. May wait for the disk."""
        index = self.index
        if index is None:
            found = read_index_files(self.stem, self.base_offset, self.end_offset, self.size) if self.size else None
            index = self.index = found or self._build_index(fd)
        return index

    def _build_index(self, fd: int) -> SparseIndex:
        index = SparseIndex()
        latest = NO_TIMESTAMP
        walk = Walk(fd, 0, self.size, self.base_offset, dense=self.dense)
        for rows in walk:
            latest = note_rows(index, rows, self.base_offset, latest, self.index_interval)
        if walk.fault:
            self.damage.mark(walk.position, walk.fault)
        return index

    # Finding

    def place_of(self, offset: int, fd: int | None = None) -> tuple[int, int]:
        """Returns where the first batch starts whose last offset is at or above `offset`, and its base offset; `size`
        and `end_offset` if there is none. In a dense segment the base offset does not come from that batch itself.

        Given a pinned `fd`, it may wait for the disk; else it raises WouldBlock instead.
        """
        position = self._recent.get(offset)
        if position is None:
            position = self._older.get(offset)
        if position is not None:
            return position, offset
        if offset >= self.end_offset:
            return self.size, self.end_offset
        index = self.index
        if index is None:
            if fd is None:
                raise WouldBlock
            index = self.load_index(fd)
        found, position = index.floor(offset - self.base_offset)
        expected = found + self.base_offset
        if expected == offset:
            return position, expected
        before = -1
        while position < self.size:
            header = self.header_at(position, fd, expected=expected, before=before)
            if header.last_offset >= offset:
                return position, header.base_offset
            before = position
            position += header.size
            expected = header.last_offset + 1
        return self.size, self.end_offset

    def boundary(self, position: int) -> int:
        """Returns the last position at or before `position` that is known to start a batch, without looking at the
        log."""
        index = self.index
        return index.boundary(position) if index is not None else 0

    def header_at(self, position: int, fd: int | None, *, expected: int, before: int = -1) -> BatchHeader:
        """Returns the header of the batch that starts at offset `expected`, or after it where there are gaps. `before`
        is where the batch before it starts. Without `fd` it raises WouldBlock where it would wait."""
        try:
            if fd is None:
                data = read_cached_at(self.file().fd, position, HEADER_BYTES)
                if data is None:
                    raise WouldBlock
            else:
                data = read_at(fd, position, HEADER_BYTES)
        except OSError as error:
            raise StorageFailure(f"cannot read: {error}", where=self.path) from error
        try:
            header = read_header(data)
            if (
                header.magic == MAGIC
                and header.last_offset_delta >= 0
                and position + header.size <= self.size
                and expected <= header.base_offset
                and header.last_offset < self.end_offset
                and (not self.dense or header.base_offset == expected)
            ):
                return header
        except CorruptBatch:
            pass
        raise self.damage.blame(self.file().fd if fd is None else fd, before, position)
