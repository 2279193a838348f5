"""The table follows the image: what is made can be used, what is deleted is gone from memory and disk."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.admin import NewTopic, TopicAdmin
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.cluster.store import Delete, Put
from hot_tier.errors import InvalidConfig, NotLeader, UnknownPartition, UnknownTopic
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.table import PartitionTable

ME = NodeId(0)
DEADLINE_S = 20
SET = ConfigOperation.SET


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class OneNode:
    store: SqliteStore
    image: ClusterImage
    admin: TopicAdmin
    logs: LogManager
    table: PartitionTable

    def append(self, topic: str, partition: int = 0, records: int = 1) -> Offset:
        batch = encode_records([NewRecord(now_ms(), b"k", b"v")] * records)
        return self.table.get(topic, partition).append(batch, read_header(batch), now_ms()).end_offset

    async def produce(self, topic: str, partition: int = 0, records: int = 1) -> Offset:
        end = self.append(topic, partition, records)
        committed = self.table.get(topic, partition).when_committed(end)
        if committed is not None:
            async with asyncio.timeout(DEADLINE_S):
                await committed
        return end

    def directories(self) -> set[str]:
        return {topic.topic_id.hex for topic in self.logs.topics_on_disk()}


@asynccontextmanager
async def running(directory: Path, defaults: TopicConfig | None = None) -> AsyncIterator[OneNode]:
    defaults = defaults or TopicConfig()
    store = SqliteStore(str(directory / "metadata.db"))
    await store.open()
    await take_over(store, BrokerInfo(ME, simple_endpoints("127.0.0.1", 9092)), now_ms())
    image = ClusterImage(store)
    await image.open()
    logs = LogManager(str(directory), LogSettings(min_free_bytes=0), now_ms)
    await logs.open()
    table = PartitionTable(image, logs, ME, defaults)
    table.open()
    admin = TopicAdmin(store, image, defaults=defaults, settings=ClusterSettings(), clock=now_ms)
    yield OneNode(store, image, admin, logs, table)
    table.close()
    await logs.close()
    await image.close()
    await store.close()


Start = Callable[[], AbstractAsyncContextManager[OneNode]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return lambda: running(tmp_path)


@pytest.fixture
async def node(start: Start) -> AsyncIterator[OneNode]:
    async with start() as started:
        yield started


async def test_what_is_made_can_be_used(node: OneNode) -> None:
    await node.admin.create_topic("t", 2)
    assert await node.produce("t", 1, 3) == 3
    partition = node.table.get("t", 1)
    assert (partition.high_watermark, partition.tp) == (3, ("t", 1))
    assert partition is node.table.get("t", 1)
    assert node.table.get("t", 0).high_watermark == 0


async def test_what_is_not_there(node: OneNode) -> None:
    await node.admin.create_topic("t", 2)
    with pytest.raises(UnknownTopic):
        node.table.get("u", 0)
    for partition in (2, -1, 1 << 40):
        with pytest.raises(UnknownPartition):
            node.table.get("t", partition)
    assert len(node.table) == 0


async def test_opening_is_left_until_it_is_needed(node: OneNode) -> None:
    await node.admin.create_topic("t", 100)
    assert len(node.table) == 0
    node.table.get("t", 7)
    assert [partition.tp for partition in node.table] == [("t", 7)]
    assert node.directories() == set(), "nothing is on disk before the first write"


async def test_a_grown_topic_serves_its_new_partitions(node: OneNode) -> None:
    await node.admin.create_topic("t", 1)
    await node.produce("t", 0)
    before = node.table.get("t", 0)
    await node.admin.add_partitions("t", 3)
    assert await node.produce("t", 2) == 1
    assert node.table.get("t", 0) is before
    assert before.topic.partitions == 3


# Deleting


async def test_a_deleted_topic_is_gone_from_memory_and_disk(node: OneNode) -> None:
    made = await node.admin.create_topic("t", 1)
    await node.produce("t")
    old = node.table.get("t", 0)
    assert node.directories() == {made.id.hex}
    await node.admin.delete_topic("t")
    with pytest.raises(UnknownTopic):
        node.table.get("t", 0)
    with pytest.raises(UnknownTopic):
        old.append(bytearray(), None, 0)  # type: ignore[arg-type]
    assert node.directories() == set()


async def test_a_deletion_answers_who_waits(node: OneNode) -> None:
    await node.admin.create_topic("t", 1)
    end = node.append("t")
    waiting = node.table.get("t", 0).when_committed(end)
    woken: list[bool] = []
    node.table.get("t", 0).add_waiter(lambda: woken.append(True))
    node.table._remove(node.image.topic("t"))
    assert waiting is not None
    with pytest.raises(UnknownTopic):
        await waiting
    assert woken == [True]


async def test_a_topic_made_again_starts_clean(node: OneNode) -> None:
    await node.admin.create_topic("t", 1)
    await node.produce("t", 0, 5)
    await node.admin.delete_topic("t")
    await node.admin.create_topic("t", 1)
    assert node.table.get("t", 0).log.log_end_offset == 0
    assert await node.produce("t", 0, 2) == 2


async def test_a_stop_in_the_middle_of_a_deletion_is_finished_at_the_next_start(start: Start) -> None:
    async with start() as node:
        gone = await node.admin.create_topic("gone", 1)
        kept = await node.admin.create_topic("kept", 1)
        await node.produce("gone")
        await node.produce("kept")
        node.image.unsubscribe(node.table._image_changed)
        await node.admin.delete_topic("gone")
        assert node.directories() == {gone.id.hex, kept.id.hex}
        node.image.subscribe(node.table._image_changed)
    async with start() as node:
        assert node.directories() == {kept.id.hex}


async def test_logs_that_metadata_does_not_know_are_left_alone(start: Start) -> None:
    async with start() as node:
        lost = await node.admin.create_topic("lost", 1)
        await node.produce("lost", 0, 3)
    async with start() as node:
        revision = await node.store.transact([], [Delete(model.topic_key("lost"))])
        assert revision is not None
    async with start() as node:
        assert node.directories() == set(), "deleted while it ran: the image showed it go"

    async with start() as node:
        lost = await node.admin.create_topic("lost", 1)
        await node.produce("lost", 0, 3)
    store = SqliteStore(os.path.join(node.logs.disk.data_dir, "metadata.db"))
    await store.open()
    await store.transact([], [Delete(model.topic_key("lost"))])
    await store.close()
    async with start() as node:
        assert node.directories() == {lost.id.hex}


# Restarting


async def test_records_and_commits_survive_a_restart_in_a_new_epoch(start: Start) -> None:
    async with start() as node:
        await node.admin.create_topic("t", 2)
        await node.produce("t", 1, 4)
        assert node.table.get("t", 1).leader_epoch == 0
    async with start() as node:
        assert {partition.tp.partition for partition in node.table} == {0, 1}, "opened by themselves"
        partition = node.table.get("t", 1)
        assert (partition.high_watermark, partition.leader_epoch) == (4, 1)
        assert await node.produce("t", 1) == 5
        assert partition.log.end_of_epoch(0) == (0, 4)
        assert partition.log.end_of_epoch(1) == (1, 5)


async def test_stopping_answers_who_waits(start: Start) -> None:
    async with start() as node:
        await node.admin.create_topic("t", 1)
        waiting = node.table.get("t", 0).when_committed(node.append("t"))
    assert waiting is not None
    with pytest.raises(NotLeader):
        await waiting


# Settings and leaders


async def test_settings_reach_open_partitions(node: OneNode) -> None:
    await node.admin.create_topic("t", 2)
    partition = node.table.get("t", 0)
    await node.admin.alter_config(
        "t", [ConfigChange("flush", SET, "os"), ConfigChange("min.insync.replicas", SET, "1")]
    )
    assert partition.log.config.flush == "os"
    assert partition.topic.config["flush"] == "os"
    node.append("t")
    assert partition.high_watermark == 1
    assert node.table.get("t", 1).log.config.flush == "os"
    assert node.table.config(node.image.topic("t")).flush == "os"


async def test_settings_that_are_not_understood_leave_open_partitions_as_they_were(node: OneNode) -> None:
    await node.admin.create_topic("t", 2, 1, {"flush": "os"})
    partition = node.table.get("t", 0)
    topic = node.image.topic("t")
    broken = model.encode({**vars_of(topic), "config": {"from.the.future": "1"}})
    revision = await node.store.transact([], [Put(model.topic_key("t"), broken)])
    assert revision is not None
    await node.image.reached(revision)
    assert partition.log.config.flush == "os"
    with pytest.raises(InvalidConfig):
        node.table.get("t", 1)


def vars_of(topic: model.Topic) -> dict[str, object]:
    return {
        name: getattr(topic, name)
        for name in ("name", "id", "partitions", "replication_factor", "created_ms", "internal")
    }


async def test_a_partition_that_another_broker_leads_is_let_go(node: OneNode) -> None:
    topic = await node.admin.create_topic("t", 2)
    partition = node.table.get("t", 0)
    waiting = partition.when_committed(node.append("t"))
    tp = TopicPartition("t", PartitionId(0))

    async def lead(leader: int) -> None:
        held = node.image.partition_state(tp)
        state = model.PartitionState(
            NodeId(leader), LeaderEpoch(held.leader_epoch + 1), (NodeId(leader),), (NodeId(leader),)
        )
        revision = await node.store.transact([], [Put(model.partition_key(topic.id, 0), model.encode(state))])
        assert revision is not None
        await node.image.reached(revision)

    await lead(5)
    with pytest.raises(NotLeader):
        node.table.get("t", 0)
    with pytest.raises(NotLeader):
        partition.append(bytearray(), None, 0)  # type: ignore[arg-type]
    assert waiting is not None and waiting.done()
    assert node.directories() == {topic.id.hex}, "its records stay"
    await lead(ME)
    again = node.table.get("t", 0)
    assert again is not partition
    assert again.leader_epoch == 2
    assert await node.produce("t", 0) == 2


async def test_a_new_epoch_of_the_same_leader_keeps_the_partition(node: OneNode) -> None:
    await node.admin.create_topic("t", 1)
    partition = node.table.get("t", 0)
    revision = await take_over(node.store, BrokerInfo(ME, simple_endpoints("127.0.0.1", 9092)), now_ms())
    await node.image.reached(revision)
    assert node.table.get("t", 0) is partition
    assert partition.leader_epoch == 1


async def test_one_partition_that_cannot_be_opened_does_not_keep_the_others_from_it(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is lost hands over many partitions in one transaction."""
    topic = await node.admin.create_topic("t", 3)

    async def lead(leader: NodeId, epoch: int) -> None:
        state = model.PartitionState(leader, LeaderEpoch(epoch), (leader,), (leader, NodeId(5)))
        puts = [Put(model.partition_key(topic.id, index), model.encode(state)) for index in range(3)]
        revision = await node.store.transact([], puts)
        assert revision is not None
        await node.image.reached(revision)

    await lead(NodeId(5), 1)
    open_log = node.logs.log

    def fails(name: str, topic_id: UUID, partition: int, config: TopicConfig) -> PartitionLog:
        if partition == 1:
            raise OSError(24, "too many open files")
        return open_log(name, topic_id, partition, config)

    monkeypatch.setattr(node.logs, "log", fails)
    await lead(ME, 2)
    assert [node.table.find("t", index) is not None for index in range(3)] == [True, False, True]
    monkeypatch.undo()
    assert await node.produce("t", 1) == 1, "it is opened when it is asked for"


async def test_four_thousand_partitions_come_back_within_seconds(start: Start) -> None:
    async with start() as node:
        await node.admin.create_topics([NewTopic(f"t{n}", 4, config={"flush": "os"}) for n in range(1000)])
        for n in range(1000):
            node.append(f"t{n}", n % 4)
    started = time.perf_counter()
    async with start() as node:
        took = time.perf_counter() - started
        assert len(node.table) == 4000
        assert sum(partition.high_watermark for partition in node.table) == 1000
        assert took < 10


async def test_what_the_service_keeps_for_itself_is_never_archived(tmp_path: Path) -> None:
    """With archiving as the default: it would be kept out of retention, and its delete markers for ever."""
    async with running(tmp_path, TopicConfig(remote_storage_enable=True)) as node:
        await node.admin.create_topic("__consumer_offsets", 1, 1, {}, internal=True)
        await node.admin.create_topic("t", 1, 1, {})
        assert not node.table.get("__consumer_offsets", 0).log.config.remote_storage_enable
        assert node.table.get("t", 0).log.config.remote_storage_enable
