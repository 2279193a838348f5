"""Starts of a cluster's member that do not come to their end: what they found out is not lost with them."""

from pathlib import Path
from typing import Any

import pytest

from hot_tier.errors import MetadataUnavailable
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
            patch.setattr("tierlog.broker.disown", unreachable)
            with pytest.raises(MetadataUnavailable):
                await cluster.start(2)
        await cluster.start(2)
        image = cluster[1].broker.node.image
        await until(lambda: len(image.partition_states(image.topic("torn"))[0].isr) == 2)
        assert [each.read_bytes() for each in log_files(cluster, 2)] == [whole]
