"""The archive of a deleted topic goes after the grace period, all of it, and nothing of its namesake."""

from pathlib import Path

import pytest

from hot_tier.cluster.model import CONTROLLER_KEY, encode
from hot_tier.cluster.store import Put
from offloader import failpoints
from offloader.settings import OffloadSettings
from tests.offloader.harness import SMALL, TOPIC, Archived, archived_node

MINUTE = 60_000
SETTINGS = OffloadSettings(delete_grace_ms=10 * MINUTE, garbage_check_ms=0, orphan_age_ms=10**15)


async def delete_and_make_again(node: Archived) -> tuple[set[str], set[str]]:
    """The objects of the deleted topic, and those of the one that has its name now."""
    await node.produce(60)
    await node.settle()
    old = set(await node.keys())
    await node.running.node.admin.delete_topic(TOPIC)
    node.clock.now_ms += 1000
    await node.running.node.admin.create_topic(TOPIC, 1, 1, SMALL)
    await node.produce(60)
    await node.settle()
    return old, set(await node.keys()) - old


async def test_the_old_objects_go_and_the_new_ones_stay(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), SETTINGS) as node:
        old, new = await delete_and_make_again(node)
        assert {key.split("/")[0] for key in new} == {f"topic={TOPIC}", "_tierlog"}
        await node.offloader.round()
        assert old <= set(await node.keys()), "readers in flight finish"
        node.clock.now_ms += 10 * MINUTE
        await node.offloader.round()
        left = set(await node.keys())
        assert not left & old
        assert new <= left
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert len(await node.read_cold(0, end)) == end


@pytest.mark.parametrize("place", ["deleted.rows", "deleted.indexes", "deleted.manifests"])
async def test_a_deletion_that_broke_off_is_finished_later(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived_node(str(tmp_path), SETTINGS) as node:
        old, new = await delete_and_make_again(node)
        node.clock.now_ms += 10 * MINUTE
        monkeypatch.setitem(failpoints._chosen, place, ("fail", 1))
        [failure] = (await node.offloader.collect_garbage()).failed
        assert place in failure
        assert old & set(await node.keys())
        clock = node.clock
    async with archived_node(str(tmp_path), SETTINGS, clock=clock) as node:
        await node.offloader.round()
        left = set(await node.keys())
        assert not left & old
        assert new <= left


async def test_rows_without_an_index_go_with_the_last_topic_of_the_name(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), SETTINGS) as node:
        await node.produce(60)
        await node.settle()
        stem = "00000000000000000005-0-" + "ab" * 16
        await node.store.put(f"topic={TOPIC}/partition=0/{stem}.parquet", b"its index was never written")
        await node.store.put(f"topic={TOPIC}/partition=0/notes.txt", b"not ours")
        node.clock.now_ms = 4_000_000_000_000  # After every file's time.
        await node.running.node.admin.delete_topic(TOPIC)
        node.clock.now_ms += 10 * MINUTE
        collected = await node.offloader.collect_garbage()
        assert collected.of_deleted_topics > 0 and collected.failed == []
        assert await node.keys() == [f"topic={TOPIC}/partition=0/notes.txt"]
        assert (await node.running.node.store.range("archived/")).items == ()
        assert (await node.offloader.collect_garbage()).of_deleted_topics == 0


async def test_in_a_cluster_the_controller_collects(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), SETTINGS) as node:
        old, _ = await delete_and_make_again(node)
        node.clock.now_ms += 10 * MINUTE
        parts = node.running.node
        for controller, collected in ((7, False), (parts.node_id, True)):
            revision = await parts.store.transact([], [Put(CONTROLLER_KEY, encode({"node": controller}))])
            assert revision is not None
            await parts.image.reached(revision)
            await node.offloader.collect_garbage()
            assert bool(old & set(await node.keys())) is not collected
