"""TxnOffsetCommit over the wire: every version, every refusal with its code, and what OffsetFetch says meanwhile."""

import asyncio

import pytest

from gateway.coordinators.errors import CoordinatorLoading
from gateway.coordinators.journal.partitioning import partition_of
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.kafka.protocol.messages.end_txn import EndTxnRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from gateway.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.gateway.kafka.node import GROUPS

ID = "copier"
ADDS = 5


@pytest.fixture
async def wire(node):
    await node.node.admin.create_topic("t", 2)
    async with node.connect() as wire:
        yield wire


async def begin(wire) -> tuple[int, int]:
    answer = await settled(wire, InitProducerIdRequest(ID, 60_000), 4)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def settled(wire, request, version):
    """Asks again while the last transaction is being completed, as clients do."""
    async with asyncio.timeout(30):
        while True:
            answer = await wire.ask(request, version)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer
            await asyncio.sleep(0.01)


async def commit(
    wire,
    producer,
    offsets,
    version=3,
    *,
    group="g",
    member="",
    generation=-1,
    instance=None,
    topic="t",
    metadata=None,
    name=ID,
):
    partitions = [TxnOffsetCommitRequestPartition(each, offset, -1, metadata) for each, offset in offsets.items()]
    request = TxnOffsetCommitRequest(
        name, group, *producer, generation, member, instance, [TxnOffsetCommitRequestTopic(topic, partitions)]
    )
    answer = await wire.ask(request, version)
    return {each.partition_index: ErrorCode(each.error_code) for each in answer.topics[0].partitions}


async def add(wire, producer, group="g") -> None:
    answer = await settled(wire, AddOffsetsToTxnRequest(ID, *producer, group), 3)
    assert answer.error_code == 0


async def end(wire, producer, committed, version=3):
    answer = await settled(wire, EndTxnRequest(ID, *producer, committed), version)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


async def fetched(wire, *partitions, version=9, stable=True):
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(partitions))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)], require_stable=stable)
        answer = (await wire.ask(request, version)).groups[0]
    else:
        topics = [OffsetFetchRequestTopic("t", list(partitions))]
        answer = await wire.ask(OffsetFetchRequest(group_id="g", topics=topics, require_stable=stable), version)
    return [(ErrorCode(each.error_code), each.committed_offset) for each in answer.topics[0].partitions]


async def eventually(wire, *expected):
    async with asyncio.timeout(30):
        while await fetched(wire, *range(len(expected))) != [(0, each) for each in expected]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", range(6))
async def test_offsets_count_when_the_transaction_is_committed(wire, version):
    producer = await begin(wire)
    offset = 10
    for committed, expected in ((True, 10), (False, 10), (True, 12)):
        if version < ADDS:
            await add(wire, producer)
        assert await commit(wire, producer, {0: offset, 1: offset}, version) == {0: 0, 1: 0}
        following = await end(wire, producer, committed, 5 if version >= ADDS else 3)
        producer = following if version >= ADDS else producer
        await eventually(wire, expected, expected)
        offset += 1


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_who_wants_stable_offsets_waits_for_the_transaction(wire, version):
    producer = await begin(wire)
    await add(wire, producer)
    await commit(wire, producer, {0: 10})
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await fetched(wire, 0, 1, version=version) == [(unstable, -1), (0, -1)]
    assert await fetched(wire, 0, 1, version=version, stable=False) == [(0, -1), (0, -1)]
    await end(wire, producer, True)
    await eventually(wire, 10)
    assert await fetched(wire, 0, version=version) == [(0, 10)]


async def test_a_group_that_was_not_added(wire):
    producer = await begin(wire)
    assert await commit(wire, producer, {0: 1}, 3) == {0: ErrorCode.INVALID_TXN_STATE}
    assert await commit(wire, producer, {0: 1}, 4) == {0: ErrorCode.TRANSACTION_ABORTABLE}
    assert await fetched(wire, 0) == [(0, -1)]


async def test_a_producer_that_is_not_this_one(wire):
    old = await begin(wire)
    producer = await begin(wire)
    assert producer == (old[0], old[1] + 1)
    await add(wire, producer)
    for version in (3, 5):
        assert await commit(wire, old, {0: 1}, version) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert await commit(wire, (old[0] + 99, 0), {0: 1}, version) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert await commit(wire, producer, {0: 1}, version, name="nobody") == {
            0: ErrorCode.INVALID_PRODUCER_ID_MAPPING
        }
    assert await commit(wire, producer, {0: 1}) == {0: 0}
    assert await commit(wire, old, {0: 2}) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    await end(wire, producer, True)
    await eventually(wire, 1)


async def test_what_comes_after_the_end(wire):
    producer = await begin(wire)
    await add(wire, producer)
    await commit(wire, producer, {0: 1})
    await end(wire, producer, False)
    async with asyncio.timeout(30):
        while (codes := await commit(wire, producer, {0: 2})) == {0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert codes == {0: ErrorCode.INVALID_TXN_STATE}
    assert await fetched(wire, 0) == [(0, -1)]


async def test_members_and_generations(wire):
    producer = await begin(wire)
    await add(wire, producer)
    refused = {("m", 1): ErrorCode.ILLEGAL_GENERATION, ("m", -1): 0, ("", -1): 0}
    for (member, generation), code in refused.items():
        answer = await commit(wire, producer, {0: 1}, member=member, generation=generation)
        assert answer == {0: code}, (member, generation)
    assert await commit(wire, producer, {0: 1}, group="") == {0: ErrorCode.INVALID_GROUP_ID}


async def test_partitions_are_answered_one_by_one(wire):
    producer = await begin(wire)
    await add(wire, producer)
    answer = await commit(wire, producer, {0: 1, 7: 1})
    assert answer == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await commit(wire, producer, {0: 1}, topic="none") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    long = "m" * (GROUPS.offset_metadata_max_bytes + 1)
    assert await commit(wire, producer, {0: 1}, metadata=long) == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert await commit(wire, producer, {1: 1}, metadata="m") == {1: 0}


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_while_the_group_is_read_back(node, wire, version, code):
    producer = await begin(wire)
    await add(wire, producer)
    shard = node.node.groups.shards.find("g")
    assert shard.number == partition_of("g", GROUPS.offsets_topic_partitions)
    shard.loading = True
    with pytest.raises(CoordinatorLoading):
        node.node.groups.fetch_offsets("g")
    assert await commit(wire, producer, {0: 1}, version) == {0: code}
    shard.loading = False
    assert await commit(wire, producer, {0: 1}, version) == {0: 0}
