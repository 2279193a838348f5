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

MAX_DECOMPRESSED_BYTES: Final = 128 << 20

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
    """What `encode_records` takes: anything with these four, `Record` among them."""

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
    """The records of all whole batches in `buffer` with `from_offset` <= offset < `end_offset`.

    At most `max_records` of them, and no batch after the last one needed is decompressed;
    `max_decompressed_bytes` holds for each batch by itself.
    """
    found: list[Record] = []
    for position, header in iter_headers(buffer):
        if header.end_offset <= from_offset or (skip_control and header.is_control):
            continue
        if end_offset is not None and header.base_offset >= end_offset:
            break
        for record in _iter_batch(buffer, position, header, max_decompressed_bytes):
            if record.offset < from_offset or (end_offset is not None and record.offset >= end_offset):
                continue
            if max_records is not None and len(found) >= max_records:
                return found
            found.append(record)
    return found


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
    """One batch of `records`, which take the offsets from `base_offset` on; their own are not looked at."""
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
    check_crc(buffer, header, position)
    view = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    data = decompress(header.codec, view, max_decompressed_bytes)
    timestamp_type = APPEND_TIME if header.log_append_time else CREATE_TIME
    at = 0
    for _ in range(header.record_count):
        length, start = _read_varint(data, at)
        at = start + length
        if length < 0 or at > len(data):
            raise CorruptBatch("record runs past the end of its batch", where=_where(header))
        timestamp_delta, p = _read_varint(data, start + 1)
        offset_delta, p = _read_varint(data, p)
        key, p = _read_bytes(data, p, at)
        value, p = _read_bytes(data, p, at)
        header_count, p = _read_varint(data, p)
        if not 0 <= header_count <= at - p:
            raise CorruptBatch(f"record claims {header_count} headers", where=_where(header))
        headers: list[tuple[str | None, bytes | None]] = []
        for _ in range(header_count):
            name, p = _read_bytes(data, p, at)
            content, p = _read_bytes(data, p, at)
            headers.append((None if name is None else name.decode("utf-8", "replace"), content))
        if p != at:
            raise CorruptBatch("record length does not match its fields", where=_where(header))
        yield Record(
            header.base_offset + offset_delta,
            header.max_timestamp if header.log_append_time else header.base_timestamp + timestamp_delta,
            timestamp_type,
            key,
            value,
            tuple(headers),
        )
    if at != len(data):
        raise CorruptBatch(f"{len(data) - at} bytes follow the last record", where=_where(header))


def _where(header: BatchHeader) -> str:
    return f"batch at offset {header.base_offset}"


def _read_varint(data: ReadBuffer, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise CorruptBatch("varint of more than ten bytes")
    except IndexError:
        raise CorruptBatch("batch ends inside a varint") from None
    return (value >> 1) ^ -(value & 1), position


def _read_bytes(data: ReadBuffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch(f"field of {length} bytes where {max(end - position, 0)} are left")
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
