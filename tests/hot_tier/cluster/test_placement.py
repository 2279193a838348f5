"""Replicas are spread evenly and never doubled, whatever the numbers."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hot_tier.cluster.placement import check_assignment, place, rack_order
from hot_tier.errors import InvalidReplication
from hot_tier.ids import NodeId

broker_lists = st.lists(st.integers(0, 1000).map(NodeId), min_size=1, max_size=12, unique=True)


@given(broker_lists, st.integers(1, 12), st.integers(0, 50), st.integers(1, 60), st.integers(0, 1000))
def test_places_are_even_and_distinct(brokers: list[NodeId], factor: int, first: int, count: int, start: int) -> None:
    assume(factor <= len(brokers))
    placed = place(first, count, factor, brokers, start)
    assert len(placed) == count
    assert all(len(set(replicas)) == factor and set(replicas) <= set(brokers) for replicas in placed)
    leaders = Counter(dict.fromkeys(brokers, 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert check_assignment(dict(enumerate(placed, first)), first, brokers) == placed


@given(broker_lists, st.integers(0, 7), st.integers(1, 20), st.integers(1, 20))
def test_growing_continues_the_round(brokers: list[NodeId], start: int, count: int, more: int) -> None:
    at_once = place(0, count + more, 1, brokers, start)
    assert place(0, count, 1, brokers, start) + place(count, more, 1, brokers, start) == at_once


@pytest.mark.parametrize(("factor", "brokers"), [(0, 3), (-1, 3), (4, 3), (1, 0)])
def test_factors_that_cannot_be_placed(factor: int, brokers: int) -> None:
    with pytest.raises(InvalidReplication):
        place(0, 1, factor, [NodeId(n) for n in range(brokers)], 0)


@given(
    st.dictionaries(st.integers(0, 100).map(NodeId), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(0, 100),
)
def test_no_rack_holds_two_while_another_holds_none(racks: dict[NodeId, str], factor: int, start: int) -> None:
    assume(factor <= len(racks))
    brokers = rack_order(list(racks), racks)
    assert sorted(brokers) == sorted(racks)
    for replicas in place(0, 30, factor, brokers, start, racks):
        assert len(set(replicas)) == factor
        assert len({racks[node] for node in replicas}) == min(factor, len(set(racks.values())))


def test_leaders_alternate_over_racks() -> None:
    racks = {NodeId(0): "a", NodeId(1): "a", NodeId(2): "b", NodeId(3): "b"}
    leaders = [replicas[0] for replicas in place(0, 4, 2, rack_order(list(racks), racks), 0, racks)]
    assert [racks[node] for node in leaders] == ["a", "b", "a", "b"]
    assert sorted(leaders) == [0, 1, 2, 3]


def test_one_that_is_lost_leaves_its_work_to_all_others() -> None:
    placed = place(0, 30, 2, [NodeId(n) for n in range(4)], 0)
    heirs = Counter(second for first, second in placed if first == 0)
    assert set(heirs) == {1, 2, 3}
