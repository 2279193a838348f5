"""Transactions as consumers see them: what read_committed gets, when it wakes, and where a time or the end leads."""

import asyncio

import pytest

from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from hot_tier.record.batch import iter_headers
from hot_tier.record.control import MarkerKind
from tests.gateway.kafka.test_fetch import BIG, fetch, parts, values
from tests.support.transactions import end, write
from tests.support.waiting import until

LATEST, MAX_TIMESTAMP = -1, -3
UNCOMMITTED, COMMITTED = 0, 1


@pytest.fixture
async def topic(node):
    await node.node.admin.create_topic("t", 1, config={"retention.ms": "-1"})
    return node


class Writer:
    """Writes to the one partition of the topic; the time passes by one millisecond with each write."""

    def __init__(self, running) -> None:
        self.partition = running.node.partitions.get("t", 0)
        self.now_ms = running.node.clock()

    def write(self, producer: int, *values: bytes, **options) -> None:
        self.now_ms += 1
        write(self.partition, producer, *values, now_ms=self.now_ms, **options)

    def end(self, producer: int, kind: MarkerKind) -> None:
        self.now_ms += 1
        end(self.partition, producer, kind, now_ms=self.now_ms)

    async def committed(self) -> None:
        await until(lambda: self.partition.high_watermark == self.partition.log_end_offset)


def aborted(part):
    return [(each.producer_id, each.first_offset) for each in part.aborted_transactions]


def seen(part):
    """What Kafka's consumers make of an answer to read_committed."""
    left = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions)
    dropped, found = set(), []
    data = bytes(part.records)
    for position, header in iter_headers(data):
        while left and left[0][0] <= header.last_offset:
            dropped.add(left.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            part_of = type(part)(records=data[position : position + header.size])
            found += values(part_of)
    return found


async def test_read_committed_ends_where_a_transaction_is_open(topic):
    writer = Writer(topic)
    writer.write(7, b"plain", transactional=False)
    writer.write(1, b"open")
    writer.write(7, b"later", transactional=False)
    await writer.committed()
    async with topic.connect() as wire:
        for isolation, wanted in ((COMMITTED, [b"plain"]), (UNCOMMITTED, [b"plain", b"open", b"later"])):
            (part,) = parts(await wire.ask(fetch(topic, 11, (0, 0, BIG), isolation_level=isolation), 11))
            assert (values(part), part.high_watermark, part.last_stable_offset) == (wanted, 3, 1)


async def test_aborted_transactions_are_told_by_their_first_offsets(topic):
    """The one that began first ended last: by the order of the markers the list would be the wrong way round, and a
    client that takes it as it comes shows what was rolled back."""
    writer = Writer(topic)
    writer.write(1, b"one, rolled back")
    writer.write(2, b"two, rolled back")
    writer.write(3, b"three")
    writer.write(2, b"two, rolled back too")
    writer.end(2, MarkerKind.ABORT)
    writer.write(1, b"one, rolled back too")
    writer.end(3, MarkerKind.COMMIT)
    writer.end(1, MarkerKind.ABORT)
    writer.write(2, b"two, again")
    writer.end(2, MarkerKind.COMMIT)
    await writer.committed()
    async with topic.connect() as wire:
        (part,) = parts(await wire.ask(fetch(topic, 11, (0, 0, BIG), isolation_level=COMMITTED), 11))
        assert aborted(part) == [(1, 0), (2, 1)]
        assert seen(part) == [b"three", b"two, again"]
        (part,) = parts(await wire.ask(fetch(topic, 11, (0, 5, BIG), isolation_level=COMMITTED), 11))
        assert aborted(part) == [(1, 0)], "it began before the first record that was asked for"
        assert seen(part) == [b"two, again"]
        (part,) = parts(await wire.ask(fetch(topic, 11, (0, 0, BIG), isolation_level=UNCOMMITTED), 11))
        assert part.aborted_transactions is None


async def test_each_answer_names_only_what_it_needs(topic):
    writer = Writer(topic)
    for number in range(20):
        writer.write(1, b"rolled back")
        writer.end(1, MarkerKind.ABORT)
        writer.write(2, b"%d" % number)
        writer.end(2, MarkerKind.COMMIT)
    await writer.committed()
    offset, found = 0, []
    async with topic.connect() as wire:
        while offset < 80:
            (part,) = parts(await wire.ask(fetch(topic, 11, (0, offset, 400), isolation_level=COMMITTED), 11))
            ends = [header.end_offset for _, header in iter_headers(bytes(part.records))]
            assert len(part.aborted_transactions) <= 3
            found += seen(part)
            offset = ends[-1]
    assert found == [b"%d" % number for number in range(20)]


async def test_a_waiting_reader_of_committed_records_wakes_when_a_transaction_ends(topic):
    writer = Writer(topic)
    writer.write(1, b"a")
    await writer.committed()
    async with topic.connect() as wire:
        asked = asyncio.create_task(
            wire.ask(fetch(topic, 11, (0, 0, BIG), isolation_level=COMMITTED, max_wait_ms=20_000), 11)
        )
        await until(lambda: len(writer.partition._waiters) == 1)
        writer.write(7, b"b", transactional=False)
        await writer.committed()
        await asyncio.sleep(0)
        assert not asked.done()
        writer.end(1, MarkerKind.COMMIT)
        (part,) = parts(await asyncio.wait_for(asked, 10))
        assert (values(part), part.last_stable_offset) == ([b"a", b"b"], 3)


async def test_the_end_and_the_latest_time_are_answered_by_isolation(topic):
    writer = Writer(topic)
    writer.write(7, b"plain", transactional=False)
    first_ms = writer.now_ms
    writer.write(1, b"open")
    await writer.committed()

    async def offset_of(wire, timestamp, isolation):
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])],
        )
        (answer,) = (await wire.ask(request, 7)).topics[0].partitions
        return answer.offset

    async with topic.connect() as wire:
        assert [await offset_of(wire, LATEST, isolation) for isolation in (COMMITTED, UNCOMMITTED)] == [1, 2]
        assert [await offset_of(wire, MAX_TIMESTAMP, isolation) for isolation in (COMMITTED, UNCOMMITTED)] == [0, 1]
        later = first_ms + 1
        assert [await offset_of(wire, later, isolation) for isolation in (COMMITTED, UNCOMMITTED)] == [-1, 1]
