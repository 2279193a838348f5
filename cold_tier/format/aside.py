"""The batches of a segment that are no rows: aborted ones and markers, byte for byte as the log had them. Version 1.

Readers of committed records never need this object, and no reader of Parquet files finds it. A reader of uncommitted
records gets its batches between the rows. docs/formats/aside.md describes it.

    0      4   magic "TLAS"
    4      2   version 1
    6      2   zero
    8      …   portions: whole batches in offset order, of an encrypted segment each portion encrypted for itself
    …      …   directory
    end-8  4   size of the directory
    end-4  4   CRC-32C of everything before

The directory:

    0      8   base offset             of the segment
    8      8   end offset              exclusive
    16     4   number of batches
    20     4   number of portions      each 48 bytes
    24     2   size of the master key's name; 0: not encrypted
    26     2   size of the wrapped data key
    28     …   master key's name, wrapped data key, portions

A portion: first offset, end offset, greatest timestamp of its aborted records, start in the object, length, number of
batches, CRC-32C of its bytes. Integers are big-endian. The index of the segment has a copy of the directory
(`cold_tier.format.index`), so a cold fetch gets a portion with one ranged GET.
"""

import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Final

from cold_tier.errors import CorruptObject
from cold_tier.keys.master import MasterKeys
from cold_tier.manifest.model import NO_TIMESTAMP, Aside
from cold_tier.objects.store import Buffer
from hot_tier.errors import CorruptBatch
from hot_tier.ids import Offset
from hot_tier.record.batch import BatchHeader, check_crc, iter_headers
from hot_tier.record.crc import crc32c

PORTION_BYTES: Final = 4 << 20
PORTION_BATCHES: Final = 10_000
"""A reader works on a portion as a whole. Markers are small, so that many of them would fit into its bytes."""

_HEAD: Final = struct.Struct(">4sHH")
_TAIL: Final = struct.Struct(">II")
_DIRECTORY: Final = struct.Struct(">qqIIHH")
_PORTION: Final = struct.Struct(">qqqqqII")
_BOUND: Final = struct.Struct(">IqqqI")
_MAGIC: Final = b"TLAS"
_VERSION: Final = 1
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_RESTORE: Final = "restore this object from a copy; `tierlog archive verify` lists everything that is damaged"


@dataclass(frozen=True, slots=True)
class Portion:
    first_offset: Offset
    end_offset: Offset
    max_timestamp_ms: int
    start: int
    length: int
    batches: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Directory:
    """Where the batches are. Each portion has at least one. Offsets without a batch are rows, or nothing."""

    base_offset: Offset
    end_offset: Offset
    portions: tuple[Portion, ...]
    master_key: str = ""
    wrapped_key: str = ""

    @property
    def batches(self) -> int:
        return sum(portion.batches for portion in self.portions)

    @property
    def max_timestamp_ms(self) -> int:
        return max(portion.max_timestamp_ms for portion in self.portions)

    @property
    def object_bytes(self) -> int:
        return self.portions[-1].start + self.portions[-1].length + len(write_directory(self)) + _TAIL.size


@dataclass(frozen=True, slots=True)
class AsideIndex:
    """What the index of a segment says about the object."""

    crc32c: int
    directory: Directory

    @property
    def entry(self) -> Aside:
        directory = self.directory
        return Aside(directory.object_bytes, self.crc32c, directory.batches, directory.max_timestamp_ms)


class DataKey:
    """The key of one object. It encrypts each portion, bound to the object's name and to what the directory says."""

    def __init__(self, key: bytes, object_key: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)
        self._object_key = object_key.encode()

    def seal(self, data: Buffer, portion: Portion, number: int) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, self._bound(portion, number))

    def open(self, data: Buffer, portion: Portion, number: int) -> bytes:
        """Raises ValueError if these are not the bytes that were sealed, or not in this place."""
        from cryptography.exceptions import InvalidTag

        view = memoryview(data)
        try:
            return self._cipher.decrypt(view[:_NONCE_BYTES], view[_NONCE_BYTES:], self._bound(portion, number))
        except InvalidTag as error:
            raise ValueError("they are not the bytes that were encrypted here") from error

    def _bound(self, portion: Portion, number: int) -> bytes:
        said = (number, portion.first_offset, portion.end_offset, portion.max_timestamp_ms, portion.batches)
        return _BOUND.pack(*said) + self._object_key


class AsideWriter:
    """Writes the object to a local file, portion by portion. Without a batch it makes no file."""

    def __init__(
        self,
        path: str,
        base_offset: Offset,
        end_offset: Offset,
        object_key: str,
        keys: MasterKeys | None = None,
        master_key: str = "",
    ) -> None:
        """`keys` and `master_key` encrypt it."""
        self.path = path
        self.records = 0
        self._range = base_offset, end_offset
        self._object_key = object_key
        self._keys, self._master_key, self._wrapped = keys, master_key, ""
        self._data_key: DataKey | None = None
        self._file: BinaryIO | None = None
        self._written = self._crc = 0
        self._portions: list[Portion] = []
        self._waiting = bytearray()
        self._headers: list[BatchHeader] = []

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        """Adds a whole batch whose checksum is known to be right. Batches come in offset order."""
        self._waiting += batch
        self._headers.append(header)
        self.records += header.record_count
        if len(self._waiting) >= PORTION_BYTES or len(self._headers) >= PORTION_BATCHES:
            self._close_portion()

    def finish(self) -> AsideIndex | None:
        """Completes the file. Returns None if nothing was added."""
        if self._headers:
            self._close_portion()
        if self._file is None:
            return None
        written = Directory(*self._range, tuple(self._portions), self._master_key, self._wrapped)
        directory = write_directory(written)
        self._write(directory)
        self._write(len(directory).to_bytes(4, "big"))
        self._write(self._crc.to_bytes(4, "big"))
        self.close()
        return AsideIndex(self._crc, written)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _close_portion(self) -> None:
        if self._file is None:
            self._begin()
        headers = self._headers
        first, end = Offset(headers[0].base_offset), Offset(headers[-1].end_offset)
        newest = max((header.max_timestamp for header in headers if not header.is_control), default=NO_TIMESTAMP)
        portion = Portion(first, end, newest, self._written, 0, len(headers), 0)
        data: Buffer = self._waiting
        if self._data_key is not None:
            data = self._data_key.seal(data, portion, len(self._portions))
        self._portions.append(Portion(first, end, newest, self._written, len(data), len(headers), crc32c(data)))
        self._write(data)
        self._waiting, self._headers = bytearray(), []

    def _begin(self) -> None:
        self._file = open(self.path, "wb")  # noqa: SIM115
        self._write(_HEAD.pack(_MAGIC, _VERSION, 0))
        if self._master_key:
            assert self._keys is not None
            key = os.urandom(_KEY_BYTES)
            self._wrapped = self._keys.wrap(key, self._master_key)
            self._data_key = DataKey(key, self._object_key)

    def _write(self, data: Buffer) -> None:
        assert self._file is not None
        self._file.write(data)
        self._written += len(data)
        self._crc = crc32c(data, self._crc)


def write_directory(directory: Directory) -> bytes:
    name, wrapped = directory.master_key.encode(), directory.wrapped_key.encode()
    portions = directory.portions
    head = _DIRECTORY.pack(
        directory.base_offset, directory.end_offset, directory.batches, len(portions), len(name), len(wrapped)
    )
    packed = [
        _PORTION.pack(
            each.first_offset,
            each.end_offset,
            each.max_timestamp_ms,
            each.start,
            each.length,
            each.batches,
            each.crc32c,
        )
        for each in portions
    ]
    return b"".join([head, name, wrapped, *packed])


def read_directory(data: Buffer, where: str) -> Directory:
    view = memoryview(data)
    try:
        base, end, batches, count, name, wrapped = _DIRECTORY.unpack_from(view)
        names_end = _DIRECTORY.size + name
        keys_end = names_end + wrapped
        if not count or len(view) != keys_end + count * _PORTION.size:
            raise ValueError("its lengths do not fit")
        portions = tuple(
            Portion(Offset(fields[0]), Offset(fields[1]), *fields[2:])
            for fields in _PORTION.iter_unpack(view[keys_end:])
        )
        found = Directory(
            Offset(base),
            Offset(end),
            portions,
            str(view[_DIRECTORY.size : names_end], "utf-8"),
            str(view[names_end:keys_end], "ascii"),
        )
        if found.batches != batches or bool(name) != bool(wrapped):
            raise ValueError("its counts do not fit")
        for before, after in pairwise(
            (Portion(found.base_offset, found.base_offset, 0, 0, _HEAD.size, 1, 0), *portions)
        ):
            if after.start != before.start + before.length or after.length <= 0 or not after.batches:
                raise ValueError(f"the portion at byte {after.start} is not where the one before it ends")
            if not before.end_offset <= after.first_offset < after.end_offset <= end:
                raise ValueError(f"offsets {after.first_offset} to {after.end_offset} are out of order")
    except (struct.error, ValueError) as error:
        raise CorruptObject(f"the directory of batches aside cannot be read: {error}", where=where) from error
    return found


@dataclass(slots=True)
class AsideReader:
    """Opens portions of one object. Safe to share between threads."""

    directory: Directory
    object_key: str
    where: str
    keys: MasterKeys | None = None
    _data_key: DataKey | None = None

    def portion(self, number: int, data: Buffer) -> memoryview:
        """Returns the batches of a portion, whose stored bytes are `data`. Every batch is proven by its own checksum.

        Raises CorruptObject, or KeyMissing without the key.
        """
        portion = self.directory.portions[number]
        if len(data) != portion.length or crc32c(data) != portion.crc32c:
            raise self._damaged(number, "its checksum does not match")
        try:
            key = self.unlock()
            batches = memoryview(data if key is None else key.open(data, portion, number)).toreadonly()
            self._prove(batches, portion)
        except (ValueError, CorruptBatch) as error:
            raise self._damaged(number, str(error)) from error
        return batches

    def unlock(self) -> DataKey | None:
        """Returns the key of an encrypted object. The first call may wait for the service that holds the master key."""
        directory = self.directory
        if directory.master_key and self._data_key is None:
            keys = self.keys or MasterKeys()
            key = keys.unwrap(directory.wrapped_key, directory.master_key)
            if len(key) != _KEY_BYTES:
                raise self._damaged(0, f"its data key has {len(key)} bytes")
            self._data_key = DataKey(key, self.object_key)
        return self._data_key

    def _prove(self, batches: memoryview, portion: Portion) -> None:
        count = position = 0
        following: int = portion.first_offset
        for position, header in iter_headers(batches):
            check_crc(batches, header, position)
            if not following <= header.base_offset < header.end_offset <= portion.end_offset:
                raise ValueError(f"the batch at offset {header.base_offset} is out of order")
            count += 1
            following = header.end_offset
            position += header.size
        if (count, position, following) != (portion.batches, len(batches), portion.end_offset):
            raise ValueError(f"it holds {count} batches up to offset {following}, not those that are named")

    def _damaged(self, number: int, what: str) -> CorruptObject:
        portion = self.directory.portions[number]
        return CorruptObject(
            f"batches aside from offset {portion.first_offset} to {portion.end_offset} are damaged: {what}",
            where=self.where,
            hint=_RESTORE,
        )


def read_aside(data: Buffer, where: str) -> AsideIndex:
    """Reads the directory from the object itself, whole. The broker takes it from the index."""
    view = memoryview(data)
    if len(view) < _HEAD.size + _TAIL.size or _TAIL.unpack(view[-_TAIL.size :])[1] != crc32c(view[:-4]):
        raise CorruptObject("its checksum does not match", where=where, hint=_RESTORE)
    magic, version, zero = _HEAD.unpack_from(view)
    size = _TAIL.unpack(view[-_TAIL.size :])[0]
    start = len(view) - _TAIL.size - size
    if magic != _MAGIC or version != _VERSION or zero or start < _HEAD.size:
        raise CorruptObject(f"no batches aside of version {_VERSION}", where=where, hint="upgrade, or restore it")
    directory = read_directory(view[start : len(view) - _TAIL.size], where)
    if directory.portions[-1].start + directory.portions[-1].length != start:
        raise CorruptObject("bytes lie between its last portion and its directory", where=where, hint=_RESTORE)
    return AsideIndex(crc32c(view), directory)
