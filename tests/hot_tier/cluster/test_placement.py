"""Replicas are spread evenly and never doubled, whatever the numbers."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hot_tier.cluster.placement import Place, check_assignment, count_hosts, deal_order, place
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


@st.composite
def machines(draw: st.DrawFn) -> dict[NodeId, Place]:
    """Hosts in racks, brokers on hosts; some of each are not named."""
    racks = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=5))
    brokers = draw(st.lists(st.tuples(st.integers(0, len(racks) - 1), st.booleans()), min_size=1, max_size=12))
    return {
        NodeId(number): Place(racks[host], f"host-{host}" if named else None)
        for number, (host, named) in enumerate(brokers)
    }


def hosts_of(nodes: Iterable[NodeId], places: dict[NodeId, Place]) -> set[object]:
    return {places[node].host or node for node in nodes}


def racks_of(nodes: Iterable[NodeId], places: dict[NodeId, Place]) -> set[object]:
    return {places[node].rack or places[node].host or node for node in nodes}


@given(machines(), st.integers(1, 6), st.integers(0, 100))
def test_nothing_is_shared_while_something_else_is_there(places: dict[NodeId, Place], factor: int, start: int) -> None:
    """No rack and no host holds two replicas while another one holds none."""
    assume(factor <= len(places))
    brokers = deal_order(places)
    assert sorted(brokers) == sorted(places)
    assert count_hosts(places) == len(hosts_of(places, places))
    for replicas in place(0, 30, factor, brokers, start, places):
        assert len(set(replicas)) == factor
        assert len(racks_of(replicas, places)) == min(factor, len(racks_of(places, places)))
        assert len(hosts_of(replicas, places)) == min(factor, len(hosts_of(places, places)))


def test_leaders_alternate_over_racks() -> None:
    places = {NodeId(0): Place("a"), NodeId(1): Place("a"), NodeId(2): Place("b"), NodeId(3): Place("b")}
    leaders = [replicas[0] for replicas in place(0, 4, 2, deal_order(places), 0, places)]
    assert [places[node].rack for node in leaders] == ["a", "b", "a", "b"]
    assert sorted(leaders) == [0, 1, 2, 3]


def test_all_workers_of_two_hosts_lead_and_follow_alike() -> None:
    places = {NodeId(number): Place(host="one" if number <= 4 else "two") for number in range(1, 9)}
    placed = place(0, 160, 2, deal_order(places), 0, places)
    assert Counter(first for first, _ in placed) == dict.fromkeys(places, 20)
    assert Counter(second for _, second in placed) == dict.fromkeys(places, 20)
    for first, second in placed:
        assert places[first].host != places[second].host


def test_one_that_is_lost_leaves_its_work_to_all_others() -> None:
    placed = place(0, 30, 2, [NodeId(n) for n in range(4)], 0)
    heirs = Counter(second for first, second in placed if first == 0)
    assert set(heirs) == {1, 2, 3}
