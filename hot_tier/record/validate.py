"""What a produced batch must satisfy before the log takes it.

The whole batch is judged: header, CRC, and every record in it, compressed or not. A batch that passes can be
read by every client, archived, and read back the same. At depth "header" the records are not looked at (see
`BatchLimits.depth`).

One thing is mended rather than refused, as Apache Kafka does: a `max_timestamp` that is not the greatest of
the records' timestamps is corrected in place, because the time index rests on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from hot_tier.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MalformedBatch,
    TierlogError,
    UnsupportedBatch,
)
from hot_tier.record.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    ReadBuffer,
    check_crc,
    read_header,
    set_max_timestamp,
)
from hot_tier.record.compression import CODEC_HINT, Codec, decompress

NO_TIMESTAMP: Final = -1
MAX_TIMESTAMP_MS: Final = 2**63 // 1000 - 1  # beyond it the archive's microseconds do not fit 64 bits


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one topic takes."""

    max_bytes: int
    """The whole batch as sent (`max.message.bytes`)."""
    max_decompressed_bytes: int
    """Its records once decompressed."""
    compacted: bool = False
    """Every record needs a key."""
    depth: Literal["full", "header"] = "full"
    """"header" leaves out the walk over the records. What that gives up: a batch with a true CRC around
    records that are no records is stored and acknowledged, and stops every consumer that reaches it; so are
    records without a key on a compacted topic, and decompression bombs."""
    log_append_time: bool = False
    """The broker stamps its own time, so the producer's timestamps are not judged."""
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 2**63 - 1


def validate_produced(batch: memoryview, limits: BatchLimits, now_ms: int) -> BatchHeader:
    """Checks everything about the one batch in `batch` and returns its header.

    Raises CorruptBatch (MalformedBatch), InvalidRecord (InvalidTimestamp), BatchTooLarge or UnsupportedBatch.
    """
    if len(batch) > MAGIC_AT and batch[MAGIC_AT] < MAGIC:
        raise UnsupportedBatch(
            f"message format {batch[MAGIC_AT]}", hint="clients from Apache Kafka 0.11 on send format 2"
        )
    if len(batch) < HEADER_BYTES:
        raise MalformedBatch(f"{len(batch)} bytes where a batch header takes {HEADER_BYTES}")
    header = read_header(batch)
    size = header.batch_length + LENGTH_OVERHEAD
    if size > limits.max_bytes:
        raise BatchTooLarge(f"batch of {size} bytes, the topic takes {limits.max_bytes}", hint="see max.message.bytes")
    if size < len(batch):
        raise InvalidRecord(f"{len(batch) - size} bytes follow the batch", hint="send one batch")
    if size > len(batch):
        raise MalformedBatch(f"{len(batch)} bytes of a batch that claims {size}")
    check_crc(batch, header)
    _check_header(header)

    least, greatest = 0, MAX_TIMESTAMP_MS
    if not limits.log_append_time:
        least = max(least, now_ms - limits.timestamp_before_max_ms)
        greatest = min(greatest, now_ms + limits.timestamp_after_max_ms)
    if header.base_timestamp < NO_TIMESTAMP:
        raise _bad_timestamp(0, header.base_timestamp, least, greatest)
    if limits.depth == "header":
        if header.max_timestamp != NO_TIMESTAMP and not least <= header.max_timestamp <= greatest:
            raise _bad_timestamp(header.record_count - 1, header.max_timestamp, least, greatest)
    else:
        max_timestamp = _walk(batch, header, limits, least, greatest)
        if max_timestamp != header.max_timestamp:
            if batch.readonly:
                raise MalformedBatch(f"the greatest timestamp is {max_timestamp}, not {header.max_timestamp}")
            set_max_timestamp(batch, header, max_timestamp)
            return read_header(batch)
    return header


def _check_header(header: BatchHeader) -> None:
    attributes, count = header.attributes, header.record_count
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise UnsupportedBatch(f"no compression codec {header.codec}", hint=CODEC_HINT)
    if header.base_offset:
        raise InvalidRecord(f"base offset {header.base_offset}", hint="producers send 0; the broker assigns")
    if count < 1 or header.last_offset_delta != count - 1:
        raise MalformedBatch(f"{count} records with a last offset delta of {header.last_offset_delta}")
    if attributes & (CONTROL | DELETE_HORIZON):
        raise InvalidRecord("control batches and delete horizons are the broker's to write")
    if attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("timestamp type LogAppendTime", hint="producers send CreateTime")
    if header.producer_id < 0:
        if attributes & TRANSACTIONAL:
            raise InvalidRecord("a transactional batch without a producer id")
    elif header.producer_epoch < 0 or header.base_sequence < 0:
        raise InvalidRecord(
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )


MAX_NAMED_RECORDS: Final = 10_000
"""Of a batch of which more are wrong the rest goes unnamed: an answer is not to be larger than what was sent."""

_walk_records: Callable[..., tuple[int, int, int]] | None = None
_frombuffer: Callable[..., Any] | None = None
_no_room: Any = None


def _walk(batch: memoryview, header: BatchHeader, limits: BatchLimits, least: int, greatest: int) -> int:
    global _walk_records, _frombuffer, _no_room
    if _walk_records is None or _frombuffer is None:
        # Not at the top: numba takes 0.3 s to import, and whoever only reads headers need not pay it.
        from numpy import frombuffer, zeros

        from hot_tier.record.kernels import walk_records

        _walk_records, _frombuffer, _no_room = walk_records, frombuffer, zeros(0, "i8")
    data: ReadBuffer = batch
    start = HEADER_BYTES
    if header.codec != Codec.NONE:
        try:
            data = decompress(header.codec, batch[HEADER_BYTES:], limits.max_decompressed_bytes)
        except CorruptBatch as error:
            raise MalformedBatch(error.what) from error
        start = 0
    walk = (
        _frombuffer(data, "u1"),
        start,
        header.record_count,
        header.base_timestamp,
        least,
        greatest,
        limits.compacted,
    )
    status, index, timestamp = _walk_records(*walk, _no_room)
    if status:
        raise _fault(walk, status, index, timestamp)
    return timestamp


def _bad_timestamp(index: int, timestamp: int, least: int, greatest: int) -> InvalidTimestamp:
    return InvalidTimestamp(
        f"timestamp {timestamp} is not between {least} and {greatest}",
        where=f"record {index}",
        hint="milliseconds since 1970; see message.timestamp.before.max.ms and .after.max.ms",
    )


def _fault(walk: tuple[Any, ...], status: int, index: int, timestamp: int) -> TierlogError:
    """Returns the error for the record that the walk ended at. Where only the content of records is wrong, the error
    names all of them."""
    from numpy import empty

    from hot_tier.record import kernels

    if status not in kernels.OF_ONE_RECORD:
        return MalformedBatch(kernels.FAULTS[status], where=f"record {index}")
    _, _, count, _, least, greatest, _ = walk
    found = empty(2 * min(count, MAX_NAMED_RECORDS), "i8")
    outcome, named, _ = kernels.walk_records(*walk, found)
    if outcome != kernels.REFUSED:
        return MalformedBatch(kernels.FAULTS[outcome], where=f"record {named}")
    refused = found[: 2 * named].reshape(-1, 2).tolist()
    late = [each for each, why in refused if why == kernels.TIMESTAMP]
    error: InvalidRecord
    if status == kernels.TIMESTAMP:
        error = _bad_timestamp(index, timestamp, least, greatest)
    elif late:
        # As in Kafka, one wrong timestamp decides for which error the batch is refused.
        error = InvalidTimestamp(kernels.FAULTS[kernels.TIMESTAMP], where=f"record {late[0]}")
    else:
        error = InvalidRecord(kernels.FAULTS[status], where=f"record {index}")
    error.records = [(each, kernels.FAULTS[why]) for each, why in refused]
    return error
