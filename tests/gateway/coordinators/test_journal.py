"""The journal under another machine than groups: counters, on brokers that replicate for real."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvloop

from gateway.coordinators.errors import CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator
from gateway.coordinators.journal.journal import Journal
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.journal.topic import JournalTopic
from gateway.coordinators.journal.writer import JournalWriter
from hot_tier.errors import CorruptLog, NotLeader, TierlogError
from tests.gateway.kafka.members import Member, Members, cut_off, members
from tests.gateway.kafka.node import now_ms
from tests.support.waiting import until

NAME = "__counters"
COUNTERS = JournalTopic(NAME, keeps="counter", partitions=3, replication_factor=2, config={"segment.bytes": "1048576"})
KEY = "visits"
INDEX = partition_of(KEY, COUNTERS.partitions)


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Counters:
    """Counts by name. A count is shown once its record is committed."""

    writer: JournalWriter
    counts: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def set(self, name: str, count: int) -> asyncio.Future[TierlogError | None]:
        told = asyncio.get_running_loop().create_future()

        def done(error: TierlogError | None) -> None:
            if error is None:
                self.counts[name] = count
            told.set_result(error)

        self.writer.write([(name.encode(), b"%d" % count if count else None)], done)
        return told

    def restore(self, counts: dict[str, int]) -> None:
        assert not self.counts and not self.ended
        self.counts = counts

    def end(self) -> None:
        self.ended = True


def decode(latest: dict[bytes, bytes]) -> dict[str, int]:
    if b"unreadable" in latest:
        raise CorruptLog("a count is not a number")
    return {name.decode(): int(count) for name, count in latest.items()}


@asynccontextmanager
async def counting(member: Member) -> AsyncIterator[Journal[Counters, dict[str, int]]]:
    journal = Journal(
        COUNTERS,
        make_machine=Counters,
        decode=decode,
        restore=Counters.restore,
        end=Counters.end,
        node_id=member.node_id,
        image=member.image,
        admin=member.node.admin,
        partitions=member.table,
        clock=now_ms,
    )
    journal.open()
    try:
        yield journal
    finally:
        await journal.close()


@pytest.fixture
async def alone(tmp_path):
    async with members(tmp_path, 1) as cluster:
        yield cluster[1]


@pytest.fixture
async def pair(tmp_path):
    """Broker 1 leads all of the topic, broker 2 is in sync, and `visits` is 1 on both."""
    async with members(tmp_path, 1, 2) as cluster:
        await cluster.create(1, 2, partitions=COUNTERS.partitions, topic=NAME)
        async with counting(cluster[1]) as first, counting(cluster[2]) as second:
            assert await first.find_ready(KEY).set(KEY, 1) is None
            await cluster.copied(1, INDEX, NAME)
            yield cluster, {1: first, 2: second}


async def elect(cluster: Members, leader: int, *isr: int) -> None:
    await cluster.elect(leader, isr, INDEX, NAME)


async def test_the_topic_is_made_once_when_first_needed(alone):
    async with counting(alone) as journal:
        with pytest.raises(NotCoordinator, match="this counter"):
            journal.find(KEY)
        assert journal.leader(KEY) is None
        brokers = await asyncio.gather(*(journal.coordinator(KEY) for _ in range(5)))
        assert {broker.id for broker in brokers} == {1}
        topic = await journal.require_topic()
        assert (topic.partitions, topic.replication_factor, topic.internal) == (3, 1, True)
        assert topic.config["cleanup.policy"] == "compact"
        assert topic.config["segment.bytes"] == "1048576"


async def test_a_machine_is_restored_from_the_newest_value_of_each_key(alone):
    async with counting(alone) as journal:
        await journal.require_topic()
        for name, count in (("a", 1), ("b", 1), ("a", 2), ("c", 7), ("c", 0)):
            assert await journal.find_ready(name).set(name, count) is None
    async with counting(alone) as again:
        with pytest.raises(CoordinatorLoading, match="this counter is being read back"):
            again.find_ready("a")
        await again.settled()
        assert [again.find_ready(name).counts.get(name) for name in "abc"] == [2, 1, None]


async def test_closing_ends_every_machine(alone):
    async with counting(alone) as journal:
        await journal.require_topic()
        machines = [shard.machine for shard in journal]
        assert len(machines) == COUNTERS.partitions
    assert all(machine.ended for machine in machines)
    assert list(journal) == []


async def test_a_partition_that_cannot_be_decoded_is_not_served_and_others_are(alone):
    async with counting(alone) as journal:
        await journal.require_topic()
        assert await journal.find_ready("unreadable").set("unreadable", 1) is None
        other = next(name for name in "abcdef" if journal.find(name) is not journal.find("unreadable"))
        assert await journal.find_ready(other).set(other, 5) is None
    async with counting(alone) as again:
        await again.settled()
        with pytest.raises(CoordinatorNotAvailable, match="a count is not a number"):
            again.find_ready("unreadable")
        assert again.find_ready(other).counts == {other: 5}


async def test_the_next_leader_goes_on_from_what_the_last_one_committed(pair):
    cluster, journals = pair
    before = journals[1].find(KEY)
    with pytest.raises(NotCoordinator):
        journals[2].find(KEY)
    await elect(cluster, 2, 1, 2)
    assert before.machine.ended
    with pytest.raises(NotCoordinator):
        journals[1].find(KEY)
    await journals[2].settled()
    assert journals[2].find_ready(KEY).counts == {KEY: 1}
    assert journals[1].leader(KEY) == 2
    assert await journals[2].find_ready(KEY).set(KEY, 2) is None
    await elect(cluster, 1, 1, 2)
    await journals[1].settled()
    assert journals[1].find_ready(KEY).counts == {KEY: 2}
    assert journals[1].find(KEY) is not before


async def test_a_write_that_no_other_broker_had_is_refused_and_lost(pair):
    """It was never shown: the machine that wrote it had not applied it, and the next leader does not know it."""
    cluster, journals = pair
    machine = journals[1].find_ready(KEY)
    heal = cut_off(cluster, 2)
    told = machine.set(KEY, 100)
    partition = cluster[1].partition(INDEX, NAME)
    await until(lambda: partition.log.log_end_offset > partition.high_watermark)
    await elect(cluster, 2, 2)
    assert isinstance(await asyncio.wait_for(told, 10), NotLeader)
    heal()
    assert machine.counts == {KEY: 1}
    await journals[2].settled()
    assert journals[2].find_ready(KEY).counts == {KEY: 1}
    assert await journals[2].find_ready(KEY).set("other", 3) is None
    await until(lambda: 1 in cluster.state(INDEX, NAME).isr)
    await elect(cluster, 1, 1, 2)
    await journals[1].settled()
    assert journals[1].find_ready(KEY).counts == {KEY: 1, "other": 3}


async def test_nothing_is_served_before_all_of_the_log_is_committed(pair):
    cluster, journals = pair
    machine = journals[1].find_ready(KEY)
    heal = cut_off(cluster, 2)
    told = machine.set(KEY, 2)
    partition = cluster[1].partition(INDEX, NAME)
    await until(lambda: partition.log.log_end_offset > partition.high_watermark)
    await elect(cluster, 1, 1, 2)
    assert machine.ended
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(journals[1].settled(), 0.3)
    with pytest.raises(CoordinatorLoading):
        journals[1].find_ready(KEY)
    heal()
    await asyncio.wait_for(journals[1].settled(), 10)
    assert journals[1].find_ready(KEY).counts == {KEY: 2}
    await asyncio.wait_for(told, 10)


async def test_a_machine_of_an_old_epoch_writes_nothing(pair):
    cluster, journals = pair
    old = journals[1].find_ready(KEY)
    await elect(cluster, 1, 1, 2)
    await journals[1].settled()
    end = cluster[1].log(INDEX, NAME).log_end_offset
    assert isinstance(await old.set(KEY, 9), NotLeader)
    assert cluster[1].log(INDEX, NAME).log_end_offset == end
    assert journals[1].find_ready(KEY).counts == {KEY: 1}
