"""Writes transactions straight to a partition's leader, without a coordinator."""

from hot_tier.log.partition_log import Appended
from hot_tier.record.batch import read_header
from hot_tier.record.control import Marker, MarkerKind
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.led_partition import LedPartition


def write(
    partition: LedPartition,
    producer: int,
    *values: bytes,
    now_ms: int,
    epoch: int = 0,
    transactional: bool = True,
    acks: int = -1,
) -> Appended:
    """One batch: it goes on with the producer's sequence, and begins a transaction if none is open."""
    known = {each.producer_id: each for each in partition.describe_producers()}.get(producer)
    sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
    batch = encode_records(
        [NewRecord(now_ms, None, value) for value in values],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    header = read_header(batch)
    verification = partition.begin_verification(header, f"id-{producer}") if transactional else None
    return partition.append(batch, header, now_ms, acks, verification)


def end(
    partition: LedPartition, producer: int, kind: MarkerKind, *, now_ms: int, epoch: int = 0, version: int = 1
) -> Appended:
    return partition.append_marker(producer, epoch, Marker(kind, 0), now_ms, transaction_version=version)
