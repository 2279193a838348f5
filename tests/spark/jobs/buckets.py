"""Copies of an archived bucket, and ways to make them wrong that only the right check can see."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from cold_tier.format.index import read_index, write_index
from cold_tier.format.read import from_arrow
from cold_tier.format.write import write_segment
from cold_tier.inventory import find_topics
from cold_tier.layout import PartitionLayout, SegmentName, Version
from cold_tier.manifest.codec import write_snapshot
from cold_tier.manifest.model import EpochStart, SegmentEntry, Snapshot
from cold_tier.manifest.reader import load_newest
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.open import StoreSettings, open_store
from hot_tier.record.batch import assign
from hot_tier.record.columns import NewRecord, encode_records, iter_columns
from hot_tier.record.crc import crc32c
from tests.spark.topics import START_MS


def newest(bucket: Path, topic: str, partition: int) -> Snapshot:
    async def load() -> Snapshot:
        store = open_store(StoreSettings(bucket=f"file://{bucket}"))
        [found] = await find_topics(store, topic)
        snapshot = await load_newest(store, found.layouts[partition])
        assert snapshot is not None and len(snapshot.tail) > 2
        return snapshot

    return asyncio.run(load())


def publish(bucket: Path, snapshot: Snapshot, tail: Sequence[SegmentEntry]) -> None:
    """A next manifest with this tail, unchecked."""
    version = Version(snapshot.version.leader_epoch, snapshot.version.sequence + 1)
    changed = replace(snapshot, version=version, tail=tuple(tail))
    (bucket / snapshot.layout.manifest(version)).write_bytes(write_snapshot(changed))


def rewrite(
    bucket: Path, snapshot: Snapshot, segment: SegmentEntry, change: Callable[[pa.Table], pa.Table]
) -> SegmentEntry:
    """The segment with other rows, and everything that counts them or sums them up made to agree."""
    rows, index = bucket / snapshot.layout.rows(segment.name), bucket / snapshot.layout.index(segment.name)
    before = read_index(index.read_bytes(), str(index))
    table = change(pq.read_table(rows, partitioning=None))
    written = write_segment(
        str(rows),
        [from_arrow(table)],
        segment.base_offset,
        segment.end_offset,
        before.epochs,
        before.producers,
        {},
        zstd_level=1,
    )
    data = write_index(written.index)
    index.write_bytes(data)
    return replace(
        segment,
        rows=written.rows,
        min_timestamp_ms=written.min_timestamp_ms,
        max_timestamp_ms=written.max_timestamp_ms,
        rows_bytes=rows.stat().st_size,
        rows_crc32c=written.rows_crc32c,
        index_bytes=len(data),
        index_crc32c=crc32c(data),
    )


def archive_of(folder: Path, topic: str, partitions: Sequence[Sequence[NewRecord]], per_segment: int = 50) -> str:
    """A bucket that holds these records, made without a service; its URL."""

    async def write() -> None:
        store = open_store(StoreSettings(bucket=f"file://{folder}"), create=True)
        topic_id = uuid4()
        for number, records in enumerate(partitions):
            layout = PartitionLayout(topic, topic_id, number)
            writer = await ManifestWriter.open(store, layout, 0, 0, START_MS)
            for base in range(0, len(records), per_segment):
                segment = _archived(folder, layout, base, records[base : base + per_segment])
                await writer.append([segment], START_MS)
        await store.close()

    asyncio.run(write())
    return f"file://{folder}"


def _archived(folder: Path, layout: PartitionLayout, base: int, records: Sequence[NewRecord]) -> SegmentEntry:
    name = SegmentName(base, 0, uuid4().hex)
    rows, index = folder / layout.rows(name), folder / layout.index(name)
    for path in (rows, index):
        path.parent.mkdir(parents=True, exist_ok=True)
    batch = bytearray(encode_records(list(records)))
    assign(batch, base, 0)
    end, epochs = base + len(records), (EpochStart(0, base),)
    written = write_segment(
        str(rows), iter_columns(bytes(batch), chunk_bytes=1 << 20), base, end, epochs, b"", {}, zstd_level=1
    )
    data = write_index(written.index)
    index.write_bytes(data)
    return SegmentEntry(
        name,
        end,
        written.rows,
        written.min_timestamp_ms,
        written.max_timestamp_ms,
        rows.stat().st_size,
        written.rows_crc32c,
        len(data),
        crc32c(data),
        len(batch),
        START_MS,
        epochs,
    )
