"""Golden objects of a bucket: `python -m tests.golden.bucket.make` writes those that are missing beside this file.

A good one is written once per form and then only read: `without-owner.manifest` is what 0.1.0 published, and was made
by its code. A damaged one is a good one with one thing wrong, which its name says: `<name>.<what is wrong>.<kind>`.
"""

import dataclasses
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import zstandard

from cold_tier.descriptions import TopicDescription, write_description
from cold_tier.format.aside import AsideIndex, AsideWriter, read_aside
from cold_tier.format.index import SegmentIndex, read_index, write_index
from cold_tier.format.write import write_segment
from cold_tier.keys.master import MasterKeys
from cold_tier.layout import PartitionLayout, SegmentName, Version
from cold_tier.manifest.codec import write_page, write_proposal, write_snapshot
from cold_tier.manifest.model import Aside, EpochStart, Lost, Owner, Removed, SegmentEntry, Snapshot, summarize
from cold_tier.manifest.replacement import Proposal, Replacement
from hot_tier.record.batch import assign, read_header
from hot_tier.record.columns import NewRecord, encode_records, iter_columns
from hot_tier.record.control import Marker, MarkerKind, encode_marker
from hot_tier.record.crc import crc32c

HERE = Path(__file__).parent
TOPIC_ID = UUID("0b0e9d6c-6a5f-4d9c-9f70-2c8f6f0a1b2c")
LAYOUT = PartitionLayout("orders", TOPIC_ID, 3)
RECORDS = (
    NewRecord(1_700_000_000_000, b"key", b"value", (("twice", b"1"), ("twice", b"2"), ("null", None))),
    NewRecord(1_700_000_000_001, None, b"no key", ()),
    NewRecord(1_700_000_000_002, b"", b"", (("", b""),)),
    NewRecord(1_700_000_000_001, b"key", None, ()),
    NewRecord(1_700_000_000_003, b"\xff\xfe", b"\x00" * 40, ()),
)
"""Of the golden segment, each in a batch and a row group of its own, from offset 40 on."""


def segment(base: int, end: int) -> SegmentEntry:
    name = SegmentName(base, 3, f"{base:032x}")
    epochs = (EpochStart(2, max(0, base - 5)), EpochStart(3, base + 1))
    return SegmentEntry(
        name, end, end - base, 1000 + base, 1000 + end, 4000, 17, 300, 19, 9000, 1_700_000_000_000, epochs
    )


def plain() -> tuple[Snapshot, bytes]:
    """A page of two segments, a tail of two; the fields that 0.1.0 had."""
    paged = (segment(0, 10), segment(10, 20))
    page = write_page(paged)
    snapshot = Snapshot(
        "orders", TOPIC_ID, 3, Version(3, 7), "ab" * 16, 1_700_000_000_500, 4,
        (summarize(paged, "cd" * 16, len(page), crc32c(page)),),
        (segment(20, 30), segment(30, 45)),
        (Removed("topic=orders/partition=3/gone.parquet", 1_700_000_000_100),),
    )  # fmt: skip
    return snapshot, page


def owned() -> Snapshot:
    """The same with an owner, and offsets that were given up."""
    owner = Owner("t9VSQtkKG_FgT7vE1AE7CQ", "ef" * 16, "01" * 16)
    return dataclasses.replace(plain()[0], owner=owner, lost=(Lost(20, 30, 1_700_000_000_400),))


def proposal() -> Proposal:
    merged = dataclasses.replace(segment(20, 45), epochs=segment(20, 30).epochs)
    old = (segment(20, 30).name, segment(30, 45).name)
    return Proposal(LAYOUT, 1_700_000_000_600, (Replacement(old, (merged,)),))


def description() -> TopicDescription:
    config = {"remote.storage.enable": "true", "retention.ms": "2592000000"}
    return TopicDescription("orders", TOPIC_ID, 4, 3, config, 1_690_000_000_000)


def archived() -> tuple[bytes, bytes]:
    """The rows and the index of a segment that holds RECORDS."""
    log = bytearray()
    for number, record in enumerate(RECORDS):
        batch = encode_records([record])
        assign(batch, 40 + number, 3)
        log += batch
    described = {"topic": "orders", "topic_id": str(TOPIC_ID), "partition": "3", "complete": "true"}
    with tempfile.NamedTemporaryFile() as file:
        chunks = iter_columns(bytes(log), chunk_bytes=1)
        epochs = (EpochStart(3, 40),)
        written = write_segment(file.name, chunks, 40, 45, epochs, b"producers", described, zstd_level=3)
        return Path(file.name).read_bytes(), write_index(written.index)


def with_aside() -> tuple[Snapshot, bytes]:
    """The same with what transactions left: a segment in a page and one in the tail have batches aside."""
    paged = (dataclasses.replace(segment(0, 10), aside=Aside(500, 23, 3, 1005)), segment(10, 20))
    page = write_page(paged)
    marked = dataclasses.replace(segment(30, 45), aside=Aside(200, 29, 1, -1))
    pages = (summarize(paged, "cd" * 16, len(page), crc32c(page)),)
    return dataclasses.replace(owned(), pages=pages, tail=(segment(20, 30), marked)), page


def set_aside(folder: str, keys: MasterKeys | None = None, master_key: str = "") -> tuple[bytes, AsideIndex]:
    """An aborted batch of two records at offset 41 and its marker at 44, of a segment from 40 to 50."""
    batch = encode_records(RECORDS[:2], producer_id=7, producer_epoch=1, base_sequence=0, transactional=True)
    assign(batch, 41, 3)
    marker = encode_marker(7, 2, Marker(MarkerKind.ABORT, 5), 1_700_000_000_009)
    assign(marker, 44, 3)
    writer = AsideWriter(f"{folder}/aside", 40, 50, LAYOUT.aside(segment(40, 50).name), keys, master_key)
    for each in (batch, marker):
        writer.add(each, read_header(each))
    written = writer.finish()
    assert written is not None
    return Path(writer.path).read_bytes(), written


def plain_aside() -> tuple[bytes, bytes]:
    """The object, and the index of a segment without rows that names it."""
    with tempfile.TemporaryDirectory() as folder:
        data, written = set_aside(folder)
        made = write_segment(f"{folder}/rows", iter(()), 40, 50, (EpochStart(3, 40),), b"producers", {}, zstd_level=3)
        return data, write_index(dataclasses.replace(made.index, aside=written))


def good() -> dict[str, bytes]:
    rows, index = archived()
    aside, its_index = plain_aside()
    return {
        "with-aside.manifest": write_snapshot(with_aside()[0]),
        "with-aside.page": with_aside()[1],
        "aborted.aside": aside,
        "aborted.index": its_index,
        "with-owner.manifest": write_snapshot(owned()),
        "closed.page": plain()[1],
        "merge.proposal": write_proposal(proposal()),
        "topic.json": write_description(description()),
        "rows.parquet": rows,
        "rows.index": index,
    }


def stored(name: str) -> bytes:
    return (HERE / name).read_bytes()


def flipped(data: bytes, at: int = -9) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def resealed(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A manifest, page or proposal with another body, and a checksum that fits."""
    body = orjson.loads(zstandard.decompress(data[16:]))
    packed = zstandard.compress(orjson.dumps(change(body)))
    return struct.pack(">4sHHII", data[:4], 1, 0, len(packed), crc32c(packed)) + packed


def enveloped(data: bytes, packed: bytes) -> bytes:
    return data[:8] + struct.pack(">II", len(packed), crc32c(packed)) + packed


def reindexed(**changes: Any) -> bytes:
    """The golden index with other fields, and a checksum that fits."""
    return write_index(dataclasses.replace(_index(), **changes))


def _index() -> SegmentIndex:
    return read_index(stored("rows.index"), "golden")


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda body: {field: value for field, value in body.items() if field != name}


def damaged() -> dict[str, bytes]:
    manifest, page, merge = stored("with-owner.manifest"), stored("closed.page"), stored("merge.proposal")
    index, rows, topic = stored("rows.index"), stored("rows.parquet"), stored("without-checksum.json")
    groups = _index().row_groups
    checked = index[:-4]
    version_2 = checked[:4] + b"\x00\x02" + checked[6:]
    many_groups = checked[:32] + b"\xff\xff\xff\xff" + checked[36:]
    bomb = struct.pack("<IBQ", 0xFD2FB528, 0b11100000, 1 << 40) + b"\x01\x00\x00"
    return {
        "with-owner.torn.manifest": manifest[:-1],
        "with-owner.shorter-than-its-header.manifest": manifest[:12],
        "with-owner.flipped-bit.manifest": flipped(manifest),
        "with-owner.magic-of-a-page.manifest": b"TLMP" + manifest[4:],
        "with-owner.version-2.manifest": manifest[:4] + b"\x00\x02" + manifest[6:],
        "with-owner.not-zstd.manifest": enveloped(manifest, b"plain text"),
        "with-owner.claims-a-terabyte.manifest": enveloped(manifest, bomb),
        "with-owner.without-nonce.manifest": resealed(manifest, _without("nonce")),
        "with-owner.partition-is-text.manifest": resealed(manifest, lambda body: {**body, "partition": "3"}),
        "with-owner.body-is-a-list.manifest": resealed(manifest, lambda body: [body]),
        "closed.torn.page": page[:-1],
        "closed.flipped-bit.page": flipped(page),
        "closed.short-column.page": resealed(
            page, lambda body: {"segments": {**body["segments"], "rows": body["segments"]["rows"][:1]}}
        ),
        "merge.flipped-bit.proposal": flipped(merge),
        "merge.replaces-nothing.proposal": resealed(
            merge, lambda body: {**body, "replacements": [{**body["replacements"][0], "old": []}]}
        ),
        "merge.names-no-segment.proposal": resealed(
            merge, lambda body: {**body, "replacements": [{**body["replacements"][0], "old": ["../1"]}]}
        ),
        "topic.flipped-bit.json": stored("topic.json").replace(b"2592000000", b"3592000000"),
        "topic.torn.json": topic[:-1],
        "topic.is-a-list.json": b"[]",
        "topic.without-config.json": topic.replace(b'"config"', b'"settings"'),
        "topic.id-is-none.json": topic.replace(str(TOPIC_ID).encode(), b"orders"),
        "rows.torn.index": index[:-1],
        "rows.flipped-bit.index": flipped(index),
        "rows.version-2.index": version_2 + struct.pack(">I", crc32c(version_2)),
        "rows.more-row-groups-than-bytes.index": many_groups + struct.pack(">I", crc32c(many_groups)),
        "rows.footer-cut.index": reindexed(footer=_index().footer[5:]),
        "rows.other-offsets.index": reindexed(
            row_groups=(dataclasses.replace(groups[0], first_offset=39, end_offset=40), *groups[1:])
        ),
        "rows.more-rows.index": reindexed(row_groups=(dataclasses.replace(groups[0], rows=2), *groups[1:])),
        "rows.torn.parquet": rows[: groups[0].start + groups[0].length - 1],
        "rows.flipped-bit.parquet": flipped(rows, groups[0].start + 5),
        "with-aside.aside-is-text.manifest": resealed(
            stored("with-aside.manifest"),
            lambda body: {**body, "segments": {**body["segments"], "aside": ["none", "none"]}},
        ),
        "with-aside.too-few-numbers.page": resealed(
            stored("with-aside.page"),
            lambda body: {"segments": {**body["segments"], "aside": [[500, 23], None]}},
        ),
        **asides(),
    }


def asides() -> dict[str, bytes]:
    """The golden object with batches aside and its index, damaged."""
    aside, index = stored("aborted.aside"), stored("aborted.index")
    size = int.from_bytes(aside[-8:-4], "big")
    start = len(aside) - 8 - size
    entry = start + 28  # The first portion in the directory; there is no key before it.

    def changed(at: int, number: int, width: int = 8) -> bytes:
        return again(aside[:at] + number.to_bytes(width, "big") + aside[at + width :])

    def again(data: bytes) -> bytes:
        return data[:-4] + struct.pack(">I", crc32c(data[:-4]))

    def of_index(**changes: Any) -> bytes:
        found = read_index(index, "golden")
        assert found.aside is not None
        return write_index(dataclasses.replace(found, aside=dataclasses.replace(found.aside, **changes)))

    directory = read_aside(aside, "golden").directory
    beyond = dataclasses.replace(directory, base_offset=39)
    return {
        "aborted.torn.aside": aside[:-1],
        "aborted.shorter-than-its-head.aside": aside[:7],
        "aborted.flipped-bit.aside": flipped(aside, 100),
        "aborted.flipped-bit-under-a-new-checksum.aside": again(flipped(aside, 100)),
        "aborted.version-2.aside": changed(4, 2, 2),
        "aborted.magic-of-an-index.aside": again(b"TLIX" + aside[4:]),
        "aborted.directory-longer-than-the-object.aside": changed(len(aside) - 8, len(aside), 4),
        "aborted.no-portion.aside": changed(start + 20, 0, 4),
        "aborted.more-portions-than-bytes.aside": changed(start + 20, 2**32 - 1, 4),
        "aborted.other-count.aside": changed(start + 16, 3, 4),
        "aborted.begins-below-its-segment.aside": changed(entry, 39),
        "aborted.ends-behind-its-segment.aside": changed(entry + 8, 51),
        "aborted.portion-elsewhere.aside": changed(entry + 24, 9),
        "aborted.portion-of-an-exabyte.aside": changed(entry + 32, 2**60),
        "aborted.other-offsets.aside": changed(entry + 8, 46),
        "aborted.directory-of-another-segment.index": of_index(directory=beyond),
        "aborted.without-its-directory.index": again(index[:48] + bytes(4) + index[52 : -4 - size] + index[-4:]),
        "aborted.directory-cut.index": again(index[:-5] + index[-4:]),
    }


def write_missing() -> None:
    for make in (good, damaged):
        for name, data in make().items():
            if not (HERE / name).exists():
                (HERE / name).write_bytes(data)


if __name__ == "__main__":
    write_missing()
