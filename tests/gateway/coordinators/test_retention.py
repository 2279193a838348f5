"""Which offsets have expired, for each kind of group."""

import struct

import pytest

from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.messages import Protocol
from gateway.coordinators.groups.states import State
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.coordinators.retention import expired_offsets
from tests.gateway.coordinators.node import tp
from tests.gateway.coordinators.simulation import LIMITS, Simulation

DAY = 86_400_000
NOW = 100 * DAY


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)


def committed(days_ago: float) -> CommittedOffset:
    return CommittedOffset(1, -1, "", NOW - int(days_ago * DAY))


OFFSETS = {tp(0, "read"): committed(9), tp(1, "read"): committed(1), tp(0, "left"): committed(9)}


def expired(group: ClassicGroup, empty_for_days: float = 0) -> set:
    empty_since_ms = NOW - int(empty_for_days * DAY) if empty_for_days else 0
    return set(expired_offsets(group, empty_since_ms, OFFSETS, 7 * DAY, NOW))


def stable(metadata: bytes, protocol_type: str = "consumer") -> ClassicGroup:
    sim = Simulation()
    sim.stable(2, protocols=(Protocol("range", metadata),), protocol_type=protocol_type)
    return sim.group


def test_a_group_without_members_ever_counts_from_each_commit():
    assert expired(ClassicGroup(LIMITS)) == {tp(0, "read"), tp(0, "left")}


@pytest.mark.parametrize(
    ("empty_for_days", "gone"),
    [(6.99, set()), (7, {tp(0, "read"), tp(0, "left")}), (30, {tp(0, "read"), tp(0, "left")})],
)
def test_a_group_that_lost_its_members_counts_from_then_or_from_a_later_commit(empty_for_days, gone):
    sim = Simulation()
    (member,) = sim.stable(1)
    sim.leave(member)
    assert expired(sim.group, empty_for_days) == gone


def test_what_live_members_subscribe_to_is_kept():
    assert expired(stable(subscription("read"))) == {tp(0, "left")}
    assert expired(stable(subscription("read", "left"))) == set()


def test_where_subscriptions_cannot_be_told_everything_is_kept():
    assert expired(stable(b"not a subscription")) == set()
    assert expired(stable(subscription("read"), protocol_type="connect")) == set()


def test_nothing_expires_during_a_rebalance():
    group = stable(subscription("read"))
    group.state = State.PREPARING_REBALANCE
    assert expired(group) == set()
    group.state = State.COMPLETING_REBALANCE
    assert expired(group) == set()
