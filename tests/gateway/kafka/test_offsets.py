"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords over the wire."""

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from hot_tier.record.batch import read_header
from tests.gateway.kafka.batches import TIME_MS, batch
from tests.gateway.kafka.node import running_node
from tests.support.waiting import until


async def write(running, *batches, topic="t"):
    partition = running.node.partitions.get(topic, 0)
    for data in batches:
        partition.append(memoryview(data), read_header(data), running.node.clock())
    await until(lambda: partition.high_watermark == partition.log.log_end_offset)
    return partition


@pytest.fixture
async def topic(node):
    await node.node.admin.create_topic("t", 1)
    return node


async def offset_at(wire, timestamp, version=9, *, partition=0, topic="t", epoch=-1, isolation=0):
    asked = ListOffsetsPartition(partition, epoch, timestamp)
    request = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [asked])])
    answer = await wire.ask(request, version)
    (part,) = answer.topics[0].partitions
    assert (answer.topics[0].name, part.partition_index) == (topic, partition)
    return ErrorCode(part.error_code), part.offset, part.timestamp, part.leader_epoch


async def test_begin_end_and_times(topic):
    await write(
        topic,
        batch(b"a", b"b", timestamp=TIME_MS),
        batch(b"c", timestamp=TIME_MS + 1000),
        batch(b"d", timestamp=TIME_MS + 500),
    )
    async with topic.connect() as wire:
        for version in range(1, 12):
            epoch = 0 if version >= 4 else -1
            assert await offset_at(wire, -1, version) == (0, 4, -1, epoch)
            assert await offset_at(wire, -2, version) == (0, 0, -1, epoch)
            assert await offset_at(wire, TIME_MS, version) == (0, 0, TIME_MS, epoch)
            assert await offset_at(wire, TIME_MS + 1, version) == (0, 1, TIME_MS + 1, epoch)
            assert await offset_at(wire, TIME_MS + 2, version) == (0, 2, TIME_MS + 1000, epoch)
            assert await offset_at(wire, TIME_MS + 1001, version) == (0, -1, -1, -1)
            assert await offset_at(wire, 0, version) == (0, 0, TIME_MS, epoch)
        assert await offset_at(wire, -3) == (0, 2, TIME_MS + 1000, 0)
        assert await offset_at(wire, -4) == (0, 0, -1, 0)
        assert await offset_at(wire, -5) == (0, -1, -1, -1)
        assert await offset_at(wire, -6, 11) == (0, -1, -1, -1), "nothing is to be archived"
        assert await offset_at(wire, -1, isolation=1) == (0, 4, -1, 0)


async def test_an_empty_partition(topic):
    async with topic.connect() as wire:
        assert (await offset_at(wire, -1))[:3] == (0, 0, -1)
        assert (await offset_at(wire, -2))[:3] == (0, 0, -1)
        assert await offset_at(wire, -3) == (0, -1, -1, -1)
        assert await offset_at(wire, TIME_MS) == (0, -1, -1, -1)


async def test_what_cannot_be_asked(topic):
    async with topic.connect() as wire:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await offset_at(wire, -1, partition=5))[:2] == (unknown, -1)
        assert (await offset_at(wire, -1, topic="nowhere"))[:2] == (unknown, -1)
        assert (await offset_at(wire, -1, epoch=7))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        for timestamp, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-100, 9)):
            assert (await offset_at(wire, timestamp, version))[:2] == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_where_an_epoch_ends(tmp_path):
    async with running_node(str(tmp_path)) as running:
        await running.node.admin.create_topic("t", 1)
        await write(running, batch(b"a", b"b"))
    async with running_node(str(tmp_path)) as running:
        pass
    async with running_node(str(tmp_path)) as running, running.connect() as wire:

        async def end_of(epoch, current=-1, version=4, partition=0):
            asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(partition, current, epoch)])
            answer = await wire.ask(OffsetForLeaderEpochRequest(-1, [asked]), version)
            (part,) = answer.topics[0].partitions
            return ErrorCode(part.error_code), part.leader_epoch, part.end_offset

        # Epoch 0 wrote two records, epoch 1 none, and now is epoch 2.
        for version in (2, 3, 4):
            assert await end_of(0, version=version) == (0, 0, 2)
        assert await end_of(1) == (0, 0, 2)
        assert await end_of(2) == (0, 2, 2)
        assert await end_of(3) == (0, -1, -1)
        await write(running, batch(b"c"))
        assert await end_of(0) == (0, 0, 2)
        assert await end_of(1) == (0, 0, 2)
        assert await end_of(2) == (0, 2, 3)
        assert (await end_of(0, current=1))[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert (await end_of(0, current=3))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await end_of(0, partition=4))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_are_deleted_up_to_an_offset(topic, version):
    partition = await write(topic, batch(b"a", b"b"), batch(b"c"), batch(b"d"))
    async with topic.connect() as wire:

        async def delete(offset, index=0):
            asked = DeleteRecordsTopic("t", [DeleteRecordsPartition(index, offset)])
            answer = await wire.ask(DeleteRecordsRequest([asked], 1000), version)
            (part,) = answer.topics[0].partitions
            return ErrorCode(part.error_code), part.low_watermark

        assert await delete(2) == (0, 2)
        assert await offset_at(wire, -2) == (0, 2, -1, 0)
        assert await delete(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(0, index=3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await delete(1) == (0, 2)
        assert await delete(-1) == (0, 4)
        assert partition.log.log_start_offset == 4
        assert (await offset_at(wire, -2))[:2] == (0, 4)


@pytest.mark.parametrize(
    ("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0), ("delete", 0)]
)
async def test_a_topic_that_is_only_compacted_keeps_its_records(topic, policy, code):
    await topic.node.admin.create_topic("kept", 1, config={"cleanup.policy": policy})
    partition = await write(topic, batch(b"a", b"b"), topic="kept")
    async with topic.connect() as wire:
        asked = DeleteRecordsTopic("kept", [DeleteRecordsPartition(0, 1)])
        (part,) = (await wire.ask(DeleteRecordsRequest([asked], 1000), 2)).topics[0].partitions
    assert (part.error_code, part.low_watermark) == (code, -1 if code else 1)
    assert partition.log.log_start_offset == (0 if code else 1)


async def test_records_of_the_service_are_not_deleted(topic):
    await topic.node.groups.shards.require_topic()
    async with topic.connect() as wire:
        asked = DeleteRecordsTopic("__consumer_offsets", [DeleteRecordsPartition(0, -1)])
        (part,) = (await wire.ask(DeleteRecordsRequest([asked], 1000), 2)).topics[0].partitions
    assert part.error_code == ErrorCode.INVALID_TOPIC
