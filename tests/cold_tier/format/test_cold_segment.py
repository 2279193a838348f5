"""A sealed segment to Parquet and index and back: every byte of every record, and no damage believed."""

import dataclasses
import os
import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cold_tier.errors import CorruptObject
from cold_tier.format.index import SegmentIndex, read_index, write_index
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import WrittenSegment, write_segment
from cold_tier.manifest.model import EpochStart
from hot_tier.record.batch import assign
from hot_tier.record.columns import NewRecord, Record, decode_records, encode_batches, encode_records, iter_columns

fields = st.one_of(st.none(), st.binary(max_size=40))
headers = st.lists(st.tuples(st.text(max_size=6), fields), max_size=3).map(tuple)
stamps = st.integers(-1, 4_000_000_000_000)
records = st.builds(NewRecord, timestamp=stamps, key=fields, value=fields, headers=headers)
batches = st.lists(st.tuples(st.lists(records, min_size=1, max_size=8), st.integers(0, 4)), min_size=1, max_size=6)


def log_of(parts: list[tuple[list[NewRecord], int]], base_offset: int = 0, epoch: int = 3) -> tuple[bytes, int]:
    """The bytes of a log that holds `parts`, one batch each, and its end offset."""
    log, offset = bytearray(), base_offset
    for batch, codec in parts:
        data = encode_records(batch, codec=codec)
        assign(data, offset, epoch)
        log += data
        offset += len(batch)
    return bytes(log), offset


def archive(path: Path, log: bytes, base: int, end: int, chunk_bytes: int = 1 << 20) -> WrittenSegment:
    chunks = iter_columns(log, chunk_bytes=chunk_bytes)
    epochs = (EpochStart(3, base),)
    return write_segment(str(path), chunks, base, end, epochs, b"producers", {"topic": "orders"}, zstd_level=3)


def rows(path: Path, index: SegmentIndex) -> list[Record]:
    reader = SegmentReader.open(index, "here")
    data = path.read_bytes()
    found: list[Record] = []
    for number, group in enumerate(index.row_groups):
        columns = reader.decode(number, data[group.start : group.start + group.length])
        found += decode_records(encode_batches(columns))
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches, st.sampled_from([1, 200, 1 << 20]), st.integers(0, 2**40))
def test_every_record_comes_back_as_it_was(
    tmp_path: Path, parts: list[tuple[list[NewRecord], int]], chunk_bytes: int, base: int
) -> None:
    log, end = log_of(parts, base)
    path = tmp_path / "segment.parquet"
    written = archive(path, log, base, end, chunk_bytes)
    index = read_index(write_index(written.index), "here")
    assert index == written.index
    assert rows(path, index) == decode_records(log)
    assert written.rows == end - base
    assert (index.row_groups[0].first_offset, index.row_groups[-1].end_offset) == (base, end)
    for before, after in pairwise(index.row_groups):
        assert before.first_offset < before.end_offset == after.first_offset


def test_parquet_readers_see_the_columns_of_sparks_kafka_source(tmp_path: Path) -> None:
    record = NewRecord(timestamp=1_700_000_000_123, key=b"k", value=None, headers=(("h", b"1"), ("h", None)))
    bare = NewRecord(timestamp=-1, key=None, value=b"", headers=())
    log, end = log_of([([record, bare], 0)], 41)
    path = tmp_path / "segment.parquet"
    archive(path, log, 41, end)
    table = pq.read_table(path)
    assert table.schema.names == ["offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch"]
    assert table.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    first, second = table.to_pylist()
    assert (first["offset"], first["key"], first["value"], first["leaderEpoch"]) == (41, b"k", None, 3)
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert (second["key"], second["value"], second["headers"]) == (None, b"", None)
    metadata = pq.read_metadata(path)
    assert metadata.metadata[b"tierlog.topic"] == b"orders"
    offset = metadata.row_group(0).column(0)
    assert offset.compression == "ZSTD" and "DELTA_BINARY_PACKED" in offset.encodings
    assert table.schema.field("value").metadata[b"PARQUET:field_id"] == b"5"
    assert offset.has_offset_index and offset.has_column_index and offset.statistics.max == 42


def test_a_file_that_will_be_uploaded_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold up the syncs of producers, for a file that a power cut may take."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    log, end = log_of([([NewRecord(timestamp=1, key=None, value=b"v", headers=())], 0)])
    archive(tmp_path / "s.parquet", log, 0, end)
    assert not synced


def test_a_segment_without_rows_still_covers_its_offsets(tmp_path: Path) -> None:
    written = write_segment(str(tmp_path / "empty.parquet"), [], 10, 20, (), b"", {}, zstd_level=3)
    index = read_index(write_index(written.index), "here")
    assert (written.rows, index.base_offset, index.end_offset, index.row_groups) == (0, 10, 20, ())
    assert pq.read_table(tmp_path / "empty.parquet").num_rows == 0


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, SegmentIndex]:
    rng = random.Random(7)
    parts = [([NewRecord(timestamp=n, key=b"%d" % n, value=rng.randbytes(50), headers=()) for n in range(20)], 0)] * 4
    log, end = log_of(parts)
    path = tmp_path_factory.mktemp("archived") / "segment.parquet"
    return (written := archive(path, log, 0, end, 1000)) and path.read_bytes(), written.index


def test_a_flipped_bit_in_the_rows_names_the_object(archived: tuple[bytes, SegmentIndex]) -> None:
    data, index = archived
    reader = SegmentReader.open(index, "topic=orders/partition=0/x.parquet")
    rng = random.Random(1)
    for number, group in enumerate(index.row_groups):
        for _ in range(50):
            damaged = bytearray(data[group.start : group.start + group.length])
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            with pytest.raises(CorruptObject, match=r"topic=orders/partition=0/x\.parquet"):
                reader.decode(number, damaged)
        with pytest.raises(CorruptObject):
            reader.decode(number, data[group.start : group.start + group.length - 1])


def test_a_flipped_bit_in_the_index_is_never_believed(archived: tuple[bytes, SegmentIndex]) -> None:
    intact = write_index(archived[1])
    rng = random.Random(2)
    for bit in rng.sample(range(8 * len(intact)), 2000):
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptObject, match="here"):
            read_index(bytes(damaged), "here")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_corrupt_index(data: bytes) -> None:
    with pytest.raises(CorruptObject):
        read_index(data, "here")


def test_a_lying_checksum_does_not_crash_the_decoder(archived: tuple[bytes, SegmentIndex]) -> None:
    """Bytes whose checksum holds but that are no row group: damage before the checksum was made."""
    from hot_tier.record.crc import crc32c

    _, index = archived
    group = index.row_groups[0]
    nonsense = random.Random(3).randbytes(group.length)
    forged = dataclasses.replace(group, crc32c=crc32c(nonsense))
    reader = SegmentReader.open(dataclasses.replace(index, row_groups=(forged, *index.row_groups[1:])), "here")
    with pytest.raises(CorruptObject, match="cannot be decoded"):
        reader.decode(0, nonsense)
