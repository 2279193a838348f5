"""One segment: a run of batches in a `.log` file, with the index that finds an offset or a time in it.

Owns the bytes of its file up to `size`, its index, and what is known to be damaged. It does not decide when to
roll, what is committed or what may be deleted; `partition_log` does.

Invariants:
- `size` is the end of the last whole batch; a failed write is cut off again, so nothing torn lies before it.
- Every byte is checked against its CRC once per life of the process before it is served: what was appended by
  this process counts as checked, the rest is checked by the first read (`read_checked`). Nothing counts as checked
  any more once a reader has found a wrong CRC (`doubt`).
- What no CRC covers (base offset, length, leader epoch) is checked at every read. Batches must follow each other, in
  the epochs that the log knows; where compaction left gaps, their heads must be what they were (`heads`).
- What another process wrote is proved against the seal, or what a clean stop wrote down, before any of it is served.
- A damaged batch is never served and never stepped over: it ends the bytes before it, and asking for it raises
  CorruptLog.
- A retired segment (deleted, replaced or cut) is never opened again; readers that hold its file may finish.
"""

import errno
import os
from bisect import bisect_left, insort
from time import monotonic
from typing import Final, NamedTuple

import structlog

from hot_tier.errors import CorruptBatch, CorruptLog, DiskFull, StorageFailure
from hot_tier.ids import Offset
from hot_tier.log import names
from hot_tier.log.epochs import History
from hot_tier.log.files import (
    FilePool,
    OpenFile,
    Signature,
    read_at,
    read_cached_at,
    signature,
    sync_data,
    write_at,
)
from hot_tier.log.heads import Marks, extended, read_marked
from hot_tier.log.index import (
    NEVER_CLEANED,
    NO_TIMESTAMP,
    UNKNOWN,
    Contents,
    Seal,
    SparseIndex,
    read_index,
    read_time_index,
    write_index,
    write_time_index,
)
from hot_tier.log.scan import (
    BASE_OFFSET,
    HEADS_DIFFER,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
    WRONG_HEADER,
    Rows,
    Walk,
    crc_is_right,
    digest_of_heads,
    following_bytes,
    sound_bytes,
)
from hot_tier.record.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header

_log = structlog.get_logger()

_RECENT: Final = 512
"""Batches of the tail whose positions are remembered exactly, twice over."""

_WORTH_SAVING: Final = 64
"""Entries; fewer are rebuilt by reading a quarter of a megabyte."""

_LOOK_AGAIN_SECONDS: Final = 1.0

_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}


class WouldBlock(Exception):
    """The page cache does not hold what is needed; ask again from a thread."""


class Heads(NamedTuple):
    """How many batches the first `size` bytes are, and the digest over their heads."""

    size: int
    batches: int
    digest: int


class SegmentInfo(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    size: int
    max_timestamp: int
    path: str
    sealed: bool
    """Closed and synced, with its index files and the producer state at its end."""
    cleaned_ms: int
    """When compaction first wrote it, -1 for never."""
    dense: bool
    batches: int = UNKNOWN
    header_digest: int = 0
    damage: str = ""
    """What is known to be wrong with it; empty for nothing."""

    @property
    def contents(self) -> Contents:
        """What its file must hold (`proof.prove_segment`)."""
        return Contents(self.base_offset, self.end_offset, self.size, self.dense, self.batches, self.header_digest)


class Segment:
    __slots__ = (
        "_checked",
        "_file",
        "_marks",
        "_older",
        "_own_from",
        "_pool",
        "_recent",
        "_seen",
        "_tail",
        "_unproven",
        "base_offset",
        "batches",
        "cleaned_ms",
        "created_ms",
        "damage",
        "damaged",
        "dense",
        "end_offset",
        "header_digest",
        "index",
        "index_interval",
        "max_timestamp",
        "max_timestamp_offset",
        "retired",
        "seal_written",
        "sealed",
        "size",
        "stem",
        "unsound",
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
        self.sealed = False
        """Closed: no batch is added any more."""
        self.seal_written = False
        """Synced, with its index files and the producer state at its end."""
        self.retired = False
        self.index: SparseIndex | None = None
        self.damaged: list[int] = []
        """Positions of damaged batches, rising."""
        self.damage = ""
        """What was found first."""
        self.unsound = False
        """Something in it is wrong, and nobody can say where: nothing of it is served."""
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._checked = (0, 0)
        self._own_from = 0
        self._unproven: Heads | None = None
        """What another process wrote, while nobody has looked whether it is so."""
        self._tail = Heads(0, 0, 0)
        """Where there are gaps: all that is written, in one value for threads."""
        self._marks: Marks | None = None
        self._seen: tuple[float, Signature] = (0.0, ())
        """When its damage was last looked at, and what the file was then."""

    @classmethod
    def from_seal(cls, pool: FilePool, directory: str, seal: Seal, index_interval: int) -> "Segment":
        segment = cls(pool, directory, seal.base_offset, index_interval)
        segment.size = segment._own_from = seal.log_bytes
        segment.end_offset = seal.end_offset
        segment.max_timestamp = seal.max_timestamp
        segment.max_timestamp_offset = seal.max_timestamp_offset
        segment.cleaned_ms = seal.cleaned_ms
        segment.sealed = segment.seal_written = seal.sealed
        segment.dense = seal.dense
        segment.wrote(seal.batches, seal.header_digest)
        return segment

    @classmethod
    def missing(cls, pool: FilePool, directory: str, base_offset: int, end_offset: int) -> "Segment":
        """A stretch of the log whose files are gone: readers must hear of it."""
        segment = cls(pool, directory, base_offset, 0)
        segment.end_offset = end_offset
        segment.sealed = segment.seal_written = True
        segment.batches = UNKNOWN
        segment.mark_unsound("the file is missing")
        return segment

    def wrote(self, batches: int, header_digest: int) -> None:
        """What it held when another process let go of it."""
        self.batches, self.header_digest = batches, header_digest
        self._tail = self._unproven = Heads(self.size, batches, header_digest)

    @property
    def path(self) -> str:
        return self.stem + names.LOG

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
            self.damage,
        )

    # The file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def file(self) -> OpenFile:
        """The open file; pin it to use it beyond this step of the loop."""
        file = self._file
        if file is None:
            assert not self.retired
            try:
                file = self._file = self._pool.open(self, self.path, os.O_RDONLY if self.sealed else os.O_RDWR)
            except FileNotFoundError as error:
                self.mark_damaged(0, "the file is missing")
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
        self._file = None
        if self.sealed:
            # It is on disk, and sealed segments that nobody reads should cost no memory.
            self.index = None
            self._marks = None
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
            self._tail = Heads(position + size, self.batches, self.header_digest)
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
        index.truncate(position)
        self.size, self.end_offset = position, end_offset
        self.max_timestamp, self.max_timestamp_offset = latest, latest_offset
        self.batches, self.header_digest = walk.batches, walk.header_digest
        self._recent, self._older = {}, {}
        self._own_from = min(self._own_from, position)
        self._unproven, self._marks = None, None
        self._tail = Heads(position, self.batches, self.header_digest)
        self._checked = (min(self._checked[0], position), min(self._checked[1], position))
        del self.damaged[bisect_left(self.damaged, position) :]

    def unseal(self) -> None:
        if self.sealed:
            self.close()
            self.sealed = self.seal_written = False

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
            bool(self.damaged),
        )

    def index_files(self, fd: int, *, sealed: bool) -> list[tuple[str, bytes]]:
        """Path and content of both index files, the seal last."""
        index = self.load_index(fd)
        if self.batches == UNKNOWN and not self.damaged and fd >= 0:
            self._count_batches(fd)
        seal = self.seal(sealed=sealed)
        return [
            (self.stem + names.TIME_INDEX, write_time_index(index, seal)),
            (self.stem + names.INDEX, write_index(index, seal)),
        ]

    def _count_batches(self, fd: int) -> None:
        """A process of an earlier version began it."""
        walk = Walk(fd, 0, self.size, self.base_offset, dense=self.dense)
        for _ in walk:
            pass
        if walk.fault:
            self.mark_damaged(walk.position, walk.fault)
        else:
            self.batches, self.header_digest = walk.batches, walk.header_digest

    def save_index(self) -> None:
        """At a clean stop: keeps an active segment's index, unless it is quicker to build it again. Not synced: the
        file is checked against the log when it is loaded."""
        if self.index is not None and len(self.index.offsets) >= _WORTH_SAVING:
            for path, content in self.index_files(-1, sealed=False):
                with open(path, "wb") as file:
                    file.write(content)

    def load_index(self, fd: int) -> SparseIndex:
        """The index, from memory, from its files, or built anew from the log. May wait for the disk."""
        index = self.index
        if index is None:
            index = self.index = self._read_index_files() or self._build_index(fd)
        return index

    def _read_index_files(self) -> SparseIndex | None:
        if not self.size:
            return SparseIndex()
        try:
            with open(self.stem + names.INDEX, "rb") as file:
                found = read_index(file.read())
            if found is None or found[0][:3] != (self.base_offset, self.end_offset, self.size):
                return None
            seal, index = found
            with open(self.stem + names.TIME_INDEX, "rb") as file:
                return index if read_time_index(file.read(), seal, index) else None
        except FileNotFoundError:
            return None

    def _build_index(self, fd: int) -> SparseIndex:
        index = SparseIndex()
        latest = NO_TIMESTAMP
        walk = Walk(fd, 0, self.size, self.base_offset, dense=self.dense)
        for rows in walk:
            latest = note_rows(index, rows, self.base_offset, latest, self.index_interval)
        if walk.fault:
            self.mark_damaged(walk.position, walk.fault)
        return index

    # Finding

    def place_of(self, offset: int, fd: int | None = None) -> tuple[int, int]:
        """Where the first batch starts whose last offset is at or above `offset`, and its base offset; `size` and
        `end_offset` if there is none. In a dense segment the base offset does not come from that batch itself.

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
        """The last position at or before `position` that is known to start a batch, without looking at the log."""
        index = self.index
        return index.boundary(position) if index is not None else 0

    def header_at(self, position: int, fd: int | None, *, expected: int, before: int = -1) -> BatchHeader:
        """The header of the batch that starts at offset `expected`, or after it where there are gaps; `before` is where
        the batch before it starts. As `place_of`, without `fd` it raises WouldBlock where it would wait."""
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
        raise self.blame(self.file().fd if fd is None else fd, before, position)

    # Proving

    def prove(self, fd: int, history: History) -> None:
        """Whether the bytes that another process wrote are what it wrote, as far as heads tell. Waits for the disk."""
        written = self._unproven
        if written is None:
            return
        if self.dense:
            walk = Walk(fd, 0, written.size, self.base_offset, dense=True, history=history)
            for _ in walk:
                pass
        else:
            self._marks, walk = extended(None, fd, self.base_offset, written.size, history)
        if self._unproven is not written:
            return  # It was cut meanwhile.
        if walk.fault is not None:
            self.blame(fd, walk.last if walk.batches else -1, walk.position, walk.fault)
            self.unsound = not self.dense
        elif written.batches != UNKNOWN and (walk.batches, walk.header_digest) != written[1:]:
            self._find_damage(fd, written.size, history)
        elif self.sealed and os.fstat(fd).st_size > self.size:
            self._report(self.size, "the file goes on where its seal says that it ends")
        elif (
            self.sealed
            and self.size == written.size  # This process added nothing to it.
            and self.dense
            and not self.damaged
            and walk.next_offset != self.end_offset
        ):
            self.mark_unsound(f"it ends at offset {walk.next_offset}, not at {self.end_offset}")
        self._unproven = None

    def _find_damage(self, fd: int, size: int, history: History) -> None:
        """The heads are not what was written. A CRC field may be wrong: then its batch is found."""
        walk = Walk(fd, 0, size, self.base_offset, dense=self.dense, check_from=0, history=history)
        for _ in walk:
            pass
        if walk.fault is not None:
            self.mark_damaged(walk.position, walk.fault)
        else:
            self.mark_unsound(HEADS_DIFFER)

    def blame(self, fd: int, before: int, position: int, what: str = WRONG_HEADER) -> CorruptLog:
        """There is no batch at `position`: it is damaged, or the length of the one before it is."""
        if before >= 0 and not crc_is_right(read_at(fd, before, position - before)):
            position, what = before, "its length is wrong"
        self.mark_damaged(position, what)
        return self.corrupt(position)

    # Reading

    def is_checked(self, position: int, length: int) -> bool:
        """Whether these bytes were written by this process, or have been checked by it."""
        start, end = self._checked
        return position >= self._own_from or (start <= position and position + length <= end)

    def found(self, size: int, end_offset: int) -> None:
        """The file holds so much that another process wrote, and its heads have been looked at."""
        self.size = self._own_from = size
        self.end_offset = end_offset
        self._tail = Heads(size, self.batches, self.header_digest)

    def read_cached(self, position: int, length: int, base_offset: int, history: History) -> memoryview | None:
        """The batches there, from the one that starts at `base_offset` up to the first damaged one. None where that
        would wait for the disk, or takes more than a look at their heads."""
        if self.retired or not self.dense or self.unsound or not self.is_checked(position, length):
            return None
        try:
            data = read_cached_at(self.file().fd, position, length)
        except OSError as error:
            raise StorageFailure(f"cannot read: {error}", where=self.path) from error
        if data is None:
            return None
        sound = following_bytes(data, base_offset, self.end_offset, history)
        return data if sound == length else self._until_damage(data, position, sound)

    def read_checked(self, fd: int, position: int, length: int, base_offset: int, history: History) -> memoryview:
        """As `read_cached`, and CRCs are checked where they have not been. Waits for the disk; any thread may call
        it."""
        if self._unproven is not None and position < self._own_from:
            self.prove(fd, history)
        if self.unsound:
            raise self.corrupt(position)
        try:
            data = read_at(fd, position, length) if self.dense else self._read_marked(fd, position, length, history)
        except OSError as error:
            raise StorageFailure(f"cannot read: {error}", where=self.path) from error
        checked = len(data) == length and self.is_checked(position, length)
        if checked and self.dense:
            sound = following_bytes(data, base_offset, self.end_offset, history)
        elif checked:
            sound = length
        else:
            sound = sound_bytes(data, base_offset, self.end_offset, dense=self.dense, history=history)
        if position + length > self.size:
            return data[:sound]  # It was cut meanwhile.
        if sound < length:
            data = self._until_damage(data, position, sound)
        self.checked(position, position + sound)
        return data

    def _read_marked(self, fd: int, position: int, length: int, history: History) -> memoryview:
        marks, written = self._marks, self._tail
        if marks is None or marks.end < position + length:
            marks, walk = extended(marks, fd, self.base_offset, written.size, history)
            digest = written.digest if written.batches != UNKNOWN else walk.header_digest
            if walk.fault is not None or walk.header_digest != digest:
                if self._tail is written:
                    self.mark_unsound(walk.fault or HEADS_DIFFER)
                raise self.corrupt(position)
            self._marks = marks
        data = read_marked(fd, marks, position, length, self.base_offset)
        if data is None:
            self.mark_unsound(HEADS_DIFFER)
            raise self.corrupt(position)
        return data

    def _until_damage(self, data: memoryview, position: int, sound: int) -> memoryview:
        self.mark_damaged(position + sound, "the batch does not match its CRC, or " + WRONG_HEADER)
        if sound == 0:
            raise self.corrupt(position)
        return data[:sound]

    def checked(self, start: int, end: int) -> None:
        """The CRC of every batch from `start` to `end` is right, and they follow each other."""
        known_start, known_end = self._checked
        self._checked = (known_start, max(known_end, end)) if known_start <= start <= known_end else (start, end)

    def doubt(self) -> None:
        """A reader found a wrong CRC: whatever was checked or written before is checked again when it is read."""
        self._checked, self._own_from = (0, 0), self.size

    def mark_damaged(self, position: int, what: str) -> None:
        if position not in self.damaged:
            insort(self.damaged, position)
            self._report(position, what)

    def _report(self, position: int, what: str) -> None:
        self.damage = self.damage or f"byte {position}: {what}"
        self._seen = monotonic(), signature(self.path)
        _log.error("log damaged", file=self.path, position=position, what=what)

    def look_again(self) -> None:
        """Someone may have put a whole copy in the place of a damaged file: then all of it is proved anew."""
        looked, seen = self._seen
        if self.lost_tail or monotonic() - looked < _LOOK_AGAIN_SECONDS:
            return
        now = signature(self.path)
        self._seen = monotonic(), now
        if now == seen:
            return
        self.damaged, self.damage, self.unsound = [], "", False
        self.close()
        self.index = self._marks = None
        self._checked, self._own_from = (0, 0), self.size
        self._unproven = Heads(self.size, self.batches, self.header_digest)
        _log.info("damaged file has changed, it is checked again", file=self.path)

    def mark_unsound(self, what: str) -> None:
        self.unsound = True
        self.mark_damaged(0, what)

    def damage_from(self, position: int) -> int:
        """Where the first damaged batch at or after `position` starts; `size` if none is known."""
        at = bisect_left(self.damaged, position)
        return self.damaged[at] if at < len(self.damaged) else self.size

    @property
    def lost_tail(self) -> bool:
        """What follows the last byte is missing: its range goes on, but no bytes are there."""
        return bool(self.damaged) and self.damaged[-1] >= self.size

    def corrupt(self, position: int) -> CorruptLog:
        return CorruptLog(
            f"the stored bytes from position {position} on are damaged",
            where=self.path,
            hint="restore the file from a replica or from the bucket, or read on after the damaged offsets",
        )


def note_rows(index: SparseIndex, rows: Rows, base_offset: int, latest: int, interval: int) -> int:
    """Indexes walked batches; the greatest timestamp so far comes in and goes out."""
    for row in rows.tolist():
        index.note(row[BASE_OFFSET] - base_offset, row[POSITION], row[SIZE], latest, interval)
        latest = max(latest, row[MAX_TIMESTAMP])
    return latest
