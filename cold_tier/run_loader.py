"""Makes runs out of row groups in the store: fetches, proves, decodes, and encodes as record batches.

Many row groups are fetched at a time, and few decoded: decoding takes a core, and the event loop, which serves all
other clients, needs one. pyarrow and the kernels release the interpreter lock.

What was fetched is also put on local disk, but no reader waits for that. A disk that is slower than the store gets only
a part of it.
"""

import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cold_tier.cache import ColdReadSettings, DiskCache
from cold_tier.decoded_row_group import Run, make_run
from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.format.read import Piece, SegmentReader
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry, epoch_at
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import Buffer
from hot_tier.ids import Offset
from hot_tier.record.columns import RecordColumns

T = TypeVar("T")
U = TypeVar("U")

_MOST_DECODERS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """A piece of a segment: a row group, or what an uncommitted reader gets at once."""

    layout: PartitionLayout
    segment: SegmentEntry
    reader: SegmentReader
    number: int
    committed: bool

    @property
    def key(self) -> str:
        kind = "" if self.committed or self.reader.aside is None else "u"
        return f"{self.segment.name.stem}.{kind}{self.number}"

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.reader.pieces(committed=self.committed)

    @property
    def piece(self) -> Piece:
        return self.pieces[self.number]

    @classmethod
    def at(
        cls, layout: PartitionLayout, segment: SegmentEntry, reader: SegmentReader, offset: Offset, committed: bool
    ) -> "Place":
        pieces = reader.pieces(committed=committed)
        number = bisect_right(pieces, offset, key=lambda piece: piece.first_offset) - 1
        return cls(layout, segment, reader, max(number, 0), committed)


class RunLoader:
    def __init__(self, store: Bucket, settings: ColdReadSettings, disk_folder: str | None) -> None:
        self._store = store
        self._disk = DiskCache(disk_folder, settings.disk_bytes) if disk_folder and settings.disk_bytes else None
        self._most_puts = settings.fills
        self._puts: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(settings.fills)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._decoders = ThreadPoolExecutor(max(1, min(cores // 2, _MOST_DECODERS)), "cold-decoder")

    async def load(self, place: Place, times_only: bool = False) -> Run:
        """Returns the run of a piece. With `times_only` its records have no values, and no key is needed."""
        reader, piece = place.reader, place.piece
        aside = memoryview(b"")
        async with self._room:
            if reader.master_key and not times_only:
                await asyncio.to_thread(reader.unlock)  # Without the key no request is made.
            if piece.portion is not None:
                aside = await self._aside(place, piece.portion)
            epoch = epoch_at(place.segment, piece.end_offset)
            finish = partial(
                make_run, first_offset=piece.first_offset, end_offset=piece.end_offset, epoch=epoch, aside=aside
            )
            if piece.row_group is None:
                return await self._decode(finish, None)
            return await self._rows(place, piece.row_group, times_only, finish)

    async def close(self) -> None:
        for put in self._puts:
            put.cancel()
        await asyncio.gather(*self._puts, return_exceptions=True)
        self._decoders.shutdown(wait=False, cancel_futures=True)

    async def _rows(self, place: Place, number: int, times_only: bool, finish: Callable[[RecordColumns], Run]) -> Run:
        reader, group = place.reader, place.reader.index.row_groups[number]
        decode = reader.decode_plain if times_only else reader.decode
        key = f"{place.segment.name.stem}.{number}"
        rows = place.layout.rows(place.segment.name)
        return await self._got(
            key, rows, group.start, group.length, reader.where, lambda data: finish(decode(number, data))
        )

    async def _aside(self, place: Place, number: int) -> memoryview:
        reader = place.reader.aside
        assert reader is not None
        portion = reader.directory.portions[number]
        key = f"{place.segment.name.stem}.a{number}"
        return await self._got(
            key,
            reader.object_key,
            portion.start,
            portion.length,
            reader.where,
            lambda data: reader.portion(number, data),
        )

    async def _got(self, key: str, name: str, start: int, length: int, where: str, make: Callable[[Buffer], T]) -> T:
        """Returns what `make` makes of a part of an object, from the disk cache or from the store."""
        if self._disk is not None and (kept := await self._disk.get(key)) is not None:
            try:
                return await self._decode(make, kept)
            except CorruptObject:
                self._disk.drop(key)
        try:
            data = await self._store.get(name, start, length)
        except ObjectMissing as error:
            raise CorruptObject("the manifest names this object, but it is not there", where=where) from error
        made = await self._decode(make, data)
        self._keep(key, data)
        return made

    async def _decode(self, make: Callable[[U], T], data: U) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._decoders, make, data)

    def _keep(self, key: str, data: Buffer) -> None:
        if self._disk is not None and len(self._puts) < self._most_puts:
            put = asyncio.create_task(self._disk.put(key, data))
            self._puts.add(put)
            put.add_done_callback(self._puts.discard)
