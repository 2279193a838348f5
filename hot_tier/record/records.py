"""A few records as Python values, both ways: for HTTP answers and for the coordinators' own topics.

Written in plain Python on purpose: it loads neither numba nor Arrow, and below some hundred records it is
quicker than filling columns. Whole segments go through `columns`.

A header key is text on the wire. Bytes that are not UTF-8 are refused by `validate`; where they are stored
all the same, they read as U+FFFD.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from hot_tier.errors import CorruptBatch
from hot_tier.record.batch import (
    HEADER_BYTES,
    BatchHeader,
    ReadBuffer,
    check_crc,
    iter_headers,
    write_batch,
)
from hot_tier.record.compression import compress, decompress

# For readers of stored batches, which must read whatever a broker's own limit has let in.
MAX_DECOMPRESSED_BYTES: Final = 1 << 30

LAST_OFFSET: Final = 2**63 - 1
CREATE_TIME: Final = 0
APPEND_TIME: Final = 1

Headers = Sequence[tuple[str | None, bytes | None]]


class Record(NamedTuple):
    """One record with its place in the partition. `timestamp_type`: 0 the producer's time, 1 the broker's."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RecordLike(Protocol):
    """What `encode_records` takes: any object with these four attributes, for example a `Record`."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(
    buffer: ReadBuffer,
    *,
    from_offset: int = 0,
    end_offset: int | None = None,
    max_records: int | None = None,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    skip_control: bool = True,
) -> list[Record]:
    """Returns the records of all whole batches in `buffer` with `from_offset` <= offset < `end_offset`.

    Returns at most `max_records`, and decompresses no batch after the last one needed. `max_decompressed_bytes` is the
    limit of each single batch.
    """
    found: list[Record] = []
    room = LAST_OFFSET if max_records is None else max_records
    for position, header in sound_batches(buffer, from_offset, end_offset, skip_control):
        if len(found) >= room:
            break
        for record in _iter_batch(buffer, position, header, max_decompressed_bytes):
            if record.offset < from_offset or (end_offset is not None and record.offset >= end_offset):
                continue
            found.append(record)
            if len(found) >= room:
                break
    return found


def sound_batches(
    buffer: ReadBuffer, from_offset: int, end_offset: int | None, skip_control: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of each whole batch that may hold offsets of the range.

    Checks each batch for damage before a field of its header may leave it out: a flipped bit must not make a batch look
    like a control batch or an empty one. The CRC does not cover the base offset, so the check of it is that offsets go
    up from batch to batch.
    """
    next_offset = 0
    for position, header in iter_headers(buffer):
        check_crc(buffer, header, position)
        base_offset, batch_end = header.base_offset, header.end_offset
        if not next_offset <= base_offset < batch_end <= LAST_OFFSET or header.record_count < 0:
            raise CorruptBatch(
                f"{header.record_count} records with offsets {base_offset} to {header.last_offset},"
                f" where {next_offset} is next",
                where=f"byte {position}",
            )
        next_offset = batch_end
        if end_offset is not None and base_offset >= end_offset:
            return
        if next_offset <= from_offset or header.record_count == 0 or (skip_control and header.is_control):
            continue
        yield position, header


def encode_records(
    records: Sequence[RecordLike],
    *,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """Returns one batch of `records`. They get the offsets from `base_offset` on; offsets of their own are ignored."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    body = bytearray()
    for delta, record in enumerate(records):
        _append_record(body, record, record.timestamp - base_timestamp, delta)
    return write_batch(
        compress(codec, body),
        codec=codec,
        record_count=len(records),
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )


def _iter_batch(
    buffer: ReadBuffer, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> Iterator[Record]:
    view = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    data = decompress(header.codec, view, max_decompressed_bytes)
    where = f"batch at offset {header.base_offset}"
    append_time = header.log_append_time
    previous_delta = -1
    at = 0
    for _ in range(header.record_count):
        length, start = _read_varint(data, at, len(data))
        at = start + length
        if length < 0 or at > len(data):
            raise CorruptBatch("a record runs past its batch", where=where)
        timestamp_delta, p = _read_varint(data, start + 1, at, 64)
        offset_delta, p = _read_varint(data, p, at)
        if not previous_delta < offset_delta <= header.last_offset_delta:
            raise CorruptBatch("an offset delta is out of order or beyond the batch's last", where=where)
        previous_delta = offset_delta
        key, p = _read_bytes(data, p, at)
        value, p = _read_bytes(data, p, at)
        header_count, p = _read_varint(data, p, at)
        if not 0 <= header_count <= (at - p) // 2:
            raise CorruptBatch("more headers than its bytes can hold", where=where)
        headers: list[tuple[str | None, bytes | None]] = []
        for _ in range(header_count):
            name, p = _read_bytes(data, p, at)
            content, p = _read_bytes(data, p, at)
            headers.append((None if name is None else name.decode("utf-8", "replace"), content))
        if p != at:
            raise CorruptBatch("the record's length is not that of its fields", where=where)
        yield Record(
            header.base_offset + offset_delta,
            header.max_timestamp if append_time else header.base_timestamp + timestamp_delta,
            APPEND_TIME if append_time else CREATE_TIME,
            key,
            value,
            tuple(headers),
        )
    if at != len(data):
        raise CorruptBatch("bytes follow the last record", where=where)


def _read_varint(data: ReadBuffer, position: int, end: int, bits: int = 32) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift >= bits:
            break
    raise CorruptBatch("a varint is longer than its type or its record")


def _read_bytes(data: ReadBuffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position, end)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch("a key, value or header runs past its record")
    return bytes(data[position : position + length]), position + length


def _append_record(body: bytearray, record: RecordLike, timestamp_delta: int, offset_delta: int) -> None:
    fields = bytearray(1)
    _append_varint(fields, timestamp_delta)
    _append_varint(fields, offset_delta)
    _append_bytes(fields, record.key)
    _append_bytes(fields, record.value)
    _append_varint(fields, len(record.headers))
    for name, content in record.headers:
        _append_bytes(fields, None if name is None else name.encode())
        _append_bytes(fields, content)
    _append_varint(body, len(fields))
    body += fields


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        _append_varint(out, len(data))
        out += data


def _append_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
