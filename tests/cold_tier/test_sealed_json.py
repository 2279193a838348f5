"""Small documents in the bucket: any bit that flips is an error, or makes no difference. None is believed in part."""

from pathlib import Path
from uuid import UUID

import pytest

from cold_tier import layout, pins
from cold_tier.descriptions import TopicDescription, read_description, write_description
from cold_tier.errors import CorruptObject
from cold_tier.objects.open import StoreSettings, open_store
from tests.damage.harms import flip

ID = UUID("3f2f33f4-93a4-4a4b-a9a2-0d3b71c1a3ee")


def test_every_bit_of_a_topic_description() -> None:
    """A shorter retention would be restored, and the records be gone."""
    right = TopicDescription("orders", ID, 3, 1, {"retention.ms": "2592000000"}, 1_700_000_000_000)
    content = write_description(right)
    refused = 0
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert read_description(changed, "here") == right, changed
        except CorruptObject:
            refused += 1
    assert refused > 7 * len(content)


async def test_every_bit_of_a_pin(tmp_path: Path) -> None:
    """One that seems to end earlier would let go of what a job reads."""
    store = open_store(StoreSettings(bucket=f"file://{tmp_path}"), create=True)
    pin = await pins.place(store, "orders", ID, "job", 1_700_000_000_000, 3_600_000)
    path = tmp_path / layout.pin("orders", ID, "job")
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flip(path, bit)
        try:
            assert await pins.held(store, "orders", ID, 1_700_000_000_001) == [pin]
        except CorruptObject as error:
            assert "pin" in error.what
        path.write_bytes(content)


async def test_a_pin_under_another_name(tmp_path: Path) -> None:
    store = open_store(StoreSettings(bucket=f"file://{tmp_path}"), create=True)
    await pins.place(store, "orders", ID, "long", 0, 3_600_000)
    await pins.place(store, "orders", ID, "short", 0, 1_000)
    short = (tmp_path / layout.pin("orders", ID, "short")).read_bytes()
    (tmp_path / layout.pin("orders", ID, "long")).write_bytes(short)
    with pytest.raises(CorruptObject, match="it is the pin 'short'"):
        await pins.held(store, "orders", ID, 2_000)


def test_documents_of_version_0_1_have_no_checksum() -> None:
    content = (
        b'{"name":"t","id":"%s","partitions":1,"replication_factor":1,"config":{},"created_ms":5}' % str(ID).encode()
    )
    assert read_description(content, "here") == TopicDescription("t", ID, 1, 1, {}, 5)
