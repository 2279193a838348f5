"""DescribeCluster and DescribeLogDirs in every version."""

import pytest

from gateway.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from gateway.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from tests.gateway.kafka.admin.conftest import NODE, NOW_MS, Caller

NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster(call: Caller, version: int) -> None:
    answer = await call(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.cluster_id == call.node.cluster_id and len(answer.cluster_id) == 22
    assert answer.controller_id == NODE
    assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [
        (NODE, "broker.example", 19092, "rack-b")
    ]
    assert answer.cluster_authorized_operations == NOT_ASKED


async def test_operations_are_told_when_asked(call: Caller) -> None:
    answer = await call(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
    assert answer.cluster_authorized_operations > 0


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (9, 115)])
async def test_there_are_only_brokers_to_ask_for(call: Caller, endpoint_type: int, code: int) -> None:
    answer = await call(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert (answer.error_code, bool(answer.error_message), answer.brokers) == (code, True, [])


def produce(call: Caller, topic: str, partition: int, value: bytes) -> int:
    batch = encode_records([NewRecord(NOW_MS, None, value)])
    call.node.partitions.get(topic, partition).append(batch, read_header(batch), NOW_MS)
    return len(batch)


@pytest.mark.parametrize("version", range(1, 5))
async def test_sizes_on_disk(call: Caller, version: int) -> None:
    await call.node.admin.create_topic("a", 2)
    await call.node.admin.create_topic("b", 1)
    size = produce(call, "a", 1, b"x" * 1000)
    (result,) = (await call(DescribeLogDirsRequest(None), version)).results
    assert (result.error_code, result.log_dir) == (0, call.node.logs.disk.data_dir)
    assert {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    } == {("a", 0): 0, ("a", 1): size, ("b", 0): 0}
    assert all(each.offset_lag == 0 and not each.is_future_key for topic in result.topics for each in topic.partitions)
    if version >= 4:
        assert result.total_bytes > result.usable_bytes > 0


async def test_only_the_partitions_asked_for_that_are_here(call: Caller) -> None:
    await call.node.admin.create_topic("a", 3)
    asked = [DescribableLogDirTopic("a", [2, 7, -1]), DescribableLogDirTopic("missing", [0])]
    (result,) = (await call(DescribeLogDirsRequest(asked), 4)).results
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics] == [
        ("a", [2])
    ]
    (result,) = (await call(DescribeLogDirsRequest([]), 4)).results
    assert result.topics == []
