"""The golden objects of an encrypted topic, and what a reader of 0.1.0 makes of them."""

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cold_tier.errors import CorruptObject, KeyMissing
from cold_tier.format.aside import AsideReader, read_aside
from cold_tier.format.index import read_index
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import footer_file
from cold_tier.keys.master import MasterKeys
from cold_tier.manifest.codec import read_snapshot
from hot_tier.record.columns import NewRecord, decode_records, encode_batches
from tests.golden.bucket.make import LAYOUT, RECORDS, segment
from tests.golden.encrypted.make import HERE, OBJECT, snapshot

WHERE = f"file:///bucket/{OBJECT}"


@pytest.fixture
def keys(tmp_path: Path) -> MasterKeys:
    shutil.copyfile(HERE / "golden.keys", tmp_path / "keys.json")
    (tmp_path / "keys.json").chmod(0o600)
    return MasterKeys(str(tmp_path / "keys.json"))


def test_an_encrypted_segment_opens_with_its_key(keys: MasterKeys) -> None:
    index = read_index((HERE / "rows.index").read_bytes(), WHERE)
    rows = (HERE / "rows.parquet").read_bytes()
    reader = SegmentReader.open(index, WHERE, keys)
    assert reader.master_key == "golden/2" and reader.complete
    for number, (group, record) in enumerate(zip(index.row_groups, RECORDS, strict=True)):
        [found] = decode_records(encode_batches(reader.decode(number, rows[group.start : group.start + group.length])))
        assert NewRecord(found.timestamp, found.key, found.value, found.headers) == record
    assert pq.read_table(HERE / "rows.parquet", columns=["offset"])["offset"].to_pylist() == [40, 41, 42, 43, 44]


def test_batches_aside_open_with_their_key_and_in_their_place_alone(keys: MasterKeys) -> None:
    data = (HERE / "secret.aside").read_bytes()
    directory = read_aside(data, WHERE).directory
    assert (directory.master_key, directory.batches) == ("golden/2", 2)
    [portion] = directory.portions
    name = LAYOUT.aside(segment(40, 50).name)
    sealed = data[portion.start : portion.start + portion.length]
    found = decode_records(AsideReader(directory, name, WHERE, keys).portion(0, sealed), skip_control=False)
    assert [each.offset for each in found] == [41, 42, 44]
    assert [each.value for each in found[:2]] == [each.value for each in RECORDS[:2]]
    with pytest.raises(KeyMissing, match="golden/2"):
        AsideReader(directory, name, WHERE).portion(0, sealed)
    with pytest.raises(CorruptObject, match="encrypted here"):
        AsideReader(directory, LAYOUT.aside(segment(41, 50).name), WHERE, keys).portion(0, sealed)
    said = dataclasses.replace(directory, portions=(dataclasses.replace(portion, end_offset=46),))
    with pytest.raises(CorruptObject, match="encrypted here"):
        AsideReader(said, name, WHERE, keys).portion(0, sealed)


def test_a_manifest_says_which_segments_are_encrypted() -> None:
    found = read_snapshot((HERE / "with-master-key.manifest").read_bytes(), WHERE)
    assert found == snapshot()
    assert [each.master_key for each in found.tail] == ["", "golden/2"]


def test_a_reader_that_knows_no_encryption_fails_and_never_gives_a_wrong_record() -> None:
    """What 0.1.0 does with the row group: it opens the footer of the index and reads all columns."""
    index = read_index((HERE / "rows.index").read_bytes(), WHERE)
    metadata = pq.read_metadata(pa.BufferReader(footer_file(index.footer)))
    file = pq.ParquetFile(pa.BufferReader((HERE / "rows.parquet").read_bytes()), metadata=metadata)
    with pytest.raises(OSError, match="decrypt"):
        file.read_row_group(0, use_threads=False)
