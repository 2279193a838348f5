"""Starts of a cluster's member that do not come to their end: what they found out is not lost with them."""

import os
from pathlib import Path
from typing import Any

import pytest

from hot_tier.errors import MetadataUnavailable
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from tests.support.members import Members, members
from tests.support.waiting import until


def log_files(cluster: Members, node_id: int) -> list[Path]:
    return sorted((cluster.directory / str(node_id) / "logs").glob("torn.*/0/*.log"))


async def test_a_start_that_fails_after_recovery_leaves_the_damage_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery puts the log in order and the failed start closes it cleanly: the next one finds nothing by itself."""

    async def unreachable(*_: Any) -> None:
        raise MetadataUnavailable("no endpoint of etcd answers")

    async with members(tmp_path, 2) as cluster:
        await cluster.make_topic("torn", partitions=1, replicas=2)
        for _ in range(20):
            sent = await cluster[1].post("/api/v1/topics/torn/messages", data=b"x" * 1_000)
            assert sent.status == 200, sent
        await cluster.stop(2)
        (tmp_path / "2" / "clean-shutdown").unlink()
        (torn,) = log_files(cluster, 2)
        whole = torn.read_bytes()
        torn.write_bytes(whole[: len(whole) // 2])
        with monkeypatch.context() as patch:
            patch.setattr("tierlog.assembly.disown", unreachable)
            with pytest.raises(MetadataUnavailable):
                await cluster.start(2)
        await cluster.start(2)
        image = cluster[1].broker.node.image
        await until(lambda: len(image.partition_states(image.topic("torn"))[0].isr) == 2)
        assert [each.read_bytes() for each in log_files(cluster, 2)] == [whole]


async def test_a_process_that_is_killed_after_recovery_leaves_the_loss_known(tmp_path: Path) -> None:
    """Recovery makes an empty log where the lost one ended: the next one finds a log that begins there."""
    async with members(tmp_path, 2) as cluster:
        await cluster.make_topic("torn", partitions=1, replicas=2)
        for _ in range(20):
            sent = await cluster[1].post("/api/v1/topics/torn/messages", data=b"x" * 1_000)
            assert sent.status == 200, sent
        image = cluster[1].broker.node.image
        await until(lambda: len(image.partition_states(image.topic("torn"))[0].isr) == 2)
        await cluster.stop(2)
        (tmp_path / "2" / "clean-shutdown").unlink()
        (lost,) = log_files(cluster, 2)
        whole = lost.read_bytes()
        lost.unlink()
        killed = LogManager(str(tmp_path / "2"), LogSettings(min_free_bytes=0))
        await killed.open(background=False)
        os.close(killed._lock_fd)
        await cluster.start(2)
        await until(lambda: len(image.partition_states(image.topic("torn"))[0].isr) == 2)
        assert [each.read_bytes() for each in log_files(cluster, 2)] == [whole]


async def damaged_and_alone(cluster: Members) -> tuple[Path, bytes]:
    """Broker 2 has a damaged copy and is not in sync; broker 1, which is, has stopped. The copy, and what it was."""
    await cluster.make_topic("torn", partitions=1, replicas=2)
    for _ in range(20):
        sent = await cluster[1].post("/api/v1/topics/torn/messages", data=b"x" * 1_000)
        assert sent.status == 200, sent
    await cluster.stop(2)
    image = cluster[1].broker.node.image
    await until(lambda: image.partition_states(image.topic("torn"))[0].isr == (1,))
    await cluster.stop(1)
    (cluster.directory / "2" / "clean-shutdown").unlink()
    (copy,) = log_files(cluster, 2)
    whole = copy.read_bytes()
    copy.write_bytes(whole[: len(whole) // 2])
    return copy, whole


async def test_a_damaged_copy_is_kept_until_there_is_one_to_copy_from(tmp_path: Path) -> None:
    async with members(tmp_path, 2) as cluster:
        copy, whole = await damaged_and_alone(cluster)
        for _ in range(2):
            await cluster.start(2)
            assert copy.read_bytes() == whole[: len(whole) // 2]
            await cluster.stop(2)
        await cluster.start(2)
        await cluster.start(1)
        image = cluster[1].broker.node.image
        await until(lambda: len(image.partition_states(image.topic("torn"))[0].isr) == 2)
        assert [each.read_bytes() for each in log_files(cluster, 2)] == [whole]
        assert not (tmp_path / "2" / "in-doubt").exists()


async def test_a_damaged_copy_may_be_chosen_where_the_others_are_lost(tmp_path: Path) -> None:
    async with members(tmp_path, 2) as cluster:
        await damaged_and_alone(cluster)
        alone = await cluster.start(2)
        changed = await alone.call(
            "PATCH", "/api/v1/topics/torn", json={"config": {"unclean.leader.election.enable": "true"}}
        )
        assert changed.status == 200, changed
        image = alone.broker.node.image
        await until(lambda: image.partition_states(image.topic("torn"))[0].leader == 2)
        found = await alone.get("/api/v1/topics/torn/partitions/0/messages?offset=0&limit=5")
        assert [message["offset"] for message in found.json["messages"]] == [0, 1, 2, 3, 4]
        assert not (tmp_path / "2" / "in-doubt").exists()
