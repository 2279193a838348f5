"""Writes consecutive archived segments anew as one segment: all their rows, or only those that are still wanted.

It works row group by row group: memory does not grow with the segments, and no record passes through Python. Every byte
is compared with the checksums of manifest and index before it is decoded. So damage is an error that names the object,
and never gets into the new segment. Offsets, timestamps, leader epochs and the producer state at the end do not change.
Batches aside are copied as they are. If only some rows stay, the batches aside go, as they go from a compacted log.

The new objects are orphans until a manifest names them (`cold_tier.proposals`). A rewrite needs a thread and a core of
its own. It runs in the caller's process, such as a Spark executor.
"""

import asyncio
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.format.aside import AsideIndex, AsideWriter
from cold_tier.format.encryption import Writing
from cold_tier.format.open import open_segment
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import COMPLETE, ROW_GROUP_BYTES, write_segment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import SegmentEntry
from cold_tier.manifest.replacement import merge_epochs
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.objects.store import Buffer
from cold_tier.upload import upload_segment
from hot_tier.record.batch import iter_headers
from hot_tier.record.column_decoder import Int64s
from hot_tier.record.columns import RecordColumns

T = TypeVar("T")
U = TypeVar("U")
Start = Callable[[Coroutine[Any, Any, T]], "Future[T]"]

CLEANED_MS: Final = "cleaned_ms"
"""In a file's metadata: when a compaction by key first kept its delete markers."""

_AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class Rewrite:
    layout: PartitionLayout
    old: tuple[SegmentEntry, ...]
    zstd_level: int = 3
    cleaned_ms: int | None = None
    master_key: str = ""
    """The master key that encrypts the new segment; empty: it is not encrypted."""


def rewrite(settings: StoreSettings, job: Rewrite, keep: Int64s | None = None) -> SegmentEntry:
    """Uploads the new segment and returns its verified manifest entry.

    `keep` holds offsets in ascending order; with it only their rows stay.
    """
    layout, old = job.layout, job.old
    name = SegmentName(old[0].base_offset, max(segment.name.leader_epoch for segment in old), uuid.uuid4().hex)
    described = _described(job)
    store = open_store(settings)
    with _loop_beside() as start, tempfile.TemporaryDirectory(prefix="tierlog-rewrite-") as scratch:
        path = f"{scratch}/rows.parquet"
        last = start(open_segment(store, layout, old[-1])).result()
        sparse = [segment for segment in old if segment.rows < segment.end_offset - segment.base_offset]
        if keep is not None or all(
            reader.complete for _, reader in _ahead(sparse, lambda segment: start(open_segment(store, layout, segment)))
        ):
            described[COMPLETE] = "true"
        rows = _decoded(store, layout, old, start)
        written = write_segment(
            path,
            _chunks(rows if keep is None else _kept(rows, keep)),
            old[0].base_offset,
            old[-1].end_offset,
            merge_epochs(old),
            last.index.producers,
            described,
            zstd_level=job.zstd_level,
            encryption=Writing(store.keys, job.master_key, layout.rows(name)) if job.master_key else None,
        )
        aside_path = f"{scratch}/aside"
        if keep is None:
            aside = _copied_aside(store, job, layout.aside(name), aside_path, start)
            written = replace(written, index=replace(written.index, aside=aside))
        before = sum(segment.rows for segment in old)
        expected = before if keep is None else len(keep)
        if written.rows != expected:
            raise CorruptObject(
                f"found {written.rows} rows, expected {expected}",
                where=f"{store.url}{layout.rows(old[0].name)}",
                hint="from this object on, rows and manifest do not agree; run `tierlog archive verify` for details",
            )
        log_bytes = sum(segment.log_bytes for segment in old)
        upload = upload_segment(
            store,
            layout,
            name,
            path,
            written,
            aside_path=aside_path,
            log_bytes=log_bytes * written.rows // before if before else log_bytes,
            # With the minimum, rows without a timestamp would expire too early.
            archived_ms=max(segment.archived_ms for segment in old),
        )
        made: SegmentEntry = start(upload).result()
        start(store.close()).result()
    return made


def cleaned_ms(reader: SegmentReader) -> int | None:
    """Returns when a compaction by key first kept this segment's delete markers, or None if none has."""
    found = (reader.metadata.metadata or {}).get(f"tierlog.{CLEANED_MS}".encode())
    return None if found is None else int(found)


def _decoded(
    store: Bucket, layout: PartitionLayout, old: Sequence[SegmentEntry], start: Start[Any]
) -> Iterator[RecordColumns]:
    async def get(piece: tuple[SegmentEntry, SegmentReader, int]) -> Buffer:
        segment, reader, number = piece
        group = reader.index.row_groups[number]
        try:
            return await store.get(layout.rows(segment.name), group.start, group.length)
        except ObjectMissing as error:
            raise CorruptObject("the manifest names this object, but it is not there", where=reader.where) from error

    opened = _ahead(old, lambda segment: start(open_segment(store, layout, segment)))
    pieces = ((segment, reader, number) for segment, reader in opened for number in range(len(reader.index.row_groups)))
    for (_, reader, number), data in _ahead(pieces, lambda piece: start(get(piece))):
        yield reader.decode(number, data)


def _described(job: Rewrite) -> dict[str, str]:
    layout, old = job.layout, job.old
    described = {
        "topic": layout.topic,
        "topic_id": str(layout.topic_id),
        "partition": str(layout.partition),
        "base_offset": str(old[0].base_offset),
        "end_offset": str(old[-1].end_offset),
    }
    return described if job.cleaned_ms is None else {**described, CLEANED_MS: str(job.cleaned_ms)}


def _copied_aside(store: Bucket, job: Rewrite, object_key: str, path: str, start: Start[Any]) -> AsideIndex | None:
    """Writes the batches aside of all old segments to one file."""
    old = job.old
    to = AsideWriter(path, old[0].base_offset, old[-1].end_offset, object_key, store.keys, job.master_key)
    for segment in (segment for segment in old if segment.aside is not None):
        reader = start(open_segment(store, job.layout, segment)).result().aside
        for number, portion in enumerate(reader.directory.portions):
            try:
                data = start(store.get(reader.object_key, portion.start, portion.length)).result()
            except ObjectMissing as error:
                raise CorruptObject(
                    "the manifest names this object, but it is not there", where=reader.where
                ) from error
            batches = reader.portion(number, data)
            for at, header in iter_headers(batches):
                to.add(batches[at : at + header.size], header)
    return to.finish()


def _ahead(items: Iterable[T], start: Callable[[T], "Future[U]"]) -> Iterator[tuple[T, U]]:
    """Yields each item with its result, in order. Meanwhile the work on some of the following items is under way."""
    waiting: deque[tuple[T, Future[U]]] = deque()
    for item in items:
        waiting.append((item, start(item)))
        if len(waiting) > _AHEAD:
            first, under_way = waiting.popleft()
            yield first, under_way.result()
    for item, under_way in waiting:
        yield item, under_way.result()


def _kept(rows: Iterator[RecordColumns], keep: Int64s) -> Iterator[RecordColumns]:
    for columns in rows:
        at = np.searchsorted(keep, columns.offsets)
        mask = np.append(keep, -1)[at] == columns.offsets
        if mask.all():
            yield columns
        elif mask.any():
            chosen = pa.array(mask)
            yield RecordColumns(
                columns.offsets[mask],
                columns.timestamps[mask],
                columns.timestamp_types[mask],
                columns.leader_epochs[mask],
                columns.keys.filter(chosen),
                columns.values.filter(chosen),
                columns.headers.filter(chosen),
            )


def _chunks(rows: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
    """Joins small row groups to row groups of the usual size."""
    waiting: list[RecordColumns] = []
    size = 0
    for columns in rows:
        added = columns.keys.nbytes + columns.values.nbytes + columns.headers.nbytes
        if waiting and size + added > ROW_GROUP_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
        waiting.append(columns)
        size += added
    if waiting:
        yield _joined(waiting)


def _joined(parts: Sequence[RecordColumns]) -> RecordColumns:
    if len(parts) == 1:
        return parts[0]
    return RecordColumns(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.timestamp_types for part in parts]),
        np.concatenate([part.leader_epochs for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        pa.concat_arrays([part.headers for part in parts]),
    )


@contextmanager
def _loop_beside() -> Iterator[Start[Any]]:
    """Runs an event loop in its own thread, so that requests are under way while rows are decoded and written."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop)
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
