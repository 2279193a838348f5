"""Batches aside: what is written is read, and any other bytes are our own error or a value."""

import dataclasses
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cold_tier.errors import CorruptObject
from cold_tier.format import aside
from cold_tier.format.aside import AsideReader, AsideWriter, read_aside, read_directory, write_directory
from cold_tier.format.index import read_index
from cold_tier.keys.file import new_key
from cold_tier.keys.master import MasterKeys
from hot_tier.record.batch import assign, iter_headers, read_header
from hot_tier.record.columns import NewRecord, encode_records
from hot_tier.record.crc import crc32c
from tests.golden.bucket.make import stored

relaxed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def batches(sizes: list[tuple[int, int]]) -> list[bytearray]:
    """A batch for each (records, offsets before it that are not aside)."""
    made, offset = [], 0
    for count, gap in sizes:
        offset += gap
        batch = encode_records([NewRecord(offset + n, b"key", b"value" * 20) for n in range(count)], transactional=True)
        assign(batch, offset, 2)
        made.append(batch)
        offset += count
    return made


def written(folder: Path, sizes: list[tuple[int, int]], keys: MasterKeys | None = None, master_key: str = ""):
    writer = AsideWriter(str(folder / "aside"), 0, 10**6, "the/object", keys, master_key)
    for batch in batches(sizes):
        writer.add(batch, read_header(batch))
    index = writer.finish()
    return writer, index, (folder / "aside").read_bytes() if index else b""


def everything(index: aside.AsideIndex, data: bytes, keys: MasterKeys | None = None) -> bytes:
    reader = AsideReader(index.directory, "the/object", "here", keys)
    portions = enumerate(index.directory.portions)
    return b"".join(reader.portion(number, data[each.start : each.start + each.length]) for number, each in portions)


@relaxed
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=12),
    st.sampled_from([1, 300, 1 << 20]),
    st.sampled_from([1, 2, 1000]),
    st.booleans(),
)
def test_every_batch_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, sizes: list, most_bytes: int, most_batches: int, encrypted: bool
) -> None:
    folder = tmp_path_factory.mktemp("aside")
    keys = None
    if encrypted:
        new_key(str(folder / "keys.json"), "orders")
        keys = MasterKeys(str(folder / "keys.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aside, "PORTION_BYTES", most_bytes)
        patch.setattr(aside, "PORTION_BATCHES", most_batches)
        writer, index, data = written(folder, sizes, keys, "orders/1" if encrypted else "")
    assert read_aside(data, "here") == index
    assert read_directory(write_directory(index.directory), "here") == index.directory
    assert everything(index, data, keys) == b"".join(batches(sizes))
    assert (b"value" not in data) == encrypted
    entry = index.entry
    assert (entry.size, entry.crc32c, entry.batches) == (len(data), crc32c(data), len(sizes))
    assert writer.records == sum(count for count, _ in sizes)
    assert len(index.directory.portions) <= len(sizes)


def test_without_a_batch_there_is_no_object(tmp_path: Path) -> None:
    _, index, _ = written(tmp_path, [])
    assert index is None and not (tmp_path / "aside").exists()


@relaxed
@given(st.binary(max_size=200))
def test_any_bytes_are_an_error_of_ours(data: bytes) -> None:
    for read in (read_aside, read_directory, read_index):
        with pytest.raises(CorruptObject) as raised:
            read(data, "here")
        assert raised.value.where == "here"


@relaxed
@given(st.data())
def test_changed_bytes_are_an_error_of_ours_or_the_same_batches(drawn: st.DataObject) -> None:
    """With a checksum that fits: somebody else may have written them."""
    name = drawn.draw(st.sampled_from(["aborted.aside", "aborted.index"]))
    data = bytearray(stored(name))
    for _ in range(drawn.draw(st.integers(1, 4))):
        data[drawn.draw(st.integers(0, len(data) - 1))] = drawn.draw(st.integers(0, 255))
    resealed = bytes(data[:-4]) + struct.pack(">I", crc32c(bytes(data[:-4])))
    try:
        if name.endswith(".index"):
            found = read_index(resealed, "here").aside
            whole = stored("aborted.aside")
        else:
            found, whole = read_aside(resealed, "here"), resealed
        if found is None:
            return
        reader = AsideReader(found.directory, "the/object", "here")
        for number, each in enumerate(found.directory.portions):
            batches = reader.portion(number, whole[each.start : each.start + each.length])
            for _, header in iter_headers(batches):
                assert each.first_offset <= header.base_offset < header.end_offset <= each.end_offset
    except CorruptObject as error:
        assert error.where == "here"


def test_a_key_of_another_length_is_damage(tmp_path: Path) -> None:
    new_key(str(tmp_path / "keys.json"), "orders")
    keys = MasterKeys(str(tmp_path / "keys.json"))
    _, index, data = written(tmp_path, [(1, 0)], keys, "orders/1")
    short = dataclasses.replace(index.directory, wrapped_key=keys.wrap(b"short", "orders/1"))
    with pytest.raises(CorruptObject, match="5 bytes"):
        everything(dataclasses.replace(index, directory=short), data, keys)
