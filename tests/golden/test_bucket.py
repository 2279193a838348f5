"""The golden objects of a bucket: good ones are read as they were written, damaged ones are our own errors."""

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from cold_tier.descriptions import read_description, write_description
from cold_tier.errors import CorruptManifest, CorruptObject
from cold_tier.format.aside import AsideIndex, AsideReader, read_aside
from cold_tier.format.index import SegmentIndex, read_index, write_index
from cold_tier.format.read import SegmentReader
from cold_tier.manifest.codec import read_page, read_proposal, read_snapshot, write_page, write_snapshot
from cold_tier.manifest.model import Aside
from hot_tier.record.columns import NewRecord, Record, decode_records, encode_batches
from hot_tier.record.crc import crc32c
from tests.golden.bucket.make import (
    HERE,
    RECORDS,
    damaged,
    description,
    good,
    owned,
    plain,
    proposal,
    segment,
    stored,
    with_aside,
)

WHERE = "file:///bucket/golden"


def first_row_group(index: SegmentIndex, rows: bytes) -> list[NewRecord]:
    return row_group(index, rows, 0)


def row_group(index: SegmentIndex, rows: bytes, number: int) -> list[NewRecord]:
    group = index.row_groups[number]
    columns = SegmentReader.open(index, WHERE).decode(number, rows[group.start : group.start + group.length])
    found = decode_records(encode_batches(columns))
    return [NewRecord(record.timestamp, record.key, record.value, record.headers) for record in found]


def rows_or_aside(index: SegmentIndex) -> list[NewRecord] | list[Record]:
    if index.aside is not None:
        return set_aside(index.aside, stored("aborted.aside"))
    return first_row_group(index, stored("rows.parquet"))


def set_aside(index: AsideIndex, data: bytes) -> list[Record]:
    """All records of an object with batches aside, those of markers too."""
    reader = AsideReader(index.directory, "golden", WHERE)
    found: list[Record] = []
    for number, portion in enumerate(index.directory.portions):
        batches = reader.portion(number, data[portion.start : portion.start + portion.length])
        found += decode_records(batches, skip_control=False)
    return found


READERS: dict[str, Callable[[bytes], object]] = {
    ".manifest": lambda data: read_snapshot(data, WHERE),
    ".page": lambda data: read_page(data, WHERE),
    ".proposal": lambda data: read_proposal(data, WHERE),
    ".json": lambda data: read_description(data, WHERE),
    ".index": lambda data: rows_or_aside(read_index(data, WHERE)),
    ".aside": lambda data: set_aside(read_aside(data, WHERE), data),
    ".parquet": lambda data: first_row_group(read_index(stored("rows.index"), WHERE), data),
}
"""By the kind of file: whatever a broker does with its bytes before it believes them."""


def test_manifests() -> None:
    """What 0.1.0 published has no owner."""
    before, _ = plain()
    assert read_snapshot(stored("without-owner.manifest"), WHERE) == before
    assert before.owner is None and before.lost == ()
    assert read_snapshot(stored("with-owner.manifest"), WHERE) == owned()


def test_batches_aside() -> None:
    data, index = stored("aborted.aside"), read_index(stored("aborted.index"), WHERE)
    assert index.aside == read_aside(data, WHERE)
    assert index.aside.entry == Aside(len(data), crc32c(data), 2, RECORDS[1].timestamp)
    first, second, marker = set_aside(index.aside, data)
    assert [each.offset for each in (first, second, marker)] == [41, 42, 44]
    assert [each[3:] for each in (first, second)] == [each[1:] for each in RECORDS[:2]]
    assert marker.key == b"\0\0\0\0" and index.row_groups == ()


def test_manifests_that_name_batches_aside() -> None:
    snapshot, page = with_aside()
    assert read_snapshot(stored("with-aside.manifest"), WHERE) == snapshot
    assert read_page(stored("with-aside.page"), WHERE) == read_page(page, WHERE)
    assert [each.aside_bytes for each in read_page(stored("with-aside.page"), WHERE)] == [500, 0]
    assert (snapshot.pages[0].aside_bytes, snapshot.pages[0].aside_max_timestamp_ms) == (500, 1005)


def test_without_transactions_the_bytes_are_those_of_before() -> None:
    """Manifests, pages and indexes. A broker of 0.1.0 reads them."""
    assert write_page(read_page(stored("closed.page"), WHERE)) == stored("closed.page")
    assert write_index(read_index(stored("rows.index"), WHERE)) == stored("rows.index")
    assert b"aside" not in zstandard.decompress(write_snapshot(owned())[16:])


def test_a_page() -> None:
    assert read_page(stored("closed.page"), WHERE) == (segment(0, 10), segment(10, 20))


def test_a_proposal() -> None:
    assert read_proposal(stored("merge.proposal"), WHERE) == proposal()


def test_a_topic_description() -> None:
    """What 0.1.0 wrote has no checksum."""
    assert read_description(stored("without-checksum.json"), WHERE) == description()
    assert read_description(stored("topic.json"), WHERE) == description()
    assert write_description(description()) == stored("topic.json"), "the leader compares the bytes"


def test_an_archived_segment() -> None:
    index, rows = read_index(stored("rows.index"), WHERE), stored("rows.parquet")
    assert (index.base_offset, index.end_offset, index.rows_bytes) == (40, 45, len(rows))
    assert index.producers == b"producers"
    assert [row_group(index, rows, number) for number in range(5)] == [[record] for record in RECORDS]
    assert SegmentReader.open(index, WHERE).complete


def test_what_is_written_today_is_read_like_what_is_stored() -> None:
    for name, data in good().items():
        read = READERS[Path(name).suffix]
        assert read(data) == read(stored(name)), name


@pytest.mark.parametrize("name", sorted(damaged()))
def test_damage_is_an_error_that_names_the_object(name: str) -> None:
    kind = Path(name).suffix
    expected = CorruptManifest if kind in (".manifest", ".page", ".proposal") else CorruptObject
    with pytest.raises(expected) as raised:
        READERS[kind](stored(name))
    assert raised.value.where == WHERE


def test_every_stored_object_is_tested() -> None:
    names = {path.name for path in HERE.iterdir() if path.suffix in READERS}
    assert names == {*good(), *damaged(), "without-owner.manifest", "without-checksum.json"}
