"""Archived segments that follow one another, written anew as one: all their rows, or those that are still wanted.

Row group by row group: memory does not grow with the segments, and no record passes through Python. Every byte is
compared with the checksums of manifest and index before it is decoded, so damage is an error that names the object and
is never carried over. Offsets, timestamps, leader epochs and the producer state at the end stay what they were.

The new objects are orphans until a manifest names them (`cold_tier.proposals`). Needs a thread and a core for itself;
runs where the caller is, such as in a Spark executor.
"""

import asyncio
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.format.open import open_segment
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import COMPLETE, ROW_GROUP_BYTES, write_segment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import Segment
from cold_tier.manifest.replacement import merge_epochs
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.objects.retrying import RetryingStore
from cold_tier.objects.store import Buffer
from cold_tier.upload import upload_segment
from hot_tier.record.column_decoder import Int64s
from hot_tier.record.columns import RecordColumns

T = TypeVar("T")
U = TypeVar("U")
Start = Callable[[Coroutine[Any, Any, T]], "Future[T]"]

CLEANED_MS: Final = "cleaned_ms"
"""In a file's metadata: when its delete markers were first kept by a compaction by key."""

_AHEAD: Final = 4


@dataclass(frozen=True, slots=True)
class Rewrite:
    layout: PartitionLayout
    old: tuple[Segment, ...]
    zstd_level: int = 3
    cleaned_ms: int | None = None


def rewrite(settings: StoreSettings, job: Rewrite, keep: Int64s | None = None) -> Segment:
    """Upload the new segment and return its manifest entry, verified.

    With `keep`, offsets in order, only those rows stay.
    """
    layout, old = job.layout, job.old
    name = SegmentName(old[0].base_offset, max(segment.name.leader_epoch for segment in old), uuid.uuid4().hex)
    described = {
        "topic": layout.topic,
        "topic_id": str(layout.topic_id),
        "partition": str(layout.partition),
        "base_offset": str(old[0].base_offset),
        "end_offset": str(old[-1].end_offset),
    }
    if job.cleaned_ms is not None:
        described[CLEANED_MS] = str(job.cleaned_ms)
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
        )
        before = sum(segment.rows for segment in old)
        expected = before if keep is None else len(keep)
        if written.rows != expected:
            raise CorruptObject(
                f"{written.rows} rows were found, not {expected}",
                where=f"{store.url}{layout.rows(old[0].name)}",
                hint="the manifest and the rows from here on do not agree; `tierlog archive verify` says more",
            )
        log_bytes = sum(segment.log_bytes for segment in old)
        upload = upload_segment(
            store,
            layout,
            name,
            path,
            written,
            log_bytes=log_bytes * written.rows // before if before else log_bytes,
            # The oldest would make rows without a timestamp expire too early.
            archived_ms=max(segment.archived_ms for segment in old),
        )
        made: Segment = start(upload).result()
        start(store.close()).result()
    return made


def cleaned_ms(reader: SegmentReader) -> int | None:
    """When a compaction by key first kept this segment's delete markers; None: never."""
    found = (reader.metadata.metadata or {}).get(f"tierlog.{CLEANED_MS}".encode())
    return None if found is None else int(found)


def _decoded(
    store: RetryingStore, layout: PartitionLayout, old: Sequence[Segment], start: Start[Any]
) -> Iterator[RecordColumns]:
    async def get(piece: tuple[Segment, SegmentReader, int]) -> Buffer:
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


def _ahead(items: Iterable[T], start: Callable[[T], "Future[U]"]) -> Iterator[tuple[T, U]]:
    """Each item with its result, in order, while some of the following are under way."""
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
    """Row groups of the usual size, from smaller ones."""
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
    """An event loop in a thread of its own: requests are under way while rows are decoded and written."""
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
