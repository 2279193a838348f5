"""Offsets that a transaction commits: pending until its marker is committed, then applied or dropped, whoever leads."""

import asyncio
import random

import pytest
import uvloop

from gateway.coordinators.coordinator import Transaction
from gateway.coordinators.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    IllegalGeneration,
    InvalidGroupId,
    OffsetMetadataTooLarge,
    TransactionAbortable,
    UnknownMember,
)
from gateway.coordinators.group_offsets import Commit, Sender
from gateway.coordinators.groups.states import State
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.journal.replay import read_latest
from gateway.coordinators.offsets_topic.decoding import decode_groups
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from hot_tier.errors import InvalidTransactionState, ProducerFenced, UnknownPartition, UnknownTopic
from hot_tier.ids import PartitionId
from hot_tier.record.control import Marker, MarkerKind
from tests.gateway.coordinators.node import NODE_ID, SETTINGS, Clock, Coordinated, coordinated, tp
from tests.gateway.coordinators.test_failover import OTHER, change
from tests.support.waiting import until

NUMBER = partition_of("g", SETTINGS.offsets_topic_partitions)
NEIGHBOURS = [name for name in map("g{}".format, range(40)) if partition_of(name, 4) == NUMBER][:3]
"""Other groups of the same partition of the offsets topic."""


NOBODY = Sender()


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def node(tmp_path):
    async with coordinated(str(tmp_path / "node")) as running:
        await running.admin.create_topic("t", 4)
        await running.groups.commit_offsets("g", {tp(0): (3, "")})
        yield running


async def allow(_partition) -> None:
    """The transaction's coordinator has the partition."""


async def send(node: Coordinated, offsets, producer=7, *, epoch=0, group="g", sender=NOBODY, admit=allow, tv2=False):
    commits = {each: Commit(offset) for each, offset in offsets.items()}
    return await node.groups.commit_in_transaction(
        group, sender, commits, Transaction("copier", producer, epoch, tv2), admit
    )


async def sent(node: Coordinated, offsets, producer=7, **how) -> None:
    assert set((await send(node, offsets, producer, **how)).values()) == {None}


async def end(node: Coordinated, producer=7, *, committed=True, epoch=0, number=NUMBER, version=1) -> None:
    partition = node.partitions.get(OFFSETS_TOPIC, PartitionId(number))
    kind = MarkerKind.COMMIT if committed else MarkerKind.ABORT
    appended = partition.append_marker(producer, epoch, Marker(kind, 0), node.clock(), transaction_version=version)
    waiting = partition.when_committed(appended.end_offset)
    if waiting is not None:
        await waiting
    node.groups.transaction_ended(number, producer, epoch, committed)


def shown(node: Coordinated, group="g") -> dict[int, int]:
    return {each.partition: offset.offset for each, offset in node.groups.fetch_offsets(group).items()}


def unstable(node: Coordinated, group="g") -> list[int]:
    return sorted(each.partition for each in node.groups.unstable_offsets(group))


def live(node: Coordinated) -> dict[str, tuple[dict, dict]]:
    found = {}
    for group, entry in node.groups.shards.find("g").machine.groups.items():
        pending: dict = {}
        for each, commits in entry.pending.items():
            for producer, commit in commits.items():
                pending.setdefault(producer, {})[each] = commit.offset
        found[group] = entry.offsets, pending
    return {group: state for group, state in found.items() if any(state)}


async def read_back(node: Coordinated) -> dict[str, tuple[dict, dict]]:
    partition = node.partitions.get(OFFSETS_TOPIC, PartitionId(NUMBER))
    groups = decode_groups(await read_latest(partition, partition.high_watermark))
    found = {name: (loaded.offsets, {p: o for p, o in loaded.pending.items() if o}) for name, loaded in groups.items()}
    return {group: state for group, state in found.items() if any(state)}


async def test_a_commit_marker_applies_them_and_an_abort_marker_drops_them(node):
    for committed, expected in ((False, {0: 3}), (True, {0: 10, 1: 11})):
        await sent(node, {tp(0): 10, tp(1): 11})
        assert shown(node) == {0: 3} and unstable(node) == [0, 1]
        await end(node, committed=committed)
        assert shown(node) == expected and unstable(node) == []
        assert live(node) == await read_back(node)


async def test_the_last_commit_of_a_transaction_counts(node):
    for offset in (10, 9, 12):
        await sent(node, {tp(0): offset})
    await end(node)
    assert shown(node) == {0: 12}


async def test_two_groups_in_one_transaction(node):
    other = NEIGHBOURS[0]
    await sent(node, {tp(0): 10})
    await sent(node, {tp(0): 20}, group=other)
    assert shown(node, other) == {} and unstable(node, other) == [0]
    await end(node)
    assert (shown(node), shown(node, other)) == ({0: 10}, {0: 20})
    assert live(node) == await read_back(node)


async def test_a_plain_commit_after_them_wins_as_in_the_compacted_log(node):
    """Compaction keeps the record with the greater offset. If the marker decided instead, the group would go back."""
    await sent(node, {tp(0): 10, tp(1): 10})
    await node.groups.commit_offsets("g", {tp(0): (5, "")})
    assert unstable(node) == [1], "partition 0 does not depend on the transaction any more"
    assert live(node) == await read_back(node)
    await end(node)
    assert shown(node) == {0: 5, 1: 10}
    assert live(node) == await read_back(node)


async def test_of_two_transactions_the_one_that_wrote_last_wins_whichever_ends_last(node):
    for first, second in ((7, 8), (8, 7)):
        await sent(node, {tp(0): 100 + first}, first)
        await sent(node, {tp(0): 100 + second}, second)
        await end(node, second)
        assert shown(node) == {0: 100 + second}
        await end(node, first)
        assert shown(node) == {0: 100 + second}
        assert live(node) == await read_back(node)


async def test_of_two_transactions_the_older_one_counts_if_the_newer_one_is_aborted(node):
    await sent(node, {tp(0): 17}, 7)
    await sent(node, {tp(0): 18}, 8)
    await end(node, 8, committed=False)
    assert shown(node) == {0: 3} and unstable(node) == [0]
    await end(node, 7)
    assert shown(node) == {0: 17}


@pytest.mark.parametrize("what", ["group", "offsets", "topic"])
async def test_what_is_deleted_meanwhile_does_not_come_back_with_the_marker(node, what):
    await sent(node, {tp(0): 10, tp(1): 10})
    if what == "group":
        await node.groups.delete_group("g")
    elif what == "offsets":
        assert set((await node.groups.delete_offsets("g", [tp(0), tp(1)])).values()) == {None}
    else:
        await node.admin.delete_topic("t")
        await until(lambda: not unstable(node))
    await end(node)
    assert shown(node) == {}
    assert await read_back(node) == {}


async def test_a_group_that_has_only_pending_offsets_is_listed_and_goes_with_the_abort(node):
    other = NEIGHBOURS[0]
    await sent(node, {tp(0): 10}, group=other)
    assert other in [each.group_id for each in node.groups.list_groups()]
    await end(node, committed=False)
    assert other not in [each.group_id for each in node.groups.list_groups()]


async def test_a_group_with_pending_offsets_does_not_expire(tmp_path):
    clock = Clock()
    async with coordinated(str(tmp_path / "node"), clock=clock) as node:
        await node.admin.create_topic("t", 4)
        await node.groups.commit_offsets("g", {tp(0): (3, "")})
        await sent(node, {tp(1): 10})
        clock.ahead_ms = 30 * 24 * 3600_000
        await node.groups.offsets.expire([shard.machine for shard in node.groups.shards])
        assert shown(node) == {0: 3}
        await end(node, committed=False)
        await node.groups.offsets.expire([shard.machine for shard in node.groups.shards])
        assert shown(node) == {}


async def test_an_offset_with_a_pending_one_is_not_moved(node):
    await sent(node, {tp(0): 10})
    assert not await node.groups.move_offset("g", tp(0), 3, 4)
    await end(node, committed=False)
    assert await node.groups.move_offset("g", tp(0), 3, 4)


# Who may


async def test_a_member_may_and_who_is_none_may_not(node):
    me = await node.member()
    generation = node.groups.describe("g").generation
    await sent(node, {tp(0): 10}, sender=Sender(me, generation))
    refused = {
        Sender(me, generation - 1): IllegalGeneration,
        Sender(me, generation + 1): IllegalGeneration,
        Sender("somebody", generation): UnknownMember,
        Sender("somebody"): UnknownMember,
        Sender("", generation): UnknownMember,
        Sender(me, generation, "instance"): UnknownMember,
    }
    for sender, error in refused.items():
        assert isinstance((await send(node, {tp(0): 11}, sender=sender))[tp(0)], error), sender
    await sent(node, {tp(1): 1}, sender=Sender())  # as producers before version 3 do
    await end(node)
    assert shown(node) == {0: 10, 1: 1}


async def test_an_instance_that_was_replaced_is_fenced(node):
    old = await node.member(instance_id="i")
    generation = node.groups.describe("g").generation
    joined = await node.join(instance_id="i")
    assert joined.member_id != old
    answer = await send(node, {tp(0): 10}, sender=Sender(old, generation, "i"))
    assert isinstance(answer[tp(0)], FencedInstance)


async def test_a_member_may_while_the_next_generation_waits_for_its_assignment(node):
    joined = await node.join()
    assert node.groups.describe("g").state is State.COMPLETING_REBALANCE
    await sent(node, {tp(0): 10}, sender=Sender(joined.member_id, joined.generation))


async def test_a_generation_of_a_group_that_does_not_exist(node):
    answer = await send(node, {tp(0): 10}, group=NEIGHBOURS[0], sender=Sender("m", 1))
    assert isinstance(answer[tp(0)], IllegalGeneration)
    with pytest.raises(InvalidGroupId):
        await send(node, {tp(0): 10}, group="")


async def test_what_cannot_be_committed_is_refused_alone(node):
    commits = {tp(0): Commit(10), tp(9): Commit(1), tp(0, "no"): Commit(1), tp(1): Commit(1, metadata="m" * 5000)}
    answer = await node.groups.commit_in_transaction("g", Sender(), commits, Transaction("copier", 7, 0, False), allow)
    kinds = {each: type(error) for each, error in answer.items()}
    assert kinds == {
        tp(0): type(None),
        tp(9): UnknownPartition,
        tp(0, "no"): UnknownTopic,
        tp(1): OffsetMetadataTooLarge,
    }
    assert unstable(node) == [0]


async def test_nothing_is_stored_if_the_partition_is_not_in_the_transaction(node):
    partition = node.partitions.get(OFFSETS_TOPIC, PartitionId(NUMBER))
    before = partition.log.log_end_offset
    asked = []

    async def refuse(where) -> None:
        asked.append(where)
        raise TransactionAbortable(where=str(where))

    with pytest.raises(TransactionAbortable):
        await send(node, {tp(0): 10}, admit=refuse)
    assert asked == [partition.tp]
    assert partition.log.log_end_offset == before and unstable(node) == []


async def test_the_coordinator_is_asked_once_for_each_transaction(node):
    asked = []

    async def admit(where) -> None:
        asked.append(where)

    for _ in range(2):
        for _ in range(3):
            await sent(node, {tp(0): 10}, admit=admit)
        await end(node)
    assert len(asked) == 2


async def test_a_marker_that_comes_while_the_coordinator_is_asked_makes_the_answer_void(node):
    async def slow(_where) -> None:
        await end(node, committed=False)

    answer = await send(node, {tp(0): 10}, admit=slow)
    assert isinstance(answer[tp(0)], InvalidTransactionState)
    assert unstable(node) == [] and live(node) == await read_back(node)


async def test_the_marker_of_the_transaction_before_may_come_while_the_coordinator_is_asked(node):
    asked = []

    async def slow(where) -> None:
        if not asked:
            await end(node, committed=False)
        asked.append(where)

    assert await send(node, {tp(0): 10}, admit=slow) == {tp(0): None}
    assert len(asked) == 2, "what was said before the marker may be about the transaction before"
    assert unstable(node) == [0] and live(node) == await read_back(node)


async def test_a_producer_with_an_older_epoch_is_fenced(node):
    await sent(node, {tp(0): 10}, epoch=3, tv2=True)
    await end(node, epoch=4, version=2)
    assert shown(node) == {0: 10}
    with pytest.raises(ProducerFenced):
        await send(node, {tp(0): 11}, epoch=3)
    await sent(node, {tp(0): 12}, epoch=4, tv2=True)
    await end(node, epoch=5, version=2, committed=False)
    assert shown(node) == {0: 10}


# Fail-over


async def test_open_transactions_are_pending_again_after_a_fail_over(node):
    await sent(node, {tp(0): 10, tp(1): 11}, 7)
    await sent(node, {tp(2): 12}, 8)
    await sent(node, {tp(3): 13}, 9)
    await end(node, 9)
    await change(node, epoch=1)
    await node.groups.loaded()
    assert shown(node) == {0: 3, 3: 13} and unstable(node) == [0, 1, 2]
    await sent(node, {tp(1): 21}, 7)
    await end(node, 7)
    await end(node, 8, committed=False)
    assert shown(node) == {0: 10, 1: 21, 3: 13} and unstable(node) == []
    assert live(node) == await read_back(node)


async def test_a_marker_that_is_committed_while_the_groups_are_read_back_counts(node):
    await sent(node, {tp(0): 10})
    await change(node, isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    committing = asyncio.ensure_future(node.groups.commit_offsets("g", {tp(1): (7, "")}))
    partition = node.partitions.get(OFFSETS_TOPIC, PartitionId(NUMBER))
    await until(lambda: partition.log.log_end_offset > partition.high_watermark)
    await change(node, epoch=1)
    assert node.groups.is_loading
    ending = asyncio.ensure_future(end(node))
    await change(node, isr=(NODE_ID,))
    await ending
    await node.groups.loaded()
    assert shown(node) == {0: 10, 1: 7} and unstable(node) == []
    assert live(node) == await read_back(node)
    await asyncio.wait_for(asyncio.gather(committing, return_exceptions=True), 10)


async def test_offsets_that_were_not_acknowledged_count_if_the_marker_is_committed(node, monkeypatch):
    """They are in the log before the marker. The client may have given up waiting, and ended the transaction."""
    monkeypatch.setattr("gateway.coordinators.group_offsets.COMMIT_WAIT_S", 0.05)
    await change(node, isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    answer = await asyncio.wait_for(send(node, {tp(0): 10}), 10)
    assert isinstance(answer[tp(0)], CoordinatorNotAvailable)
    assert unstable(node) == [0]
    ending = asyncio.ensure_future(end(node))
    await change(node, isr=(NODE_ID,))
    await ending
    assert shown(node) == {0: 10}
    assert live(node) == await read_back(node)


async def test_offsets_of_a_topic_that_was_made_again_stay_pending_over_a_fail_over(node):
    await node.admin.delete_topic("t")
    await until(lambda: not shown(node))
    node.clock.ahead_ms += 10
    await node.admin.create_topic("t", 4)
    await sent(node, {tp(0): 10})
    await change(node, epoch=1)
    await node.groups.loaded()
    assert unstable(node) == [0]
    await end(node)
    assert shown(node) == {0: 10}


# Against a model


class Model:
    """Knows only the rule: of the records that are decided the newest counts, for each group and partition."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, int | None, int | None]] = []
        """(group, partition, offset or None for a deletion, producer or None), in log order."""
        self.decided: dict[int, bool] = {}
        """Outcome by index of the record."""

    def write(self, group: str, offsets: dict[int, int | None], producer: int | None = None) -> None:
        for partition, offset in offsets.items():
            if producer is None:
                self.decided[len(self.records)] = True
            self.records.append((group, partition, offset, producer))

    def end(self, producer: int, committed: bool) -> None:
        for index, record in enumerate(self.records):
            if record[3] == producer:
                self.decided.setdefault(index, committed)

    def shown(self, group: str) -> dict[int, int]:
        newest: dict[int, int | None] = {}
        for index, (of, partition, offset, _) in enumerate(self.records):
            if of == group and self.decided.get(index):
                newest[partition] = offset
        return {partition: offset for partition, offset in newest.items() if offset is not None}

    def unstable(self, group: str) -> list[int]:
        found: dict[int, bool] = {}
        for index, (of, partition, _, _) in enumerate(self.records):
            if of == group and self.decided.get(index) is not False:
                found[partition] = index not in self.decided
        return sorted(partition for partition, pending in found.items() if pending)

    def known(self, group: str) -> set[int]:
        return set(self.shown(group)) | set(self.unstable(group))


@pytest.mark.parametrize("seed", range(12))
async def test_any_order_of_commits_markers_deletions_and_fail_overs(node, seed):
    chance = random.Random(seed)
    groups, producers = ["g", *NEIGHBOURS], [7, 8, 9]
    model = Model()
    model.write("g", {0: 3})
    at = 100
    for _ in range(60):
        at += 1
        group, producer = chance.choice(groups), chance.choice(producers)
        partitions = chance.sample(range(4), chance.randint(1, 3))
        match chance.choices(("plain", "pending", "end", "delete", "group", "fail over"), (3, 6, 4, 1, 1, 1))[0]:
            case "plain":
                await node.groups.commit_offsets(group, {tp(each): (at, "") for each in partitions})
                model.write(group, dict.fromkeys(partitions, at))
            case "pending":
                await sent(node, {tp(each): at for each in partitions}, producer, group=group)
                model.write(group, dict.fromkeys(partitions, at), producer)
            case "end":
                committed = chance.random() < 0.6
                await end(node, producer, committed=committed)
                model.end(producer, committed)
            case "delete" if gone := model.known(group) & set(partitions):
                await node.groups.delete_offsets(group, [tp(each) for each in gone])
                model.write(group, dict.fromkeys(gone))
            case "group" if gone := model.known(group):
                await node.groups.delete_group(group)
                model.write(group, dict.fromkeys(gone))
            case "fail over":
                await change(node, epoch=1)
                await node.groups.loaded()
        for each in groups:
            assert shown(node, each) == model.shown(each)
            assert unstable(node, each) == model.unstable(each)
        assert live(node) == await read_back(node)


@pytest.mark.parametrize("seed", range(4))
async def test_what_happens_at_once_is_the_same_here_and_read_back(node, seed):
    chance = random.Random(seed)
    for round_ in range(10):
        steps = []
        for producer in (7, 8, 9):
            for _ in range(3):
                at = round_ * 100 + chance.randint(0, 99)
                group = chance.choice(["g", *NEIGHBOURS])
                steps.append(sent(node, {tp(chance.randint(0, 3)): at}, producer, group=group))
                steps.append(node.groups.commit_offsets(group, {tp(chance.randint(0, 3)): (at, "")}))
        chance.shuffle(steps)
        await asyncio.gather(*steps)
        await asyncio.gather(*(end(node, each, committed=chance.random() < 0.5) for each in (7, 8)))
        assert live(node) == await read_back(node)
