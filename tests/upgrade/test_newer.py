"""What a version does on what a newer one left: it refuses, says why, and changes nothing."""

import asyncio
import hashlib
from contextlib import ExitStack
from pathlib import Path

import pytest

from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.store import Put
from hot_tier.log.sealed_text import write_sealed_text
from tests.support.brokers import Brokers
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.support.service import MakeService
from tests.upgrade.versions import environment_of_old, run_as
from tierlog.process import ServeFailed, ServeProcess

LEFT_OUT = {"broker.lock", "lock"}
"""They change with every attempt."""


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in LEFT_OUT
    }


def refusal(node: ServeProcess, environment: dict[str, str]) -> str:
    with pytest.raises(ServeFailed):
        run_as(node, environment)
    return node.output_path.read_text()


def test_a_data_directory_of_a_newer_format_is_left_alone(make_service: MakeService) -> None:
    node = make_service()
    node.stop()
    (node.data_dir / "format").write_bytes(write_sealed_text("format", ["2", "0 0"]))
    before = digests(node.data_dir)
    assert "the data directory is in format 2, this version knows 1" in refusal(node, {})
    assert digests(node.data_dir) == before


def test_0_1_0_leaves_a_single_node_of_this_version_alone(make_service: MakeService) -> None:
    old = environment_of_old()
    node = make_service()
    node.stop()
    before = digests(node.data_dir)
    said = refusal(node, old)
    assert "metadata.db" in said, said
    assert digests(node.data_dir) == before
    run_as(node, {})


def test_a_cluster_of_a_newer_format_is_not_joined(tmp_path: Path) -> None:
    async def write(cluster: EtcdCluster, value: bytes) -> None:
        store = EtcdStore([cluster.members[0].endpoint], "/tierlog/")
        await store.open()
        assert await store.transact([], [Put("cluster", value)])
        await store.close()

    async def keys(cluster: EtcdCluster) -> list[str]:
        store = EtcdStore([cluster.members[0].endpoint], "/tierlog/")
        await store.open()
        found = [item.key for item in (await store.range("")).items]
        await store.close()
        return found

    with ExitStack() as stack:
        cluster = stack.enter_context(etcd_cluster(1))
        asyncio.run(write(cluster, b'{"id":"some","format":2}'))
        node = Brokers(tmp_path, cluster.url, stack, {}).add(1)
        assert "the cluster's metadata is in format 2, this version knows 1" in refusal(node, {})
        assert asyncio.run(keys(cluster)) == ["cluster"], "it did not register"
        asyncio.run(write(cluster, b'{"id":"some"}'))
        run_as(node, {})
