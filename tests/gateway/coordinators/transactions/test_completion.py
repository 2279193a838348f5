"""When the markers of a transaction are committed it is complete. Nobody waits for the record that says so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from gateway.coordinators.errors import CoordinatorNotAvailable
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.transactions.states import State
from gateway.coordinators.transactions.topic import TRANSACTIONS_TOPIC
from gateway.coordinators.transactions.values import read_transaction
from hot_tier.record.batch import read_header
from hot_tier.record.records import decode_records
from hot_tier.replication.led_partition import LedPartition
from tests.gateway.coordinators.node import Coordinated, coordinated, tp
from tests.gateway.kafka.batches import batch
from tests.support.waiting import until

LONG_S = 60.0
SOON_S = 0.01


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Coordinated]:
    async with coordinated(str(tmp_path / "node")) as running:
        await running.admin.create_topic("t", 4)
        yield running


@pytest.fixture(autouse=True)
def waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    within(monkeypatch, LONG_S)


def within(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr("gateway.coordinators.transactions.changes.COMPLETE_WITHIN_S", seconds)


def journal(node: Coordinated) -> LedPartition:
    topic = node.image.topic(TRANSACTIONS_TOPIC)
    return node.partitions.get(TRANSACTIONS_TOPIC, partition_of("tx", topic.partitions))


def stored(node: Coordinated) -> list[list[State]]:
    """The states of each batch of the journal."""
    (segment,) = Path(journal(node).log.directory).glob("*.log")
    data = segment.read_bytes()
    batches: list[list[State]] = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        records = decode_records(data[at : at + header.size], max_decompressed_bytes=1 << 20)
        batches.append([read_transaction(record.value or b"").state for record in records])
        at += header.size
    return batches


async def committed(node: Coordinated, producer: tuple[int, int]) -> tuple[int, int]:
    """Commits a transaction with one batch. Returns who goes on."""
    led = node.partitions.get("t", 0)
    data = batch(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    verification = led.begin_verification(read_header(data), "tx", tv2=True)
    assert await node.transactions.admit("tx", *producer, [tp(0)], add=True) == {tp(0): None}
    led.append(data, read_header(data), node.clock(), verification=verification)
    return await node.transactions.end("tx", *producer, commit=True, tv2=True)


async def complete(node: Coordinated) -> None:
    await until(lambda: node.transactions.describe("tx").state is State.COMPLETE_COMMIT)


async def test_the_record_comes_with_the_next_change(node):
    producer = await node.transactions.init_producer("tx", 60_000)
    for _ in range(3):
        producer = await committed(node, producer)
        await complete(node)
    first, again = [State.ONGOING], [State.COMPLETE_COMMIT, State.ONGOING]
    decided = [State.PREPARE_COMMIT]
    assert stored(node) == [[State.EMPTY], first, decided, again, decided, again, decided]


async def test_the_record_comes_alone_when_nothing_follows(node, monkeypatch):
    within(monkeypatch, SOON_S)
    await committed(node, await node.transactions.init_producer("tx", 60_000))
    await until(lambda: stored(node)[-1] == [State.COMPLETE_COMMIT])
    await asyncio.sleep(4 * SOON_S)
    assert stored(node).count([State.COMPLETE_COMMIT]) == 1


async def test_a_busy_producer_has_few_records_alone(node, monkeypatch):
    within(monkeypatch, 0.2)
    producer = await node.transactions.init_producer("tx", 60_000)
    began = asyncio.get_running_loop().time()
    for _ in range(100):
        producer = await committed(node, producer)
        await complete(node)
    took = asyncio.get_running_loop().time() - began
    assert stored(node).count([State.COMPLETE_COMMIT]) <= took / 0.2 + 1


async def test_a_decision_is_answered_before_its_markers_are_written(node):
    producer = await node.transactions.init_producer("tx", 60_000)
    end_offsets: list[int] = []

    def answer(outcome: object) -> object:
        asyncio.get_running_loop().call_soon(lambda: end_offsets.append(node.partitions.get("t", 0).log_end_offset))
        return outcome

    led = node.partitions.get("t", 0)
    data = batch(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    verification = led.begin_verification(read_header(data), "tx", tv2=True)
    await node.transactions.admit("tx", *producer, [tp(0)], add=True)
    led.append(data, read_header(data), node.clock(), verification=verification)
    ended = node.transactions.ended("tx", *producer, answer, commit=True, tv2=True)
    assert await ended == (producer[0], 1)
    await complete(node)
    assert end_offsets == [1]
    assert led.log_end_offset == 2


async def test_a_change_that_fails_does_not_take_the_record_with_it(node, monkeypatch):
    within(monkeypatch, SOON_S)
    producer = await committed(node, await node.transactions.init_producer("tx", 60_000))
    await complete(node)
    journal(node)._min_in_sync = 2
    results = await node.transactions.add_partitions("tx", *producer, [tp(1)], tv2=True)
    assert isinstance(results[tp(1)], CoordinatorNotAvailable)
    await asyncio.sleep(4 * SOON_S)
    assert stored(node)[-1] == [State.PREPARE_COMMIT]
    journal(node)._min_in_sync = 1
    await until(lambda: stored(node)[-1] == [State.COMPLETE_COMMIT])
    assert await node.transactions.add_partitions("tx", *producer, [tp(1)], tv2=True) == {tp(1): None}
    assert stored(node)[-1] == [State.ONGOING]


async def test_a_broker_that_stops_writes_the_record(tmp_path):
    async with coordinated(str(tmp_path / "node")) as node:
        await node.admin.create_topic("t", 4)
        await committed(node, await node.transactions.init_producer("tx", 60_000))
        await complete(node)
    async with coordinated(str(tmp_path / "node")) as node:
        await node.transactions.shards.settled()
        await complete(node)
        assert stored(node)[-1] == [State.COMPLETE_COMMIT]
        assert node.partitions.get("t", 0).log_end_offset == 2, "no marker is written again"


async def test_many_partitions_do_not_hold_the_loop(node, monkeypatch):
    monkeypatch.setattr("gateway.coordinators.transactions.markers.MARKERS_IN_ONE_STEP", 1)
    producer = await node.transactions.init_producer("tx", 60_000)
    await node.transactions.add_partitions("tx", *producer, [tp(each) for each in range(4)], tv2=True)
    await node.transactions.end("tx", *producer, commit=True, tv2=True)
    seen: set[int] = set()
    while node.transactions.describe("tx").state is not State.COMPLETE_COMMIT:
        seen.add(sum(node.partitions.get("t", each).log_end_offset for each in range(4)))
        await asyncio.sleep(0)
    assert {1, 2, 3} <= seen
