"""An encrypted topic from the local disk to a consumer: with its key, without, with others' objects, and destroyed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cold_tier import proposals
from cold_tier.cache import ColdReadSettings
from cold_tier.checking.segment_check import check_segment
from cold_tier.checking.verify import verify
from cold_tier.errors import CorruptObject, KeyMissing, KeyShredded, NotEncrypted
from cold_tier.format.encryption import Demand
from cold_tier.format.open import open_segment
from cold_tier.inventory import find_topics
from cold_tier.keys import file as key_file
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.manifest.replacement import Proposal, Replacement
from cold_tier.objects.open import open_store
from cold_tier.reader import ColdReader
from cold_tier.reports import Finding
from cold_tier.rewrite import Rewrite, rewrite
from hot_tier.errors import InvalidConfig
from offloader.encryption import demand_of
from offloader.settings import OffloadSettings
from tests.offloader.harness import TOPIC, archived_node
from tests.offloader.test_bucket_went_back import DROPPING, archived_twice, put_back, rounds

KEEPING = {"local.retention.ms": "-1", "retention.ms": "-1"}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def keys_file(tmp_path: Path) -> str:
    path = str(tmp_path / "keys.json")
    key_file.new_key(path, "orders")
    return path


def encrypted_node(folder: Path, keys_file: str, **config: str):
    return archived_node(str(folder), config={"archive.encryption.key": "orders", **config}, keys_file=keys_file)


async def segments_of(node) -> list:
    snapshot = await load_newest(node.store, node.layout)
    manifest = Manifest(snapshot, PageCache(node.store))
    return [each async for each in manifest.segments(snapshot.start_offset, snapshot.end_offset)]


async def test_all_that_is_archived_is_encrypted_and_comes_back(tmp_path: Path, keys_file: str) -> None:
    async with encrypted_node(tmp_path, keys_file) as node:
        await node.produce(40)
        await node.settle()
        segments = await segments_of(node)
        end = segments[-1].end_offset
        assert len(segments) > 1 and {each.master_key for each in segments} == {"orders/1"}
        assert await node.read_cold(0, end) == node.sent[:end]
        for path in (tmp_path / "bucket").rglob("*"):
            if path.is_file():
                assert b"value-" not in path.read_bytes() and b"key-" not in path.read_bytes()
        assert demand_of(node.running.node.image.archive_record(node.layout.topic_id, 0)) == Demand(0, ("orders",))


async def test_what_the_cache_on_disk_holds_is_encrypted(tmp_path: Path, keys_file: str) -> None:
    async with encrypted_node(tmp_path, keys_file) as node:
        await node.produce(40)
        await node.settle()
        reader = ColdReader(node.store, ColdReadSettings(), str(tmp_path / "cache"))
        await reader.read(node.catalog.get(node.layout), 0, 1 << 16)
        await asyncio.sleep(0.2)
        await reader.close()
        kept = [path.read_bytes() for path in (tmp_path / "cache").iterdir()]
        assert kept and all(b"value-" not in data for data in kept)


async def test_without_the_key_there_is_an_error_that_names_it_and_structure_is_still_checked(
    tmp_path: Path, keys_file: str
) -> None:
    async with encrypted_node(tmp_path, keys_file) as node:
        await node.produce(40)
        await node.settle()
        segments = await segments_of(node)
        keyless = open_store(replace(node.settings, keys_file=""))
        manifest = node.catalog.get(node.layout)
        reader = ColdReader(keyless, ColdReadSettings())
        with pytest.raises(KeyMissing, match="orders/1") as error:
            await reader.read(manifest, 0, 1 << 16)
        assert not isinstance(error.value, KeyShredded) and "store.keys_file" in error.value.hint
        middle = segments[1].base_offset
        stamp = node.sent[middle].timestamp
        found = await reader.first_at_or_after(manifest, stamp, middle, segments[1].end_offset)
        assert found is not None and found.offset == middle
        assert await reader.greatest_timestamp(manifest, 0, middle + 1) == max(
            r.timestamp for r in node.sent[: middle + 1]
        )
        events = [event async for event in verify(keyless, await find_topics(keyless))]
        assert not [event for event in events if isinstance(event, Finding)]
        for store in (keyless, node.store):
            checked = await check_segment(store, node.layout, segments[0])
            assert checked.rows == segments[0].rows and not checked.findings
        await reader.close()


async def test_a_topic_without_its_key_is_not_archived_plain(tmp_path: Path, keys_file: str) -> None:
    async with encrypted_node(tmp_path, keys_file, **{"archive.encryption.key": "another"}) as node:
        await node.produce(20)
        for _ in range(3):
            await node.offloader.round()
        [archive] = list(node.offloader)
        assert archive.backlog_bytes and "'another'" in archive.last_failure
        assert not await node.keys("topic=")


async def test_a_plain_object_in_the_place_of_an_encrypted_one_is_refused(tmp_path: Path, keys_file: str) -> None:
    """Whoever can write to the bucket can make a plain segment, with index and manifest. Brokers know better."""
    async with archived_node(str(tmp_path), keys_file=keys_file) as node:
        await node.produce(20)
        await node.settle()
        plain_end = (await segments_of(node))[-1].end_offset
        await node.running.node.admin.replace_config(
            TOPIC, {**node.running.node.image.topic(TOPIC).config, "archive.encryption.key": "orders"}
        )
        await node.produce(20)
        await node.settle()
        demand = demand_of(node.running.node.image.archive_record(node.layout.topic_id, 0))
        assert demand == Demand(plain_end, ("orders",))
        manifest = node.catalog.get(node.layout)
        honest = ColdReader(node.store, ColdReadSettings(), demanded=lambda layout: demand)
        assert await honest.read(manifest, 0, 100) and await honest.read(manifest, plain_end, 100)
        await honest.close()
        # The first segment is plain by right. A demand from the start on makes it what a forger would have put there.
        strict = ColdReader(node.store, ColdReadSettings(), demanded=lambda layout: Demand(0, ("orders",)))
        with pytest.raises(NotEncrypted, match="since offset 0"):
            await strict.read(manifest, 0, 100)
        foreign = ColdReader(node.store, ColdReadSettings(), demanded=lambda layout: Demand(0, ("ours",)))
        with pytest.raises(NotEncrypted, match="no key of this topic"):
            await foreign.read(manifest, plain_end, 100)
        await strict.close()
        await foreign.close()


async def test_encryption_cannot_be_taken_away(tmp_path: Path, keys_file: str) -> None:
    async with encrypted_node(tmp_path, keys_file) as node:
        admin, config = node.running.node.admin, dict(node.running.node.image.topic(TOPIC).config)
        del config["archive.encryption.key"]
        with pytest.raises(InvalidConfig, match="cannot be taken away"):
            await admin.replace_config(TOPIC, config)


async def test_a_destroyed_key_ends_reading_at_once_and_archiving(tmp_path: Path, keys_file: str, monkeypatch) -> None:
    monkeypatch.setattr("cold_tier.keys.master._LOOK_S", 0.0)
    async with encrypted_node(tmp_path, keys_file) as node:
        await node.produce(40)
        await node.settle()
        manifest = node.catalog.get(node.layout)
        reader = ColdReader(node.store, ColdReadSettings())
        assert await reader.read(manifest, 0, 1 << 16) and reader.read_now(manifest, 0, 1 << 16)
        key_file.shred_key(keys_file, "orders", 7)
        assert reader.read_now(manifest, 0, 1 << 16) is None and reader.memory_bytes == 0
        with pytest.raises(KeyShredded, match="destroyed"):
            await reader.read(manifest, 0, 1 << 16)
        await reader.close()
        events = [event async for event in verify(node.store, await find_topics(node.store))]
        assert not [event for event in events if isinstance(event, Finding)]
        before = len(await node.keys("topic="))
        await node.produce(20)
        await node.offloader.round()
        assert len(await node.keys("topic=")) == before
        assert "destroyed" in next(iter(node.offloader)).last_failure
        # What is in the hot tier can still be read.
        assert node.partition.log.log_end_offset == 60


async def test_a_new_key_archives_what_comes_after_a_destroyed_one(tmp_path: Path, keys_file: str) -> None:
    async with encrypted_node(tmp_path, keys_file) as node:
        await node.produce(20)
        await node.settle()
        end = (await segments_of(node))[-1].end_offset
        key_file.shred_key(keys_file, "orders", 7)
        key_file.new_key(keys_file, "orders-2")
        config = dict(node.running.node.image.topic(TOPIC).config)
        await node.running.node.admin.replace_config(TOPIC, {**config, "archive.encryption.key": "orders-2"})
        await asyncio.sleep(1.1)  # Within a second every process knows of the destroyed key.
        await node.produce(20)
        await node.settle()
        segments = await segments_of(node)
        assert [each.master_key for each in segments][-1] == "orders-2/1"
        assert await node.read_cold(end, segments[-1].end_offset) == node.sent[end : segments[-1].end_offset]
        with pytest.raises(KeyShredded):
            await node.read_cold(0, end)


async def test_a_rewrite_is_taken_only_if_it_is_encrypted_with_a_key_of_the_topic(
    tmp_path: Path, keys_file: str
) -> None:
    key_file.new_key(keys_file, "mallory")
    async with encrypted_node(tmp_path, keys_file, **KEEPING) as node:
        await node.produce(60)
        await node.settle()
        old = tuple((await segments_of(node))[:2])
        for master, refusal in (("", "not encrypted"), ("mallory/1", "no key of this topic"), ("orders/1", "")):
            new = await asyncio.to_thread(rewrite, node.settings, Rewrite(node.layout, old, master_key=master))
            replacement = Replacement(tuple(each.name for each in old), (new,))
            await proposals.place(node.store, Proposal(node.layout, node.clock(), (replacement,)))
            [archive] = list(node.offloader)
            [answer] = await node.offloader.consider_proposals(archive)
            assert refusal in answer.reason and answer.outcome == ("refused" if refusal else "published")
        assert (await segments_of(node))[0].name == new.name
        assert await node.read_cold(0, new.end_offset) == node.sent[: new.end_offset]


async def test_a_forged_proposal_says_encrypted_and_is_plain(tmp_path: Path, keys_file: str) -> None:
    async with encrypted_node(tmp_path, keys_file, **KEEPING) as node:
        await node.produce(60)
        await node.settle()
        old = tuple((await segments_of(node))[:2])
        plain = await asyncio.to_thread(rewrite, node.settings, Rewrite(node.layout, old))
        lying = replace(plain, master_key="orders/1")
        replacement = Replacement(tuple(each.name for each in old), (lying,))
        await proposals.place(node.store, Proposal(node.layout, node.clock(), (replacement,)))
        [archive] = list(node.offloader)
        [answer] = await node.offloader.consider_proposals(archive)
        assert answer.outcome == "refused" and "not with 'orders/1'" in answer.reason
        # The same in a manifest, where no leader looks.
        with pytest.raises(NotEncrypted, match="it is not"):
            await open_segment(node.store, node.layout, lying)
        with pytest.raises(CorruptObject, match="rows"):
            await open_segment(node.store, node.layout, replace(plain, rows=0))


async def test_a_repair_takes_encrypted_segments_up_again_and_no_plain_ones(tmp_path: Path, keys_file: str) -> None:
    settings = OffloadSettings(manifest_history_ms=10**15)
    config = {**DROPPING, "archive.encryption.key": "orders"}
    async with archived_node(str(tmp_path), settings, config=config, keys_file=keys_file) as node:
        _, end = await archived_twice(node, tmp_path)
        before = await segments_of(node)
        # A stranger's plain segment over more of the offsets than ours have.
        await asyncio.to_thread(rewrite, node.settings, Rewrite(node.layout, tuple(before[:2])))
        put_back(tmp_path, node, "all manifests")
        await rounds(node)
        [archive] = node.offloader
        assert archive.stopped is not None
        await node.offloader.repair(archive, "recover")
        assert [(each.name, each.master_key) for each in await segments_of(node)] == [
            (each.name, "orders/1") for each in before
        ]
        assert [each.offset for each in await node.read_cold(0, end)] == list(range(end))
        assert demand_of(node.running.node.image.archive_record(node.layout.topic_id, 0)) == Demand(0, ("orders",))
