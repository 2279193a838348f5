"""What a producer sent before it reconnected, and what comes late: the network was cut, and its kernel sends again.

Without TV2 all transactions of a producer have one epoch, so a late request looks like one about the open transaction.
"""

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.kafka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gateway.kafka.protocol.messages.end_txn import EndTxnRequest
from tests.gateway.kafka.test_transactions import Client, becomes, log_end, producer, stable, wire
from tests.gateway.kafka.test_txn_offset_commit import commit as commit_offsets
from tests.gateway.kafka.test_txn_offset_commit import fetched
from tests.support.waiting import until

__all__ = ["producer", "wire"]


async def moved_on(node, producer, newer) -> Client:
    """Returns the producer, at its newer connection, amid the next transaction."""
    assert await producer.add(0) == [0]
    assert await producer.produce() == 0
    now = Client(newer, producer.name, producer.id, producer.epoch, producer.sequence)
    assert await now.end() == 0
    await until(lambda: stable(node) == 2)
    assert await now.add(0) == [0]
    assert await now.produce() == 0
    return now


def requests(producer):
    me = producer.name, producer.id, producer.epoch
    return {
        "commit": (EndTxnRequest(*me, True), 4),
        "abort": (EndTxnRequest(*me, False), 4),
        "add": (AddPartitionsToTxnRequest([], *me, [AddPartitionsToTxnTopic("t", [1])]), 3),
        "add offsets": (AddOffsetsToTxnRequest(*me, "g"), 3),
    }


@pytest.mark.parametrize("late", ["commit", "abort", "add", "add offsets"])
async def test_a_late_request_does_not_touch_the_next_transaction(node, wire, producer, late):
    async with node.connect() as newer:
        now = await moved_on(node, producer, newer)
        await wire.send(*requests(producer)[late])
        assert await wire.closed() == b""
        assert await now.state() == "Ongoing" and log_end(node) == 3
        assert node.node.transactions.describe("tx").partitions == (("t", 0),)
        assert await now.end(commit=False) == 0
        await becomes(node, "CompleteAbort")


async def test_a_client_that_connects_again_is_heard(node, wire, producer):
    async with node.connect() as newer:
        now = await moved_on(node, producer, newer)
        await wire.send(*requests(producer)["commit"])
        assert await wire.closed() == b""
        async with node.connect() as newest:
            now.wire = newest
            assert await now.end() == 0
        await becomes(node, "CompleteCommit")


async def test_a_stranger_takes_no_connection_from_a_producer(node, wire, producer):
    assert await producer.add(0) == [0]
    async with node.connect() as newer:
        zombie = Client(newer, producer.name, producer.id, producer.epoch + 1)
        assert await zombie.end() != 0
        assert await producer.end() == 0


async def test_late_offsets_of_a_group_do_not_join_the_next_transaction(node, wire, producer):
    me = producer.id, producer.epoch
    assert (await wire.ask(AddOffsetsToTxnRequest(producer.name, *me, "g"), 3)).error_code == 0
    assert await commit_offsets(wire, me, {0: 10}, name=producer.name) == {0: 0}
    async with node.connect() as newer:
        now = Client(newer, producer.name, *me)
        assert await now.end() == 0
        await becomes(node, "CompleteCommit")
        assert (await newer.ask(AddOffsetsToTxnRequest(producer.name, *me, "g"), 3)).error_code == 0
        assert await commit_offsets(newer, me, {0: 20}, name=producer.name) == {0: 0}
        with pytest.raises((EOFError, ConnectionError)):
            await commit_offsets(wire, me, {0: 10}, name=producer.name)
        assert await now.end() == 0
        await becomes(node, "CompleteCommit")
        await until(lambda: node.node.groups.fetch_offsets("g"))
        assert await fetched(newer, 0) in ([(0, 20)], [(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)])
