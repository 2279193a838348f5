"""An encrypted segment: what is readable with the key and without it, and whoever changes bytes is found out."""

import base64
import json
import os
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from cold_tier.errors import CorruptObject, KeyMissing, KeyShredded, NotEncrypted
from cold_tier.format.encryption import Writing
from cold_tier.format.footer import encrypted_columns
from cold_tier.format.index import SegmentIndex, read_index, write_index
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import WrittenSegment, write_segment
from cold_tier.keys import file as key_file
from cold_tier.keys.master import MasterKeys
from cold_tier.manifest.model import EpochStart
from hot_tier.record.columns import NewRecord, decode_records, encode_batches, iter_columns
from tests.cold_tier.format.test_cold_segment import log_of

SECRETS = (b"secret-key", b"secret-value", b"secret-header", b"secret-name")
OBJECT = "topic=orders/partition=0/segment.parquet"
WHERE = f"file:///bucket/{OBJECT}"
HEADERS = (("secret-name", b"secret-header"),)
RECORDS = [NewRecord(1_700_000_000_000 + n, b"secret-key%d" % n, b"secret-value%d" % n, HEADERS) for n in range(3)]
LOG, END = log_of([([record], 0) for record in RECORDS])


@pytest.fixture
def keys(tmp_path: Path) -> MasterKeys:
    path = str(tmp_path / "keys.json")
    key_file.new_key(path, "orders")
    return MasterKeys(path)


def written(path: Path, keys: MasterKeys, name: str = OBJECT, log: bytes = LOG) -> WrittenSegment:
    master = keys.newest("orders")
    return write_segment(
        str(path), iter_columns(log, chunk_bytes=1), 0, END, (EpochStart(3, 0),), b"", {"topic": "orders"},
        zstd_level=3, encryption=Writing(keys, master, name),
    )  # fmt: skip


def read(index: SegmentIndex, data: bytes, keys: MasterKeys | None):
    reader = SegmentReader.open(read_index(write_index(index), WHERE), WHERE, keys)
    parts = [
        reader.decode(number, data[group.start : group.start + group.length])
        for number, group in enumerate(index.row_groups)
    ]
    return [record for part in parts for record in decode_records(encode_batches(part))]


def test_the_key_gives_every_record_and_nothing_leaks_without_it(tmp_path: Path, keys: MasterKeys) -> None:
    path = tmp_path / "rows.parquet"
    made = written(path, keys)
    data = path.read_bytes()
    assert made.master_key == "orders/1" and len(made.index.row_groups) == 3
    assert read(made.index, data, keys) == decode_records(LOG)
    stored = data + write_index(made.index)
    for secret in SECRETS:
        assert secret not in stored
    plain = pq.read_table(path, columns=["offset", "timestamp"])
    assert plain["offset"].to_pylist() == [0, 1, 2]
    with pytest.raises(KeyMissing, match="orders/1"):
        read(made.index, data, None)
    group = made.index.row_groups[1]
    reader = SegmentReader.open(made.index, WHERE)
    columns = reader.decode_plain(1, data[group.start : group.start + group.length])
    assert list(columns.offsets) == [1] and columns.values.null_count == 1


def test_each_object_has_data_keys_of_its_own(tmp_path: Path, keys: MasterKeys) -> None:
    wrapped = []
    for n in range(2):
        index = written(tmp_path / f"{n}.parquet", keys).index
        found = set(re.findall(rb'"wrappedDEK":"([^"]+)"', index.footer))
        assert len(found) == 5  # The footer, key, value, and a header's key and value.
        wrapped += [keys.unwrap(each.decode(), "orders/1") for each in found]
    assert len(set(wrapped)) == 10 and all(len(each) == 32 for each in wrapped)


def test_a_new_version_leaves_older_objects_readable_and_a_destroyed_key_none(tmp_path: Path, keys: MasterKeys) -> None:
    path = str(tmp_path / "keys.json")
    first = written(tmp_path / "1.parquet", keys)
    assert key_file.rotate_key(path, "orders") == 2
    keys = MasterKeys(path)
    second = written(tmp_path / "2.parquet", keys)
    assert second.master_key == "orders/2"
    for n, made in enumerate((first, second), 1):
        assert read(made.index, (tmp_path / f"{n}.parquet").read_bytes(), keys) == decode_records(LOG)
    secret = key_file.read_key_file(path)["orders"].versions[1]
    with open(path, "rb") as before:
        key_file.shred_key(path, "orders", 7)
        assert not before.read().strip(b"\0")  # The old file's own bytes are gone too.
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert secret not in Path(path).read_bytes()
    with pytest.raises(KeyShredded, match="destroyed"):
        read(first.index, (tmp_path / "1.parquet").read_bytes(), MasterKeys(path))


def test_a_destroyed_key_is_forgotten_by_a_running_process(tmp_path: Path, keys: MasterKeys, monkeypatch) -> None:
    epoch = keys.epoch
    key_file.shred_key(str(tmp_path / "keys.json"), "orders", 7)
    monkeypatch.setattr("cold_tier.keys.master._LOOK_S", 0.0)
    assert keys.epoch == epoch + 1 == keys.epoch
    with pytest.raises(KeyShredded):
        keys.newest("orders")


def test_pyarrow_and_duckdb_read_it_with_the_key_file(tmp_path: Path, keys: MasterKeys) -> None:
    """As docs/SPARK.md shows, without any code of ours."""
    written(tmp_path / "rows.parquet", keys)
    named = json.loads((tmp_path / "keys.json").read_bytes())["keys"]

    class KeyFile(pe.KmsClient):
        def unwrap_key(self, wrapped, master):
            name, _, version = master.rpartition("/")
            key, data = base64.b64decode(named[name]["versions"][version]), base64.b64decode(wrapped)
            return AESGCM(key).decrypt(data[:12], data[12:], master.encode())

    factory = pe.CryptoFactory(lambda _: KeyFile())
    decryption = ds.ParquetDecryptionConfig(factory, pe.KmsConnectionConfig(), pe.DecryptionConfiguration())
    options = ds.ParquetFragmentScanOptions(decryption_config=decryption)
    rows = ds.dataset(
        str(tmp_path / "rows.parquet"), format=ds.ParquetFileFormat(default_fragment_scan_options=options)
    )
    assert rows.to_table()["value"].to_pylist() == [b"secret-value%d" % n for n in range(3)]
    assert (
        rows.to_table(columns=["headers"])["headers"].to_pylist()
        == [[{"key": HEADERS[0][0], "value": HEADERS[0][1]}]] * 3
    )
    found = duckdb.sql('select "offset", decode(value) from rows where "offset" < 2 order by 1').fetchall()
    assert found == [(0, "secret-value0"), (1, "secret-value1")]


# What somebody does who may write to the bucket, but has no key


def signed_text(index: SegmentIndex, text: bytes, other: bytes) -> SegmentIndex:
    assert index.footer.count(text) == 1 and len(text) == len(other)
    return SegmentIndex(
        index.base_offset, index.end_offset, index.rows_bytes, index.row_groups, index.epochs,
        index.footer.replace(text, other), index.producers,
    )  # fmt: skip


def test_another_object_of_the_topic_in_its_place_is_found(tmp_path: Path, keys: MasterKeys) -> None:
    path = tmp_path / "rows.parquet"
    made = written(path, keys, OBJECT.replace("segment", "anotherr"))
    with pytest.raises(CorruptObject, match="another object"):
        read(made.index, path.read_bytes(), keys)
    renamed = signed_text(made.index, b"anotherr", b"segment\0")
    with pytest.raises(CorruptObject, match="signature"):
        read(renamed, path.read_bytes(), keys)


def resealed(index: SegmentIndex, data: bytearray) -> SegmentIndex:
    """The index with checksums of the changed bytes: checksums keep nobody out."""
    from dataclasses import replace

    from hot_tier.record.crc import crc32c

    groups = [replace(g, crc32c=crc32c(data[g.start : g.start + g.length])) for g in index.row_groups]
    return replace(index, row_groups=tuple(groups))


def test_any_changed_byte_of_the_rows_is_found(tmp_path: Path, keys: MasterKeys) -> None:
    """Plain columns too, which Parquet does not sign: another time, or another order of offsets, is no small thing."""
    path = tmp_path / "rows.parquet"
    index = written(path, keys).index
    data = path.read_bytes()
    expected = decode_records(LOG)
    group = index.row_groups[0]
    unnoticed = 0
    for at in range(group.start, group.start + group.length):
        changed = bytearray(data)
        changed[at] ^= 0x01
        try:
            found = read(resealed(index, changed), bytes(changed), keys)
        except CorruptObject:
            continue
        assert found == expected  # Such as a page's own statistics, which are not read.
        unnoticed += 1
    assert unnoticed < group.length // 10


def test_the_encrypted_bytes_of_another_row_group_are_refused(tmp_path: Path, keys: MasterKeys) -> None:
    """Two row groups with records of equal length: the bytes fit, but they are bound to their place."""
    path = tmp_path / "rows.parquet"
    for _ in range(100):  # A checksum takes four bytes or five, by chance.
        index = written(path, keys).index
        metadata = SegmentReader.open(index, WHERE, keys).unlock()
        column = [metadata.row_group(n).column(4) for n in range(2)]
        size = column[0].total_compressed_size
        if size == column[1].total_compressed_size:
            break
    assert size == column[1].total_compressed_size
    data = bytearray(path.read_bytes())
    one, other = index.row_groups[0], index.row_groups[1]
    starts = [each.data_page_offset for each in column]
    data[starts[0] : starts[0] + size] = data[starts[1] : starts[1] + size]
    assert one.start <= starts[0] < other.start
    with pytest.raises(CorruptObject):
        read(resealed(index, data), bytes(data), keys)


def test_a_replaced_wrapped_key_is_found(tmp_path: Path, keys: MasterKeys) -> None:
    path, other = tmp_path / "rows.parquet", tmp_path / "other.parquet"
    index, theirs = written(path, keys).index, written(other, keys).index
    ours = re.findall(rb'"isFooterKey":true[^}]*"wrappedDEK":"([^"]+)"', index.footer)[0]
    foreign = re.findall(rb'"isFooterKey":true[^}]*"wrappedDEK":"([^"]+)"', theirs.footer)[0]
    with pytest.raises(CorruptObject, match="signature"):
        read(signed_text(index, ours, foreign), path.read_bytes(), keys)
    with pytest.raises(CorruptObject, match="data key"):
        read(signed_text(index, ours, b"A" * len(ours)), path.read_bytes(), keys)


def test_an_object_that_names_one_key_and_has_another_is_refused(tmp_path: Path, keys: MasterKeys) -> None:
    """Made by a stranger, with a key of his own that we may use too, such as one of AWS KMS that is open to all."""
    key_file.new_key(str(tmp_path / "keys.json"), "strange")
    keys = MasterKeys(str(tmp_path / "keys.json"))
    path = tmp_path / "rows.parquet"
    encryption = Writing(keys, "strange/1", OBJECT)
    encryption.described["master_key"] = "orders/1"
    chunks = iter_columns(LOG, chunk_bytes=1)
    index = write_segment(
        str(path), chunks, 0, END, (EpochStart(3, 0),), b"", {}, zstd_level=3, encryption=encryption
    ).index
    assert SegmentReader.open(index, WHERE).master_key == "orders/1"
    with pytest.raises(NotEncrypted, match="strange/1"):
        read(index, path.read_bytes(), keys)


def test_another_key_of_the_same_name_is_told_from_damage(tmp_path: Path, keys: MasterKeys) -> None:
    path = tmp_path / "rows.parquet"
    index = written(path, keys).index
    os.unlink(tmp_path / "keys.json")
    key_file.new_key(str(tmp_path / "keys.json"), "orders")
    with pytest.raises(CorruptObject, match="another key of that name"):
        read(index, path.read_bytes(), MasterKeys(str(tmp_path / "keys.json")))


def test_threads_share_a_reader(tmp_path: Path, keys: MasterKeys) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = tmp_path / "rows.parquet"
    index = written(path, keys).index
    data = path.read_bytes()
    reader = SegmentReader.open(index, WHERE, keys)

    def decode(number: int) -> pa.Array:
        group = index.row_groups[number % 3]
        return reader.decode(number % 3, data[group.start : group.start + group.length]).values

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(decode, range(300)))
    assert [each[0].as_py() for each in found] == [b"secret-value%d" % (n % 3) for n in range(300)]


# A footer that would end the process


def test_a_walk_over_the_footer_finds_what_is_encrypted(tmp_path: Path, keys: MasterKeys) -> None:
    sealed = written(tmp_path / "rows.parquet", keys).index
    assert encrypted_columns(sealed.footer, WHERE) == {3, 4, 5, 6}
    chunks = iter_columns(LOG, chunk_bytes=1)
    plain = write_segment(str(tmp_path / "plain"), chunks, 0, END, (EpochStart(3, 0),), b"", {}, zstd_level=3).index
    assert encrypted_columns(plain.footer, WHERE) == set()


def test_a_file_that_encrypts_its_offsets_is_a_finding(tmp_path: Path, keys: MasterKeys) -> None:
    path = tmp_path / "rows.parquet"
    properties = pe.create_encryption_properties(b"k" * 32, plaintext_footer=True)
    table = pa.table({"offset": pa.array([0], pa.int64())})
    pq.write_table(table, path, encryption_properties=properties)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size :]
    assert encrypted_columns(footer, WHERE) == {0}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_walked_over_or_refused(data: bytes) -> None:
    try:
        encrypted_columns(data, WHERE)
    except CorruptObject as error:
        assert error.where == WHERE
