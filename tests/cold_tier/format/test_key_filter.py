"""Key filters never hide a key: what they exclude is not there. Files without them, and old ones, may hold any key."""

import asyncio
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cold_tier.errors import CorruptObject
from cold_tier.format.index import read_index, write_index
from cold_tier.format.key_filter import filter_span, holds, load_filters, may_hold, xxh64
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import write_segment
from hot_tier.ids import Offset
from hot_tier.record.columns import RecordColumns, headers_type

KEYS = st.one_of(st.none(), st.binary(max_size=80), st.sampled_from([b"", b"a", b"ada", b"\x00", b"\xff" * 33]))


def columns(keys: list[bytes | None], first: int) -> RecordColumns:
    count = len(keys)
    return RecordColumns(
        offsets=np.arange(first, first + count),
        timestamps=np.full(count, 1_700_000_000_000),
        timestamp_types=np.zeros(count, np.int32),
        leader_epochs=np.zeros(count, np.int32),
        keys=pa.array(keys, pa.binary()),
        values=pa.array([b"value"] * count, pa.binary()),
        headers=pa.nulls(count, headers_type()),
    )


class Object:
    """A store with one object."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def get(self, key: str, start: int, length: int) -> bytes:
        return self.data[start : start + length]


class Layout:
    def rows(self, name: object) -> str:
        return "rows"


class Entry:
    name = None


def written(groups: list[list[bytes | None]]) -> tuple[SegmentReader, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        total = sum(map(len, groups))
        chunks, first = [], 0
        for keys in groups:
            chunks.append(columns(keys, first))
            first += len(keys)
        made = write_segment(path, chunks, Offset(0), Offset(total), (), b"", {}, zstd_level=1)
        with open(path, "rb") as file:
            data = file.read()
    return SegmentReader.open(read_index(write_index(made.index), "here"), "here"), data


def asked(reader: SegmentReader, data: bytes, key: bytes) -> set[int] | None:
    filters = asyncio.run(load_filters(Object(data), Layout(), Entry(), reader))
    return None if filters is None else set(may_hold(reader, filters, key))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(KEYS, min_size=1, max_size=40), min_size=1, max_size=4))
def test_a_key_that_is_there_is_never_excluded(groups):
    reader, data = written(groups)
    for number, keys in enumerate(groups):
        for key in {key for key in keys if key is not None}:
            found = asked(reader, data, key)
            assert found is None or number in found


def test_most_keys_that_are_not_there_are_excluded():
    reader, data = written([[b"k%d" % n for n in range(start, start + 5_000)] for start in (0, 5_000)])
    wrong = sum(len(asked(reader, data, b"other-%d" % n)) for n in range(2_000))
    assert wrong < 2 * 2_000 * 0.03
    assert asked(reader, data, b"k17") >= {0} and asked(reader, data, b"k5017") >= {1}


def test_other_readers_use_the_same_filters(tmp_path):
    path = tmp_path / "x.parquet"
    reader, data = written([[b"k%d" % n for n in range(100)]])
    path.write_bytes(data)
    for key in ("k5", "nobody"):
        [(excluded,)] = duckdb.sql(
            f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', 'key', '{key}'::BLOB)"
        ).fetchall()
        assert excluded is not bool(asked(reader, data, key.encode()))


def test_a_damaged_filter_is_an_error():
    reader, data = written([[b"k%d" % n for n in range(1_000)]])
    start, length = filter_span(reader, 0)
    for place in range(start, start + length, 97):
        with pytest.raises(CorruptObject, match="key filter"):
            asked(reader, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], b"k1")
    with pytest.raises(CorruptObject):
        asked(reader, data[: start + 3], b"k1")


def test_a_file_without_filters_may_hold_any_key():
    reader, data = written([[None, None]])
    assert asked(reader, data, b"a") is None
    reader, data = written([[b"a"], [b"b"]])
    old = tuple(replace(group, key_filter_crc32c=0) for group in reader.index.row_groups)
    older = replace(reader, index=replace(reader.index, row_groups=old))
    assert asked(older, data, b"zzz") is None
    half = replace(reader, index=replace(reader.index, row_groups=(old[0], reader.index.row_groups[1])))
    assert asked(half, data, b"zzz") == {0}


@given(st.binary(max_size=200))
def test_filters_of_foreign_bytes_exclude_nothing_or_are_whole(data):
    assert holds(data, 0) in (True, False)


def test_the_hash_is_xxh64():
    for data, expected in (
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (bytes(range(101)), None),
    ):
        assert expected is None or xxh64(data) == expected


def test_a_stored_file_keeps_its_filters():
    folder = Path(__file__).parents[2] / "golden" / "key-filter"
    data = (folder / "segment.parquet").read_bytes()
    reader = SegmentReader.open(read_index((folder / "segment.index").read_bytes(), "here"), "here")
    assert all(group.key_filter_crc32c for group in reader.index.row_groups)
    assert [asked(reader, data, key) for key in (b"ada", b"bob", b"eve", b"nobody")] == [{0}, {0}, {1}, set()]
