"""A pin holds what a running job reads: nothing expires, nothing that a manifest let go of is deleted."""

from pathlib import Path

import pytest

from cold_tier import layout
from cold_tier.checking.garbage import find_garbage
from cold_tier.errors import CorruptObject
from cold_tier.pins import held, place, release
from hot_tier.errors import SettingsError
from offloader.settings import OffloadSettings
from tests.offloader.harness import TOPIC, archived_node

HOUR = 3_600_000


async def test_nothing_expires_until_the_pin_does(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"retention.ms": str(HOUR)}) as node:
        await node.produce(100)
        await node.settle()
        await place(node.store, TOPIC, node.layout.topic_id, "job", node.clock(), 3 * HOUR)
        node.clock.now_ms += 2 * HOUR
        await node.offloader.round()
        assert node.catalog.get(node.layout).snapshot.log_start_offset == 0
        node.clock.now_ms += 2 * HOUR
        await node.offloader.round()
        assert node.catalog.get(node.layout).snapshot.log_start_offset > 0


async def test_what_was_let_go_of_stays_until_the_pin_is_released(tmp_path: Path) -> None:
    settings = OffloadSettings(delete_grace_ms=1000, manifest_history_ms=1000)
    async with archived_node(str(tmp_path), settings, {"retention.ms": str(HOUR)}) as node:
        await node.produce(100)
        await node.settle()
        first = node.catalog.get(node.layout).snapshot.tail[0]
        node.clock.now_ms += 2 * HOUR
        [archive] = node.offloader
        await archive.apply_retention(node.clock())
        assert await archive.collect_removed(node.clock()) == 0, "its grace period begins"
        await place(node.store, TOPIC, node.layout.topic_id, "job", node.clock(), HOUR)
        node.clock.now_ms += HOUR // 2
        assert await archive.collect_removed(node.clock()) == 0
        assert await find_garbage(node.store, [node.layout], settings, node.clock()) == []
        assert await node.store.head(node.layout.rows(first.name)) is not None
        await release(node.store, TOPIC, node.layout.topic_id, "job")
        assert await archive.collect_removed(node.clock()) > 0
        assert await node.store.head(node.layout.rows(first.name)) is None


async def test_a_pin_is_placed_anew_and_sweeps_expired_ones(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        where = (node.store, TOPIC, node.layout.topic_id)
        await place(*where, "old", 0, 10)
        await place(*where, "job", 100, 10)
        await place(*where, "job", 105, 100)
        assert [(pin.name, pin.expires_ms) for pin in await held(*where, 110)] == [("job", 205)]
        assert await node.keys(layout.pins_folder(*where[1:])) == [layout.pin(*where[1:], "job")]
        assert await held(*where, 205) == []


async def test_a_pin_that_cannot_be_read_holds(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        where = (node.store, TOPIC, node.layout.topic_id)
        await node.store.put(layout.pin(*where[1:], "job"), b"{}")
        with pytest.raises(CorruptObject, match=r"job\.json"):
            await held(*where, 0)


async def test_a_pin_that_cannot_be_read_holds_up_nothing_but_retention(tmp_path: Path) -> None:
    settings = {"retention.ms": str(HOUR), "local.retention.ms": "1000"}
    async with archived_node(str(tmp_path), config=settings) as node:
        await node.produce(60)
        await node.settle()
        await node.store.put(layout.pin(TOPIC, node.layout.topic_id, "job"), b"{}")
        node.clock.now_ms += 2 * HOUR
        await node.produce(60)
        await node.settle()
        [archive] = node.offloader
        assert (archive.failures, archive.writer.current.log_start_offset) == (0, 0)
        assert "job.json" in archive.last_failure
        assert node.partition.log.local_log_start_offset > 50


async def test_a_name_is_checked(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        with pytest.raises(SettingsError, match="a/b"):
            await place(node.store, TOPIC, node.layout.topic_id, "a/b", 0, 1)
