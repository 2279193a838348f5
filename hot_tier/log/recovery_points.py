"""How far each log has been synced, kept where it survives a killed process for certain and a power loss mostly.

One slot of 64 bytes per partition, rewritten in place after every sync: one write to the page cache, which costs
about a microsecond. The file itself is synced every `checkpoint_ms`, so after a power loss a slot may be older
than the truth, never newer: the slot of a partition that was removed is gone for certain before the partition, if it
comes back, counts anything as synced. A slot that does not match its CRC counts as missing, and the log is then
checked from its first unsealed segment on. `docs/formats/recovery-points.md`.
"""

import os
import threading
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from hot_tier.ids import TopicId
from hot_tier.log.files import sync_data, sync_directory, write_at
from hot_tier.log.index import UNKNOWN
from hot_tier.record.crc import crc32c

_log = structlog.get_logger()

SLOT_BYTES: Final = 64
_HEAD: Final = b"TLRP\x01\x00".ljust(SLOT_BYTES, b"\x00")  # magic, version
_SLOT: Final = Struct(
    "<"
    "16s"  # topic id
    "i"  # partition
    "q"  # offset
    "q"  # base offset of its segment
    "q"  # position in it
    "i"  # batches of that segment up to there; 0 in slots of 0.1.0, which did not count them
    "I"  # CRC-32C of their heads
)
_CRC: Final = Struct("<I")
_EMPTY: Final = bytes(SLOT_BYTES)


class RecoveryPoint(NamedTuple):
    """All of the log below `offset` is on the disk. `offset` is at `position` in the segment of `segment_base`, after
    `batches` batches with these heads."""

    offset: int
    segment_base: int
    position: int
    batches: int = UNKNOWN
    header_digest: int = 0


Key = tuple[TopicId, int]


class RecoveryPoints:
    def __init__(self, path: str) -> None:
        is_new = not os.path.exists(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._slots: dict[Key, int] = {}
        self._free: list[int] = []
        self._unsynced = False
        self._removed = False
        self._syncing = threading.Lock()
        self.loaded: dict[Key, RecoveryPoint] = {}
        """What the file said when it was opened."""
        with open(path, "rb") as file:
            content = file.read()
        if content[:SLOT_BYTES] != _HEAD:
            os.ftruncate(self._fd, 0)
            write_at(self._fd, memoryview(_HEAD), 0)
            content = _HEAD
        self._end = SLOT_BYTES
        for at in range(SLOT_BYTES, len(content) - SLOT_BYTES + 1, SLOT_BYTES):
            self._load(content[at : at + SLOT_BYTES], at)
            self._end = at + SLOT_BYTES
        if is_new:
            sync_data(self._fd)
            sync_directory(os.path.dirname(path))

    def _load(self, slot: bytes, at: int) -> None:
        topic_id, partition, offset, segment_base, position, batches, digest = _SLOT.unpack_from(slot)
        key = UUID(bytes=topic_id), partition
        if slot == _EMPTY or _CRC.unpack_from(slot, SLOT_BYTES - 4)[0] != crc32c(slot[: SLOT_BYTES - 4]):
            self._free.append(at)
        else:
            self._slots[key] = at
            counted = batches or not position
            self.loaded[key] = RecoveryPoint(offset, segment_base, position, batches if counted else UNKNOWN, digest)

    def put(self, key: Key, point: RecoveryPoint) -> None:
        at = self._slots.get(key)
        if at is None:
            if self._free:
                at = self._free.pop()
            else:
                at = self._end
                self._end += SLOT_BYTES
            self._slots[key] = at
        body = _SLOT.pack(key[0].bytes, key[1], *point).ljust(SLOT_BYTES - 4, b"\x00")
        try:
            os.pwrite(self._fd, body + _CRC.pack(crc32c(body)), at)
        except OSError as error:
            # The slot keeps an older value: after a crash more is checked, and nothing is lost.
            _log.warning("recovery point not written", error=str(error))
        self._unsynced = True

    def remove(self, key: Key) -> None:
        at = self._slots.pop(key, None)
        if at is not None:
            os.pwrite(self._fd, _EMPTY, at)
            self._free.append(at)
            self._unsynced = self._removed = True

    def remove_topic(self, topic_id: TopicId) -> None:
        for key in [key for key in self._slots if key[0] == topic_id]:
            self.remove(key)

    def sync(self) -> None:
        """Syncs everything that was put or removed until now. Any thread may call it."""
        with self._syncing:
            if self._unsynced:
                self._unsynced = self._removed = False
                sync_data(self._fd)

    def sync_removals(self) -> None:
        with self._syncing:
            removed = self._removed
        if removed:
            self.sync()

    def close(self) -> None:
        self.sync()
        os.close(self._fd)
