"""Checks one archived segment against its manifest entry and its index: bytes, checksums, rows, offsets, timestamps.

It reads the whole object once, a row group at a time, so a check needs the memory of one row group. Every finding names
its object. Rows are counted only if every byte is as it was written: a damaged object is not examined further.

An offset without a row inside a segment is counted, but is not a fault: control records, aborted transactions and
compacted keys are left out of the archive.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from cold_tier.errors import CorruptObject, KeyMissing, ObjectMissing
from cold_tier.format.index import SegmentIndex, read_index
from cold_tier.format.open import prove_aside
from cold_tier.format.read import SegmentReader
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import NO_TIMESTAMP, SegmentEntry
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import Buffer
from cold_tier.reports import Finding, FindingKind
from hot_tier.record.crc import crc32c

Fault = tuple[FindingKind, str]
Offsets = npt.NDArray[np.int64]

_CHUNK_BYTES: Final = 8 << 20
_MISSING: Final[Fault] = ("missing", "the manifest names this object, but it is not there")


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    layout: PartitionLayout
    segment: SegmentEntry
    rows: int
    bytes: int
    """The bytes that were read and compared."""
    holes: int
    """The number of offsets in its range that have no row."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """What a check found in the rows of a segment or of one row group."""

    count: int = 0
    duplicates: int = 0
    backwards: bool = False
    outside: int = 0
    first_offset: int = -1
    last_offset: int = -1
    min_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_ms: int = NO_TIMESTAMP


async def check_segment(store: Bucket, layout: PartitionLayout, segment: SegmentEntry) -> CheckedSegment:
    rows_key, index_key = layout.rows(segment.name), layout.index(segment.name)
    found = CheckedSegment(layout, segment, 0, 0, 0, ())
    index: SegmentIndex | None = None
    try:
        data = await store.get(index_key)
        faults = _index_faults(data, segment)
        if not faults:
            index = read_index(data, f"{store.url}{index_key}")
            faults = _index_range(index, segment)
        found = _noted(found, f"{store.url}{index_key}", faults, len(data))
    except ObjectMissing:
        found = _noted(found, f"{store.url}{index_key}", [_MISSING])
    except CorruptObject as error:
        found = _noted(found, error.where, [("damaged", error.what)])
    info = await store.head(rows_key)
    where = f"{store.url}{rows_key}"
    if info is None:
        return _noted(found, where, [_MISSING])
    if info.size != segment.rows_bytes:
        what = f"has {info.size} bytes, the manifest says {segment.rows_bytes}"
        return _noted(found, where, [("damaged", what)])
    if index is None:
        return found
    found = await _check_aside(store, found, index)
    try:
        return await _check_rows(store, found, index, where)
    except ObjectMissing:
        return _noted(found, where, [_MISSING])
    except CorruptObject as error:
        return _noted(found, where, [("damaged", error.what)])


async def _check_aside(store: Bucket, found: CheckedSegment, index: SegmentIndex) -> CheckedSegment:
    layout, segment = found.layout, found.segment
    where = f"{store.url}{layout.aside(segment.name)}"
    try:
        await prove_aside(store, layout, segment, index)
    except ObjectMissing:
        return _noted(found, where, [_MISSING])
    except CorruptObject as error:
        return _noted(found, error.where, [("damaged", error.what)])
    return replace(found, bytes=found.bytes + segment.aside_bytes)


async def _check_rows(store: Bucket, found: CheckedSegment, index: SegmentIndex, where: str) -> CheckedSegment:
    """Reads the object from front to back. Decodes the row groups on the way and computes one checksum of all bytes."""
    segment = found.segment
    key = found.layout.rows(segment.name)
    reader = SegmentReader.open(index, where, store.keys)
    decode = reader.decode
    try:
        await asyncio.to_thread(reader.unlock)
    except KeyMissing:
        decode = reader.decode_plain  # Offsets and times can be checked without the key.
    crc = position = 0
    faults: list[Fault] = []
    groups: list[Rows] = []
    for number, group in enumerate(index.row_groups):
        crc = await _crc_of(store, key, position, group.start, crc)
        data = await store.get(key, group.start, group.length)
        crc, position = crc32c(data, crc), group.start + group.length
        try:
            columns = decode(number, data)
            groups.append(rows_of(columns.offsets, columns.timestamps, segment))
        except CorruptObject as error:
            faults.append(("damaged", error.what))
    crc = await _crc_of(store, key, position, segment.rows_bytes, crc)
    if crc != segment.rows_crc32c and not faults:
        faults.append(("damaged", "bytes outside its row groups do not match the checksum in the manifest"))
    found = replace(found, bytes=found.bytes + segment.rows_bytes)
    if faults:
        return _noted(found, where, faults)
    rows = combined(groups)
    holes = segment.end_offset - segment.base_offset - (rows.count - rows.duplicates - rows.outside)
    return _noted(replace(found, rows=rows.count, holes=holes), where, row_faults(segment, index, groups, rows))


async def _crc_of(store: Bucket, key: str, start: int, end: int, crc: int) -> int:
    while start < end:
        data = await store.get(key, start, min(_CHUNK_BYTES, end - start))
        if not len(data):
            raise CorruptObject(f"ends too early, at byte {start}")
        crc, start = crc32c(data, crc), start + len(data)
    return crc


def rows_of(offsets: Offsets, timestamps_ms: Offsets, segment: SegmentEntry) -> Rows:
    if not len(offsets):
        return Rows()
    return Rows(
        len(offsets),
        len(offsets) - len(np.unique(offsets)),
        bool(np.any(np.diff(offsets) < 0)),
        int(np.count_nonzero((offsets < segment.base_offset) | (offsets >= segment.end_offset))),
        int(offsets.min()),
        int(offsets.max()),
        int(timestamps_ms.min()),
        int(timestamps_ms.max()),
    )


def combined(groups: Sequence[Rows]) -> Rows:
    """Row groups follow one another, so an offset that appears again in a later group is a fault too."""
    groups = [group for group in groups if group.count]
    if not groups:
        return Rows()
    return Rows(
        sum(group.count for group in groups),
        sum(group.duplicates for group in groups),
        any(group.backwards for group in groups) or any(a.last_offset >= b.first_offset for a, b in pairwise(groups)),
        sum(group.outside for group in groups),
        min(group.first_offset for group in groups),
        max(group.last_offset for group in groups),
        min(group.min_timestamp_ms for group in groups),
        max(group.max_timestamp_ms for group in groups),
    )


def row_faults(segment: SegmentEntry, index: SegmentIndex, groups: Sequence[Rows], rows: Rows) -> list[Fault]:
    faults: list[Fault] = []
    if rows.count != segment.rows:
        faults.append(("rows", f"has {rows.count} rows, the manifest says {segment.rows}"))
    for number, (group, said) in enumerate(zip(groups, index.row_groups, strict=True)):
        if group.count != said.rows:
            faults.append(("rows", f"row group {number} has {group.count} rows, the index says {said.rows}"))
    if rows.duplicates:
        faults.append(("duplicate", f"{rows.duplicates} rows have an offset that another row has"))
    elif rows.backwards:
        faults.append(("duplicate", "offsets do not rise from row to row"))
    if rows.outside:
        what = f"{rows.outside} rows lie outside the offsets [{segment.base_offset}, {segment.end_offset})"
        faults.append(("range", f"{what}: they are {rows.first_offset} to {rows.last_offset}"))
    stamps = (rows.min_timestamp_ms, rows.max_timestamp_ms)
    if rows.count and stamps != (segment.min_timestamp_ms, segment.max_timestamp_ms):
        said_by = f"the manifest says {segment.min_timestamp_ms} to {segment.max_timestamp_ms}"
        faults.append(("timestamps", f"timestamps are {stamps[0]} to {stamps[1]}, {said_by}"))
    return faults


def _index_faults(data: Buffer, segment: SegmentEntry) -> list[Fault]:
    if len(data) != segment.index_bytes or crc32c(data) != segment.index_crc32c:
        return [("damaged", "the index is not the one that the manifest names")]
    return []


def _index_range(index: SegmentIndex, segment: SegmentEntry) -> list[Fault]:
    if (index.base_offset, index.end_offset) == (segment.base_offset, segment.end_offset):
        return []
    said = f"the manifest says [{segment.base_offset}, {segment.end_offset})"
    return [("range", f"covers [{index.base_offset}, {index.end_offset}), {said}")]


def _noted(found: CheckedSegment, where: str, faults: Sequence[Fault], more_bytes: int = 0) -> CheckedSegment:
    findings = tuple(Finding(kind, where, what) for kind, what in faults)
    return replace(found, findings=found.findings + findings, bytes=found.bytes + more_bytes)
