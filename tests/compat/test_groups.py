"""Consumer groups as clients drive them: join, rebalance, leave, commit, resume, static members."""

import time
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest

from .clients.face import Member, MemberOptions, Message, Partition, Record, ServerError

SETTLE_S = 30.0


def settle(members: Sequence[Member], done: Callable[[], bool], what: str) -> list[Record]:
    """Polls every member until `done`; returns what was read meanwhile."""
    seen: list[Record] = []
    deadline = time.monotonic() + SETTLE_S
    while not done():
        assert time.monotonic() < deadline, f"{what} did not happen: {[m.assignment() for m in members]}"
        for member in members:
            seen += member.poll(0.05)
    return seen


def shared_out(members: Sequence[Member], partitions: set[Partition], each: int) -> Callable[[], bool]:
    """Every partition with exactly one member, `each` to every member."""

    def done() -> bool:
        assigned = [member.assignment() for member in members]
        return all(len(some) == each for some in assigned) and set().union(*assigned) == partitions

    return done


def read_exactly(member: Member, count: int) -> list[Record]:
    seen: list[Record] = []
    deadline = time.monotonic() + SETTLE_S
    while len(seen) < count:
        assert time.monotonic() < deadline, f"only {len(seen)} of {count} records"
        seen += member.poll(0.1)
    return seen


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:10]}"


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(client, new_topic, group, strategy):
    topic = new_topic(4)
    everything = {Partition(topic, number) for number in range(4)}
    options = MemberOptions(strategy=strategy)

    first = client.member(group, [topic], options)
    settle([first], shared_out([first], everything, 4), "one member holding all")
    second = client.member(group, [topic], options)
    settle([first, second], shared_out([first, second], everything, 2), "two members sharing")

    for number in range(4):
        client.produce(Partition(topic, number), [Message(b"%d-%d" % (number, n)) for n in range(5)])
    seen: list[Record] = []
    deadline = time.monotonic() + SETTLE_S
    while len(seen) < 20 and time.monotonic() < deadline:
        seen += first.poll(0.05) + second.poll(0.05)
    assert sorted(record.value for record in seen) == sorted(b"%d-%d" % (p, n) for p in range(4) for n in range(5))

    second.close()
    settle([first], shared_out([first], everything, 4), "the remaining member taking over")


def test_a_cooperative_rebalance_does_not_take_everything_away(client, new_topic, group):
    topic = new_topic(4)
    options = MemberOptions(strategy="cooperative-sticky")
    first = client.member(group, [topic], options)
    settle([first], lambda: len(first.assignment()) == 4, "one member holding all")
    second = client.member(group, [topic], options)
    fewest = 4
    deadline = time.monotonic() + SETTLE_S
    while len(second.assignment()) < 2:
        assert time.monotonic() < deadline
        first.poll(0.02)
        fewest = min(fewest, len(first.assignment()))
        second.poll(0.02)
    assert fewest == 2


def test_committed_offsets_are_where_the_next_member_starts(client, new_topic, group):
    topic = new_topic()
    partition = Partition(topic, 0)
    client.produce(partition, [Message(b"%d" % n) for n in range(20)])
    member = client.member(group, [topic])
    assert len(read_exactly(member, 20)) == 20
    assert member.committed(partition) is None
    member.commit({partition: 8}, metadata="half way")
    assert member.committed(partition) == 8
    member.close()

    assert client.group_offsets(group) == {partition: 8}
    successor = client.member(group, [topic])
    records = read_exactly(successor, 12)
    assert [record.offset for record in records] == list(range(8, 20))
    successor.commit()
    assert client.group_offsets(group) == {partition: 20}


def test_auto_commit(client, new_topic, group):
    topic = new_topic()
    partition = Partition(topic, 0)
    client.produce(partition, [Message(b"%d" % n) for n in range(10)])
    member = client.member(group, [topic], MemberOptions(auto_commit_ms=100))
    read_exactly(member, 10)
    settle([member], lambda: client.group_offsets(group).get(partition) == 10, "an automatic commit")
    member.close()
    client.produce(partition, [Message(b"after")])
    (record,) = read_exactly(client.member(group, [topic]), 1)
    assert record.offset == 10


def test_groups_do_not_know_of_each_other(client, new_topic, group):
    topic = new_topic()
    client.produce(Partition(topic, 0), [Message(b"%d" % n) for n in range(5)])
    for name in (group, f"{group}-other"):
        assert len(read_exactly(client.member(name, [topic]), 5)) == 5


def test_a_static_member_returns_to_its_partitions(client, new_topic, group):
    topic = new_topic(4)
    everything = {Partition(topic, number) for number in range(4)}
    first = client.member(group, [topic], MemberOptions(instance_id="first", session_ms=20_000))
    second = client.member(group, [topic], MemberOptions(instance_id="second", session_ms=20_000))
    settle([first, second], shared_out([first, second], everything, 2), "two members sharing")
    held, other = first.assignment(), second.assignment()

    first.close()
    again = client.member(group, [topic], MemberOptions(instance_id="first", session_ms=20_000))
    settle([again, second], lambda: again.assignment() == held, "the old partitions coming back")
    assert second.assignment() == other


def test_describe_list_and_delete(client, new_topic, group):
    topic = new_topic(2)
    partitions = {Partition(topic, 0), Partition(topic, 1)}
    member = client.member(group, [topic])
    settle([member], shared_out([member], partitions, 2), "the member holding all")
    assert group in client.groups()
    described = client.group(group)
    assert described.state == "Stable"
    assert list(described.members.values()) == [frozenset(partitions)]

    member.commit({Partition(topic, 0): 0})
    member.close()
    deadline = time.monotonic() + SETTLE_S
    while client.group(group).state != "Empty":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    client.delete_group(group)
    assert group not in client.groups()


def test_a_group_with_members_is_not_deleted(client, new_topic, group):
    topic = new_topic()
    member = client.member(group, [topic])
    settle([member], lambda: len(member.assignment()) == 1, "the member holding all")
    with pytest.raises(ServerError) as refused:
        client.delete_group(group)
    assert refused.value.code == 68  # NON_EMPTY_GROUP
