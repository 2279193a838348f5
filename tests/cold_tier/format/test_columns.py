"""Some columns of a row group are those of the whole of it, and a changed byte is an error, or not in what was read."""

from pathlib import Path

import pyarrow as pa
import pytest

from cold_tier.errors import CorruptObject, KeyMissing
from cold_tier.format.columns import decode_columns, spans
from cold_tier.format.read import SegmentReader
from cold_tier.format.schema import row_schema
from cold_tier.format.write import to_arrow
from cold_tier.keys import file as key_file
from cold_tier.keys.master import MasterKeys
from hot_tier.record.columns import RecordColumns
from tests.cold_tier.format.test_encrypted_segment import WHERE
from tests.cold_tier.format.test_encrypted_segment import written as written_encrypted
from tests.cold_tier.format.test_key_filter import written

CHOICES = (
    ["offset"],
    ["timestamp", "leaderEpoch"],
    ["key"],
    ["value", "offset"],
    ["headers"],
    row_schema().names,
)


def fetched(reader: SegmentReader, data: bytes, number: int, names: list[str]):
    return [(span, data[span.start : span.start + span.length]) for span in spans(reader, number, names)]


def whole(reader: SegmentReader, data: bytes, number: int) -> RecordColumns:
    group = reader.index.row_groups[number]
    return reader.decode(number, data[group.start : group.start + group.length])


@pytest.fixture(scope="module")
def segment() -> tuple[SegmentReader, bytes]:
    return written([[b"key %d" % (n * n) for n in range(3_000)], [b"other %d" % n for n in range(2_000)]])


@pytest.mark.parametrize("names", CHOICES, ids=str)
def test_columns_are_those_of_the_whole_row_group(segment, names):
    reader, data = segment
    for number in range(2):
        parts = fetched(reader, data, number, names)
        table = decode_columns(reader, number, names, parts)
        expected = pa.Table.from_batches([to_arrow(whole(reader, data, number))]).select(names)
        assert table.equals(expected)
    assert sum(len(part) for _, part in fetched(reader, data, 0, ["offset"])) < reader.index.row_groups[0].length / 2


def test_a_changed_byte_is_an_error_or_was_not_read(segment):
    reader, data = segment
    for names in (["key"], ["offset", "timestamp"]):
        expected = decode_columns(reader, 0, names, fetched(reader, data, 0, names))
        found = 0
        for span in spans(reader, 0, names):
            for place in range(span.start, span.start + span.length, max(1, span.length // 40)):
                changed = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
                try:
                    assert decode_columns(reader, 0, names, fetched(reader, changed, 0, names)).equals(expected)
                except CorruptObject:
                    found += 1
        assert found > 20
    with pytest.raises(CorruptObject):
        decode_columns(reader, 0, ["key"], fetched(reader, data[:100], 0, ["key"]))


def test_an_encrypted_row_group_needs_its_key_for_its_contents_alone(tmp_path: Path):
    path = str(tmp_path / "keys.json")
    key_file.new_key(path, "orders")
    keys = MasterKeys(path)
    made = written_encrypted(tmp_path / "rows.parquet", keys)
    data = (tmp_path / "rows.parquet").read_bytes()
    reader = SegmentReader.open(made.index, WHERE, keys)
    table = decode_columns(reader, 1, ["offset", "key"], fetched(reader, data, 1, ["offset", "key"]))
    assert table.to_pydict() == {"offset": [1], "key": [b"secret-key1"]}
    without = SegmentReader.open(made.index, WHERE)
    parts = fetched(without, data, 1, ["offset"])
    assert decode_columns(without, 1, ["offset"], parts).to_pydict() == {"offset": [1]}
    with pytest.raises(KeyMissing):
        decode_columns(without, 1, ["key"], parts)
