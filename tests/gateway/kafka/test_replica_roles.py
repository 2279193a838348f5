"""Leaders and followers over real sockets and logs: what is copied, what is committed, what a change of roles keeps."""

import asyncio
import os
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Delete, Put
from hot_tier.errors import NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader
from hot_tier.ids import NodeId, Offset
from hot_tier.record.batch import iter_headers
from hot_tier.record.records import NewRecord, encode_records
from tests.gateway.kafka.members import Member, members
from tests.gateway.kafka.node import now_ms
from tests.hot_tier.log.support import sync_each_with
from tests.support.waiting import until

DEADLINE_S = 20


async def committed(member: Member, end: int, index: int = 0) -> None:
    future = member.partition(index).when_committed(Offset(end))
    if future is not None:
        async with asyncio.timeout(DEADLINE_S):
            await future


@pytest.mark.parametrize("flush", ["commit", "os"])
async def test_what_is_acknowledged_is_on_every_replica(tmp_path, flush):
    async with members(tmp_path, 1, 2, 3, flush=flush) as cluster:
        await cluster.create(1, 2, 3, partitions=3)
        for number in range(30):
            end = cluster[1].append(b"%d" % number, b"x" * 1000, index=number % 3)
            if number % 4 == 0:
                await committed(cluster[1], end, number % 3)
                for node in (2, 3):
                    log = cluster[node].log(number % 3)
                    assert (log.flushed_offset if flush == "commit" else log.log_end_offset) >= end
        for index in range(3):
            await committed(cluster[1], 20, index)
            assert await cluster[2].bytes(index) == await cluster[3].bytes(index) == await cluster[1].bytes(index)


async def test_followers_hear_what_is_committed(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a", b"b"))
        await until(lambda: cluster[2].replica().high_watermark == 2)
        assert cluster[2].log().committed_offset == 2


async def test_a_follower_that_is_gone_leaves_the_in_sync_set_and_comes_back(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"all three"))
        await cluster.stop(3)
        await committed(cluster[1], cluster[1].append(b"two"))
        assert cluster[1].partition().in_sync == (1, 2)
        await cluster.start(3)
        await until(lambda: set(cluster.state().isr) == {1, 2, 3})
        assert cluster[3].log().log_end_offset == 2
        await committed(cluster[1], cluster[1].append(b"three again"))
        assert await cluster[3].bytes() == await cluster[1].bytes()


async def test_a_follower_that_hangs_leaves_the_in_sync_set(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"all three"))
        await cluster[3].fetchers.close()
        end = cluster[1].append(b"two")
        assert cluster[1].partition().when_committed(Offset(end)) is not None
        await committed(cluster[1], end)
        assert set(cluster.state().isr) == {1, 2}


async def test_a_follower_that_hangs_leaves_the_in_sync_set_while_another_is_filled(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3, partitions=2)
        await committed(cluster[1], cluster[1].append(b"all three"))
        leader = cluster[1]

        async def fetch_without_end() -> None:
            while True:
                leader.isr.due(leader.partition(1))
                await asyncio.sleep(0.05)

        filling = asyncio.create_task(fetch_without_end())
        try:
            await cluster[3].fetchers.close()
            await committed(leader, leader.append(b"two"))
            assert set(cluster.state().isr) == {1, 2}
        finally:
            filling.cancel()


async def test_a_follower_with_nothing_to_fetch_stays_in_sync(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, partitions=2)
        await committed(cluster[1], cluster[1].append(b"a"))
        before = cluster.state().version
        await asyncio.sleep(3 * cluster.settings.lag_time_max_ms / 1000)
        assert cluster.state().version == before
        assert cluster[1].isr.shrinks == 0


async def test_too_few_in_sync(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, **{"min.insync.replicas": "2"})
        await committed(cluster[1], cluster[1].append(b"a"))
        await cluster[2].fetchers.close()
        end = cluster[1].append(b"b")
        with pytest.raises(NotEnoughReplicasAfterAppend):
            await committed(cluster[1], end)
        with pytest.raises(NotEnoughReplicas):
            cluster[1].append(b"c")
        assert cluster[1].append(b"d", acks=1) == end + 1


@pytest.mark.parametrize("nodes", [(1,), (1, 2, 3)])
async def test_acknowledged_by_the_leader_is_synced_there(tmp_path, monkeypatch, nodes):
    """And where it is alone, readable at once."""

    def slowly(fd: int) -> None:
        time.sleep(0.005)
        os.fdatasync(fd)

    monkeypatch.setattr("hot_tier.log.sync_threads.sync_each", sync_each_with(slowly))
    async with members(tmp_path, *nodes) as cluster:
        await cluster.create(*nodes)
        async with cluster[1].connect() as wire:
            for number in range(60):
                data = [PartitionProduceData(0, encode_records([NewRecord(now_ms(), None, b"%d" % number)]))]
                request = ProduceRequest(
                    acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)]
                )
                (answer,) = (await wire.ask(request, 9)).responses[0].partition_responses
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
                assert cluster[1].log().flushed_offset > number
                assert len(nodes) > 1 or cluster[1].partition().high_watermark > number


async def test_a_new_leader_goes_on_where_the_old_one_was(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"a", b"b"))
        old = cluster[1].partition()
        await cluster.elect(2, (1, 2, 3))
        with pytest.raises(NotLeader):
            cluster[1].partition()
        with pytest.raises(NotLeader):
            old.when_committed(Offset(99))
        await committed(cluster[2], cluster[2].append(b"c"))
        assert cluster[2].partition().high_watermark == 3
        await cluster.copied(3)
        data = await cluster[2].bytes()
        assert data == await cluster[1].bytes() == await cluster[3].bytes()
        assert [header.leader_epoch for _, header in iter_headers(data)] == [0, 1]


async def test_records_that_were_not_committed_give_way_to_the_new_leaders(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"a"))
        await cluster[2].fetchers.close()
        await cluster[3].fetchers.close()
        lost = cluster[1].append(b"never acknowledged", b"nor this")
        waiting = cluster[1].partition().when_committed(Offset(lost))
        assert waiting is not None
        await cluster.elect(2, (2, 3))
        assert isinstance(waiting.exception(), NotLeader)
        cluster[2].append(b"instead")
        await until(lambda: cluster[1].log().leader_epoch == 1)
        assert await cluster[1].bytes() == await cluster[2].bytes()
        assert cluster[1].log().log_end_offset == 2


async def test_a_new_epoch_of_the_same_leader_is_followed(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a"))
        await cluster.elect(1, (1, 2))
        await committed(cluster[1], cluster[1].append(b"b"))
        assert await cluster[2].bytes() == await cluster[1].bytes()


async def test_a_replica_that_is_added_copies_all_and_one_that_is_removed_leaves_nothing(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        topic = await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a"))
        added = tuple(map(NodeId, (1, 2, 3)))
        await cluster.elect(1, (1, 2), replicas=added, adding=(NodeId(3),))
        await until(lambda: set(cluster.state().isr) == {1, 2, 3})
        assert await cluster[3].bytes() == await cluster[1].bytes()
        directory = cluster[2].log().directory
        await cluster.elect(1, (1, 3), replicas=(NodeId(1), NodeId(3)), adding=())
        assert cluster[2].log() is None
        assert not (tmp_path / directory).exists()
        await committed(cluster[1], cluster[1].append(b"b"))
        assert topic.id in {each.topic_id for each in cluster[1].logs.topics_on_disk()}


async def test_a_fetch_of_an_earlier_incarnation_does_not_count(tmp_path):
    """Its broker was registered anew: what its log holds is not known until it fetches as the new one."""
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a"))
        two = cluster[2]
        two.fetchers.connect = None  # nothing reconnects
        await two.fetchers.close()
        await cluster.write(Delete(model.broker_key(two.node_id)))
        await until(lambda: cluster.state().isr == (1,))
        await cluster.write(
            Put(
                model.broker_key(two.node_id),
                model.encode(BrokerInfo(two.node_id, simple_endpoints(two.host, two.port))),
            )
        )
        await committed(cluster[1], cluster[1].append(b"b"))
        assert cluster.state().isr == (1,)


async def test_records_deleted_at_the_leader_are_deleted_at_followers(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a", b"b", b"c"))
        await until(lambda: cluster[2].replica().high_watermark == 3)
        cluster[1].partition().delete_records_before(2)
        await until(lambda: cluster[2].log().log_start_offset == 2)


async def test_a_follower_far_behind_begins_where_the_leader_does(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, **{"segment.bytes": "1024"})
        await committed(cluster[1], cluster[1].append(b"a"))
        await cluster.stop(2)
        for _ in range(5):
            await committed(cluster[1], cluster[1].append(b"x" * 900))
        cluster[1].partition().delete_records_before(4)
        await cluster.start(2)
        await until(lambda: set(cluster.state().isr) == {1, 2})
        assert cluster[2].log().log_start_offset == 4
        assert await cluster[2].bytes() == (await cluster[1].bytes())[-len(await cluster[2].bytes()) :]


async def test_a_lost_connection_is_told_and_made_anew(tmp_path):
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a"))
        (fetcher,) = cluster[2].fetchers._fetchers.values()
        fetcher._link.client._transport.abort()
        await until(lambda: cluster[2].suspected == [1])
        await committed(cluster[1], cluster[1].append(b"b"))


# Readers


def offset_at(timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])])


@pytest.mark.parametrize("by_time", [False, True])
async def test_a_new_leader_says_what_is_latest_once_it_knows(tmp_path, by_time):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"a"))
        await cluster[2].fetchers.close()
        await asyncio.sleep(0.005)
        asked = offset_at(now_ms() if by_time else -1)
        cluster[1].append(b"b")
        await until(lambda: cluster[3].log().log_end_offset == 2)
        await cluster.stop(1)
        await cluster.elect(3, (2, 3))
        async with cluster[3].connect() as wire:
            (answer,) = (await wire.ask(asked, 9)).topics[0].partitions
            assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            await cluster.stop(2)
            await until(lambda: cluster[3].partition().high_watermark == 2)
            (answer,) = (await wire.ask(asked, 9)).topics[0].partitions
            assert (answer.error_code, answer.offset) == (0, 1 if by_time else 2)


async def test_a_client_reads_from_the_replica_in_its_rack(tmp_path):
    async with members(tmp_path, 1) as cluster:
        await cluster.start(2, rack="near")
        topic = await cluster.create(1, 2)
        await committed(cluster[1], cluster[1].append(b"a", b"b"))
        await until(lambda: cluster[2].replica().high_watermark == 2)

        def fetch(offset: int, rack: str = "near", wait_ms: int = 0) -> FetchRequest:
            wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
            return FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                topics=[FetchTopic(topic_id=topic.id, partitions=[wanted])],
                rack_id=rack,
            )

        async with cluster[1].connect() as leader, cluster[2].connect() as follower:
            (answer,) = (await leader.ask(fetch(0, "elsewhere"), 15)).responses[0].partitions
            assert (answer.preferred_read_replica, bool(answer.records)) == (-1, True)
            (answer,) = (await leader.ask(fetch(0), 15)).responses[0].partitions
            assert (answer.preferred_read_replica, answer.records) == (2, b"")
            (answer,) = (await follower.ask(fetch(0), 15)).responses[0].partitions
            assert bytes(answer.records) == await cluster[1].bytes()
            (answer,) = (await follower.ask(fetch(9), 15)).responses[0].partitions
            assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
            waiting = asyncio.create_task(follower.ask(fetch(2, wait_ms=DEADLINE_S * 1000), 15))
            await asyncio.sleep(0)
            cluster[1].append(b"c")
            (answer,) = (await waiting).responses[0].partitions
            assert [header.base_offset for _, header in iter_headers(bytes(answer.records))] == [2]


async def test_librdkafka_reads_from_the_replica_in_its_rack(tmp_path):
    def read(bootstrap: str) -> list[bytes]:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "client.rack": "near", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 3 and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(10, 0.1)]
        consumer.close()
        return found

    async with members(tmp_path, 1) as cluster:
        await cluster.start(2, rack="near")
        await cluster.create(1, 2)
        for value in (b"a", b"b", b"c"):
            await committed(cluster[1], cluster[1].append(value))
        assert await asyncio.to_thread(read, f"127.0.0.1:{cluster[1].port}") == [b"a", b"b", b"c"]
        assert cluster[1].partition().fetched_bytes == 0
        assert cluster[2].replica().fetched_bytes > 0
