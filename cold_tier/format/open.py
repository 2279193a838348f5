"""Loads a segment's index from the bucket and checks it against the manifest."""

import asyncio
from contextlib import suppress
from dataclasses import replace

from cold_tier.errors import CorruptObject, KeyMissing, NotEncrypted, ObjectMissing
from cold_tier.format.aside import AsideReader
from cold_tier.format.index import SegmentIndex, read_index
from cold_tier.format.read import SegmentReader
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.bucket import Bucket
from hot_tier.record.crc import crc32c


async def open_segment(store: Bucket, layout: PartitionLayout, segment: SegmentEntry) -> SegmentReader:
    """Returns the reader that decodes the segment's rows. Raises CorruptObject if its index is not the one that the
    manifest names, or if it is encrypted otherwise than the manifest says."""
    where = f"{store.url}{layout.index(segment.name)}"
    try:
        data = await store.get(layout.index(segment.name))
    except ObjectMissing as error:
        raise CorruptObject("the manifest names this index, but it is not there", where=where) from error
    if len(data) != segment.index_bytes or crc32c(data) != segment.index_crc32c:
        raise CorruptObject("the index is not the one that the manifest names", where=where)
    index = read_index(data, where)
    where = f"{store.url}{layout.rows(segment.name)}"
    reader = await asyncio.to_thread(SegmentReader.open, index, where, store.keys)
    if reader.master_key != segment.master_key:
        said = f"encrypted with {segment.master_key!r}" if segment.master_key else "plain"
        raise NotEncrypted(f"the manifest says that it is {said}, and it is not", where=where)
    if bool(segment.rows) != bool(index.row_groups):
        raise CorruptObject(f"the manifest says that it has {segment.rows} rows, its index says otherwise", where=where)
    check_aside(index, segment, where)
    if index.aside is None:
        return reader
    key = layout.aside(segment.name)
    return replace(reader, aside=AsideReader(index.aside.directory, key, f"{store.url}{key}", store.keys))


async def prove_aside(store: Bucket, layout: PartitionLayout, segment: SegmentEntry, index: SegmentIndex) -> None:
    """Reads the object with the batches aside of a segment completely, and compares it with the index and the manifest
    entry. Raises CorruptObject or ObjectMissing. Without the key the batches of an encrypted one are not looked at."""
    check_aside(index, segment, f"{store.url}{layout.rows(segment.name)}")
    if index.aside is None or segment.aside is None:
        return
    key = layout.aside(segment.name)
    reader = AsideReader(index.aside.directory, key, f"{store.url}{key}", store.keys)
    checksum = position = 0
    for number, portion in enumerate(reader.directory.portions):
        if position < portion.start:
            checksum = crc32c(await store.get(key, position, portion.start - position), checksum)
        data = await store.get(key, portion.start, portion.length)
        checksum, position = crc32c(data, checksum), portion.start + portion.length
        with suppress(KeyMissing):
            await asyncio.to_thread(reader.portion, number, data)
    rest = await store.get(key, position, segment.aside.size + 1 - position)
    if position + len(rest) != segment.aside.size or crc32c(rest, checksum) != segment.aside.crc32c:
        raise CorruptObject("its bytes do not match the checksum in the manifest", where=reader.where)


def check_aside(index: SegmentIndex, segment: SegmentEntry, where: str) -> None:
    """Raises an error if the index and the manifest do not say the same of the batches aside."""
    if (None if index.aside is None else index.aside.entry) != segment.aside:
        raise CorruptObject("the manifest and the index do not name the same batches aside", where=where)
    if index.aside is not None and index.aside.directory.master_key != segment.master_key:
        raise NotEncrypted("its batches aside are not encrypted with the key of its rows", where=where)
