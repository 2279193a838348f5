"""The header of a RecordBatch v2: reading it, assigning offset and epoch in place, walking a run of batches.

    position  0        8      12      16     17     21          23                27
              ┌────────┬───────┬───────┬──────┬──────┬───────────┬─────────────────┬──
              │ base   │ batch │ leader│ magic│ crc  │ attributes│ last offset     │
              │ offset │ length│ epoch │ = 2  │      │           │ delta           │
              └────────┴───────┴───────┴──────┴──────┴───────────┴─────────────────┴──
             27           35          43         51         53         57       61
            ──┬───────────┬───────────┬──────────┬──────────┬──────────┬────────┬────────────
              │ base      │ max       │ producer │ producer │ base     │ record │ records … to
              │ timestamp │ timestamp │ id       │ epoch    │ sequence │ count  │ batch length + 12
            ──┴───────────┴───────────┴──────────┴──────────┴──────────┴────────┴────────────

The CRC covers everything from `attributes` on, so `assign` does not change it. This module does not look at records:
`validate`, `records` and `columns` do. Positions are bytes into the given buffer, so a caller reads a header without
slicing.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypedDict, Unpack

from hot_tier.errors import CorruptBatch
from hot_tier.ids import TopicPartition
from hot_tier.record.crc import crc32c

HEADER_BYTES: Final = 61
LENGTH_OVERHEAD: Final = 12  # base offset and the length field itself: batch_length counts what follows
MAGIC: Final = 2

CODEC_MASK: Final = 0b0000_0111
LOG_APPEND_TIME: Final = 0b0000_1000
TRANSACTIONAL: Final = 0b0001_0000
CONTROL: Final = 0b0010_0000
DELETE_HORIZON: Final = 0b0100_0000  # set by compaction: base_timestamp is then the delete horizon

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PREFIX: Final = Struct(">qi")  # base offset, batch length
_EPOCH: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_TIMESTAMP: Final = Struct(">q")
_CRC: Final = Struct(">I")
_BASE_OFFSET: Final = Struct(">q")

_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16  # in the older formats too
_CRC_AT: Final = 17
CRC_COVERED_FROM: Final = 21
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35

ReadBuffer = bytes | bytearray | memoryview
WriteBuffer = bytearray | memoryview


class BatchHeader(NamedTuple):
    """The thirteen fields as they stand on the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Returns the bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 mean nothing yet."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Every record's timestamp is `max_timestamp`; else each record carries its own."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; it wraps to 0 after 2^31 - 1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF


def read_header(buffer: ReadBuffer, position: int = 0) -> BatchHeader:
    """Returns the header at `position`. Its lengths are plausible; nothing else is checked."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatch(
            f"{max(len(buffer) - position, 0)} bytes where a batch header takes {HEADER_BYTES}",
            where=f"byte {position}",
        )
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.batch_length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise CorruptBatch(f"batch length {header.batch_length} is less than a header takes", where=f"byte {position}")
    return header


def assign(buffer: WriteBuffer, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Writes base offset and leader epoch, the two fields that the broker decides. The CRC stays true."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: WriteBuffer, now_ms: int, position: int = 0) -> None:
    """Makes `now_ms` the timestamp of every record in the batch, as `message.timestamp.type=LogAppendTime` asks."""
    header = read_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    set_max_timestamp(buffer, header, now_ms, position)


def set_max_timestamp(buffer: WriteBuffer, header: BatchHeader, max_timestamp: int, position: int = 0) -> None:
    """Writes the batch's greatest timestamp, and the CRC that follows from it."""
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    _write_crc(buffer, position, header.size)


def check_crc(buffer: ReadBuffer, header: BatchHeader, position: int = 0) -> None:
    """Raises CorruptBatch unless the whole batch is there, of format 2, and its CRC is the header's."""
    end = position + header.batch_length + LENGTH_OVERHEAD
    if header.magic != MAGIC:
        raise CorruptBatch(f"message format {header.magic}", where=f"byte {position}")
    if end > len(buffer):
        raise CorruptBatch(
            f"{len(buffer) - position} bytes of a batch that claims {header.size}", where=f"byte {position}"
        )
    checksum = crc32c(memoryview(buffer)[position + CRC_COVERED_FROM : end])
    if checksum != header.crc:
        raise CorruptBatch(
            f"CRC-32C is {checksum:#010x}, the header says {header.crc:#010x}",
            where=f"batch at offset {header.base_offset}",
        )


def check_follows(
    header: BatchHeader, log: TopicPartition, end_offset: int, gaps_below: int, epoch: int, leader_epoch: int
) -> None:
    """Raises CorruptBatch unless the batch goes on where the log ends, or by `gaps_below` where compaction left gaps.
    Its epoch is the log's or a later one, up to its leader's."""
    if not end_offset <= header.base_offset <= max(end_offset, gaps_below) or header.last_offset_delta < 0:
        raise CorruptBatch(
            f"the leader sent offset {header.base_offset}, the log goes on at {end_offset}", where=str(log)
        )
    if not epoch <= header.leader_epoch <= leader_epoch:
        raise CorruptBatch(
            f"the leader of epoch {leader_epoch} sent a batch of epoch {header.leader_epoch}, the log is in {epoch}",
            where=str(log),
        )


def iter_headers(buffer: ReadBuffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of each whole batch. A partial batch at the end is left out.

    A length that is too small for a header raises CorruptBatch, because nobody knows where the next batch begins.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        size = header.batch_length + LENGTH_OVERHEAD
        if size > end - position:
            return
        yield position, header
        position += size


def whole_batches_bytes(buffer: ReadBuffer) -> int:
    """How many bytes at the front of `buffer` are whole batches."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        length: int = _PREFIX.unpack_from(buffer, position)[1]
        if length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptBatch(f"batch length {length} is less than a header takes", where=f"byte {position}")
        if length + LENGTH_OVERHEAD > end - position:
            break
        position += length + LENGTH_OVERHEAD
    return position


class HeaderFields(TypedDict, total=False):
    """The fields of a new header. A field that is not given is 0 for counts, -1 for ids, False for flags."""

    base_offset: int
    leader_epoch: int
    codec: int
    log_append_time: bool
    transactional: bool
    control: bool
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def write_header(buffer: WriteBuffer, batch_bytes: int, position: int = 0, **fields: Unpack[HeaderFields]) -> None:
    """Writes header and CRC of a batch of `batch_bytes` at `position`. The records must be there already."""
    attributes = fields.get("codec", 0)
    if fields.get("log_append_time"):
        attributes |= LOG_APPEND_TIME
    if fields.get("transactional"):
        attributes |= TRANSACTIONAL
    if fields.get("control"):
        attributes |= CONTROL
    _HEADER.pack_into(
        buffer,
        position,
        fields.get("base_offset", 0),
        batch_bytes - LENGTH_OVERHEAD,
        fields.get("leader_epoch", -1),
        MAGIC,
        0,
        attributes,
        fields.get("last_offset_delta", 0),
        fields.get("base_timestamp", 0),
        fields.get("max_timestamp", 0),
        fields.get("producer_id", -1),
        fields.get("producer_epoch", -1),
        fields.get("base_sequence", -1),
        fields.get("record_count", 0),
    )
    _write_crc(buffer, position, batch_bytes)


def write_batch(records: ReadBuffer, **fields: Unpack[HeaderFields]) -> bytearray:
    """Returns a whole batch around `records`, which are already encoded and compressed."""
    batch = bytearray(HEADER_BYTES)
    batch += records
    write_header(batch, len(batch), **fields)
    return batch


def _write_crc(buffer: WriteBuffer, position: int, batch_bytes: int) -> None:
    with memoryview(buffer) as view:
        checksum = crc32c(view[position + CRC_COVERED_FROM : position + batch_bytes])
    _CRC.pack_into(buffer, position + _CRC_AT, checksum)
