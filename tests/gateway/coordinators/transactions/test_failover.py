"""The coordinator when the leadership of its journal changes: what was decided is completed, nothing else is."""

import asyncio
import dataclasses

import pytest
import uvloop

from gateway.coordinators.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidTransactionalId,
    NotCoordinator,
    ProducerFencedByNewer,
    TooManyTransactionalIds,
    TransactionalIdNotFound,
    WrongTransactionState,
)
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.transactions import transaction
from gateway.coordinators.transactions.keys import write_key
from gateway.coordinators.transactions.states import State
from gateway.coordinators.transactions.topic import TRANSACTIONS_TOPIC
from gateway.coordinators.transactions.transaction import Producer
from gateway.coordinators.transactions.values import write_transaction
from hot_tier.cluster.model import PartitionState, encode, partition_key
from hot_tier.cluster.store import Put
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.record.batch import read_header
from tests.gateway.coordinators.node import NODE_ID, Coordinated, coordinated, tp
from tests.gateway.kafka.batches import batch
from tests.support.waiting import until

OTHER = NodeId(5)


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def node(tmp_path):
    async with coordinated(str(tmp_path / "node")) as running:
        await running.admin.create_topic("t", 4)
        yield running


def place(node: Coordinated, name: str = "tx") -> TopicPartition:
    topic = node.image.topic(TRANSACTIONS_TOPIC)
    return TopicPartition(topic.name, PartitionId(partition_of(name, topic.partitions)))


async def change(node: Coordinated, *, at: TopicPartition | None = None, epoch: int = 0, **changes) -> PartitionState:
    """What another broker or the controller writes, as of when this node has seen it."""
    at = at or place(node)
    state = node.image.partition_state(at)
    state = dataclasses.replace(state, leader_epoch=state.leader_epoch + epoch, **changes)
    key = partition_key(node.image.topic(at.topic).id, at.partition)
    revision = await node.store.transact([], [Put(key, encode(state))])
    assert revision is not None
    await node.image.reached(revision)
    return state


async def produced(node: Coordinated, producer: tuple[int, int], partition: int = 0) -> None:
    """Adds a partition as TV2 does, and writes one batch."""
    led = node.partitions.get("t", partition)
    data = batch(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    header = read_header(data)
    verification = led.begin_verification(header, "tx", tv2=True)
    results = await node.transactions.admit("tx", *producer, [tp(partition)], add=True)
    assert results == {tp(partition): None}
    led.append(data, header, node.clock(), verification=verification)


def stable(node: Coordinated, partition: int = 0) -> int:
    return node.partitions.get("t", partition).last_stable_offset


async def test_a_transaction_goes_on_after_the_coordinator_has_moved(node):
    producer = await node.transactions.init_producer("tx", 60_000)
    await produced(node, producer)
    await change(node, epoch=1, leader=OTHER, isr=(OTHER,), replicas=(NODE_ID, OTHER))
    with pytest.raises(NotCoordinator):
        await node.transactions.end("tx", *producer, commit=True, tv2=True)
    await change(node, epoch=1, leader=NODE_ID, isr=(NODE_ID,))
    await node.transactions.shards.settled()
    assert node.transactions.describe("tx").partitions == (tp(0),)
    assert await node.transactions.end("tx", *producer, commit=True, tv2=True) == (producer[0], 1)
    await until(lambda: stable(node) == 2)


async def test_what_was_sent_before_the_coordinator_moved_away_is_late_when_it_is_back(node):
    producer = await node.transactions.init_producer("tx", 60_000)
    connected_s = asyncio.get_running_loop().time()
    assert not node.transactions.is_late("tx", *producer, connected_s)
    await asyncio.sleep(0.01)
    await change(node, epoch=1, leader=OTHER, isr=(OTHER,), replicas=(NODE_ID, OTHER))
    assert not node.transactions.is_late("tx", *producer, connected_s), "who coordinates says so itself"
    await change(node, epoch=1, leader=NODE_ID, isr=(NODE_ID,))
    await node.transactions.shards.settled()
    await asyncio.sleep(0.01)
    assert node.transactions.is_late("tx", *producer, connected_s)
    assert not node.transactions.is_late("tx", *producer, asyncio.get_running_loop().time())


@pytest.mark.parametrize("commit", [True, False])
async def test_what_was_decided_is_completed_by_the_next_coordinator(node, commit):
    """The old one wrote its decision and died: before the markers, or after them and before it said so."""
    producer = await node.transactions.init_producer("tx", 60_000)
    await produced(node, producer)
    stored = node.transactions.changes.map_of("tx").entries["tx"].value
    decided = transaction.end(stored, Producer(*producer), commit, True, None, node.clock())
    assert isinstance(decided, transaction.Change)
    for number in range(2):
        written = asyncio.get_running_loop().create_future()
        writer = node.transactions.shards.find("tx").writer
        writer.write([(write_key("tx"), write_transaction(decided.to))], written.set_result)
        assert await written is None
        await change(node, epoch=1)
        await node.transactions.shards.settled()
        complete = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        await until(lambda complete=complete: node.transactions.describe("tx").state is complete)
        assert stable(node) == 2 + number, "the marker may be there twice"
    again = await node.transactions.end("tx", *producer, commit=commit, tv2=True)
    assert again == (producer[0], 1), "the producer repeats its EndTxn, and gets what it missed"


async def test_markers_wait_for_a_partition_without_a_leader(node):
    producer = await node.transactions.init_producer("tx", 60_000)
    await produced(node, producer, 0)
    await produced(node, producer, 1)
    await change(node, at=tp(1), epoch=1, leader=NodeId(-1))
    producer = await node.transactions.end("tx", *producer, commit=True, tv2=True)
    await until(lambda: stable(node, 0) == 2)
    assert node.transactions.describe("tx").state is State.PREPARE_COMMIT
    results = await node.transactions.add_partitions("tx", *producer, [tp(2)], tv2=True, wait_s=0)
    assert isinstance(results[tp(2)], ConcurrentTransactions)
    await change(node, at=tp(1), epoch=1, leader=NODE_ID)
    await until(lambda: node.transactions.describe("tx").state is State.COMPLETE_COMMIT)
    assert stable(node, 1) == 2


async def test_a_deleted_topic_needs_no_marker(node):
    await node.admin.create_topic("gone", 1)
    producer = await node.transactions.init_producer("tx", 60_000)
    await produced(node, producer)
    there = TopicPartition("gone", PartitionId(0))
    assert await node.transactions.add_partitions("tx", *producer, [there], tv2=True) == {there: None}
    await node.admin.delete_topic("gone")
    await node.transactions.end("tx", *producer, commit=True, tv2=True)
    await until(lambda: node.transactions.describe("tx").state is State.COMPLETE_COMMIT)


async def test_a_marker_that_comes_late_is_needed_until_what_it_is_late_for_is_committed(node):
    """A stranger raises the epoch on a partition, in no transaction. With this leader that could be lost again, and
    with it the marker before it, whose answer the coordinator did not get."""
    producer = await node.transactions.init_producer("tx", 60_000)
    await produced(node, producer)
    await node.transactions.add_partitions("tx", *producer, [tp(1)], tv2=True)
    await change(node, at=tp(1), isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    strange = batch(b"v", producer_id=producer[0], producer_epoch=producer[1] + 9, base_sequence=0)
    node.partitions.get("t", 1).append(strange, read_header(strange), node.clock())
    await node.transactions.end("tx", *producer, commit=True, tv2=True)
    await until(lambda: stable(node) == 2)
    await asyncio.sleep(0.2)
    assert node.transactions.describe("tx").state is State.PREPARE_COMMIT
    await change(node, at=tp(1), isr=(NODE_ID,))
    await until(lambda: node.transactions.describe("tx").state is State.COMPLETE_COMMIT)


async def test_nothing_counts_before_it_is_committed(node, monkeypatch):
    """KAFKA-9666: an epoch that was not written is not used up."""
    await node.transactions.init_producer("tx", 60_000)
    await change(node, isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    with monkeypatch.context() as impatient:
        impatient.setattr("gateway.coordinators.transactions.changes.WRITE_WAIT_S", 0.05)
        for _ in range(3):
            with pytest.raises((CoordinatorNotAvailable, ConcurrentTransactions)):
                await node.transactions.init_producer("tx", 60_000)
    assert node.transactions.describe("tx").producer_epoch == 0
    await change(node, isr=(NODE_ID,))
    await until(lambda: node.transactions.describe("tx").producer_epoch == 1)
    assert (await node.transactions.init_producer("tx", 60_000))[1] == 2


async def test_writes_that_fail_change_nothing(node):
    first = await node.transactions.init_producer("tx", 60_000)
    led = node.partitions.get(TRANSACTIONS_TOPIC, place(node).partition)
    led._min_in_sync = 2
    for _ in range(3):
        with pytest.raises(CoordinatorNotAvailable):
            await node.transactions.init_producer("tx", 60_000)
        with pytest.raises(CoordinatorNotAvailable):
            await node.transactions.init_producer("new", 60_000)
    led._min_in_sync = 1
    assert await node.transactions.init_producer("tx", 60_000) == (first[0], 1)


async def test_damage_is_kept_to_its_own_transactional_id(node):
    await node.transactions.init_producer("tx", 60_000)
    written = asyncio.get_running_loop().create_future()
    writer = node.transactions.shards.find("tx").writer
    writer.write([(write_key("tx"), b"\0\1nonsense")], written.set_result)
    assert await written is None
    await change(node, epoch=1)
    await node.transactions.shards.settled()
    with pytest.raises(CoordinatorNotAvailable, match="damaged"):
        await node.transactions.init_producer("tx", 60_000)
    other = next(name for name in map(str, range(10_000)) if place(node, name) == place(node))
    assert (await node.transactions.init_producer(other, 60_000))[1] == 0


async def test_unused_transactional_ids_expire(node):
    producer = await node.transactions.init_producer("tx", 60_000)
    await node.transactions.init_producer("open", 60_000)
    await node.transactions.add_partitions(
        "open", *await node.transactions.init_producer("open", 60_000), [tp(0)], tv2=True
    )
    node.clock.ahead_ms = 8 * 24 * 3_600_000
    await node.transactions.expire()
    await until(lambda: [each.transactional_id for each in node.transactions.list()] == ["open"])
    with pytest.raises(TransactionalIdNotFound):
        node.transactions.describe("tx")
    await change(node, epoch=1)
    await node.transactions.shards.settled()
    with pytest.raises(TransactionalIdNotFound):
        node.transactions.describe("tx")
    assert (await node.transactions.init_producer("tx", 60_000))[0] != producer[0]


async def test_an_operator_aborts_what_is_open(node):
    with pytest.raises(TransactionalIdNotFound):
        await node.transactions.abort("tx")
    producer = await node.transactions.init_producer("tx", 60_000)
    with pytest.raises(WrongTransactionState):
        await node.transactions.abort("tx")
    await produced(node, producer)
    await node.transactions.abort("tx")
    await until(lambda: stable(node) == 2)
    with pytest.raises(ProducerFencedByNewer):
        await node.transactions.end("tx", *producer, commit=True, tv2=True)


async def test_there_is_room_for_a_number_of_transactional_ids(node, monkeypatch):
    settings = dataclasses.replace(node.transactions.changes._settings, max_ids=3)
    monkeypatch.setattr(node.transactions.changes, "_settings", settings)
    for number in range(3):
        await node.transactions.init_producer(f"tx{number}", 60_000)
    with pytest.raises(TooManyTransactionalIds):
        await node.transactions.init_producer("one more", 60_000)
    assert (await node.transactions.init_producer("tx1", 60_000))[1] == 1
    for shard in node.transactions.shards:
        node.transactions.changes._end(shard.machine)
    assert node.transactions.changes._held_bytes == 0, "what is let go of is not counted any more"


@pytest.mark.parametrize("name", ["", "x" * 32_768, "\ud800"])
async def test_names_that_cannot_be_stored(node, name):
    with pytest.raises(InvalidTransactionalId):
        await node.transactions.init_producer(name, 60_000)
    results = await node.transactions.verify(name, 1, 0, [tp(0)])
    assert isinstance(results[tp(0)], InvalidTransactionalId)
