"""Markers: control batches that say how a producer's transaction in this partition ended. The bytes are Kafka's.

A marker is a batch of one record, without a sequence. It carries the producer's id, and the epoch that the producer has
from then on: that of the transaction or, where each transaction has an epoch of its own, a later one.

    key     version (2) = 0, kind (2): 0 abort, 1 commit
    value   version (2) = 0, epoch of the coordinator that decided (4)

Fields that a later version may add come after these and are not looked at. Control records of other kinds are in no
partition that clients use.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from hot_tier.errors import CorruptBatch
from hot_tier.record.batch import BatchHeader, ReadBuffer
from hot_tier.record.records import NewRecord, decode_records, encode_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0
_MOST_BYTES: Final = 4096
"""The limit for the record, in case somebody compressed it."""


class MarkerKind(IntEnum):
    """How a transaction ended. The numbers are Kafka's."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    kind: MarkerKind
    coordinator_epoch: int


def encode_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int) -> bytearray:
    """Returns the control batch of a marker. Its offset and leader epoch are the log's to give."""
    key = _KEY.pack(_VERSION, marker.kind)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_records(
        [NewRecord(timestamp_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: ReadBuffer, header: BatchHeader, position: int = 0) -> Marker:
    """Returns what the control batch at `position` says. Raises CorruptBatch if it is damaged or no marker."""
    records = decode_records(
        memoryview(batch)[position : position + header.size], max_decompressed_bytes=_MOST_BYTES, skip_control=False
    )
    where = f"control batch at offset {header.base_offset}"
    if not header.is_control or header.producer_id < 0 or header.producer_epoch < 0 or len(records) != 1:
        raise CorruptBatch("it is not the marker of a producer's transaction", where=where)
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
        raise CorruptBatch("key or value of a marker is missing or too short", where=where)
    key_version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if key_version < 0 or value_version < 0 or kind not in (MarkerKind.ABORT, MarkerKind.COMMIT):
        raise CorruptBatch(f"a marker of kind {kind}, versions {key_version} and {value_version}", where=where)
    return Marker(MarkerKind(kind), coordinator_epoch)
