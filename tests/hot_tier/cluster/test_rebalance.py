"""Plans move what must move, even out the rest, and copy nothing that is fine where it is."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hot_tier.cluster.elections import begin_reassignment
from hot_tier.cluster.model import PartitionState, initial_state
from hot_tier.cluster.placement import Place, Places, deal_order, place
from hot_tier.cluster.rebalance import Plan, plan_leaving, plan_rebalance, plan_widening
from hot_tier.errors import InvalidReplication
from hot_tier.ids import NodeId, PartitionId, TopicPartition

States = dict[TopicPartition, PartitionState]
Cluster = tuple[States, list[NodeId], dict[NodeId, Place]]


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


def tp(index: int) -> TopicPartition:
    return TopicPartition("t", PartitionId(index))


def states_of(*replicas: list[int]) -> States:
    return {tp(index): initial_state(nodes(*each)) for index, each in enumerate(replicas)}


def after(states: States, plan: Plan) -> dict[TopicPartition, tuple[NodeId, ...]]:
    return {tp: plan.get(tp, state.replicas) for tp, state in states.items()}


def copies(states: States, plan: Plan) -> int:
    return sum(len(set(replicas) - set(states[tp].replicas)) for tp, replicas in plan.items())


def in_racks(racks: str) -> dict[NodeId, Place]:
    """Brokers 1, 2, … in these racks."""
    return {NodeId(number): Place(rack) for number, rack in enumerate(racks, 1)}


def hosts_of(among: Iterable[NodeId], places: Places) -> set[object]:
    return {places[node].host or node for node in among}


def racks_of(among: Iterable[NodeId], places: Places) -> set[object]:
    return {places[node].rack or places[node].host or node for node in among}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    brokers = nodes(*range(draw(st.integers(1, 7))))
    hosts = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=4))
    places = {}
    for node in brokers:
        host = draw(st.integers(0, len(hosts) - 1))
        places[node] = Place(hosts[host], draw(st.sampled_from([None, f"host-{host}"])))
    states = {}
    for index in range(draw(st.integers(0, 30))):
        chosen = draw(st.lists(st.sampled_from(brokers), min_size=1, max_size=3, unique=True))
        states[tp(index)] = initial_state(chosen)
    return states, brokers, places


@given(clusters())
def test_a_rebalanced_cluster_shares_little_and_is_left_alone(cluster: Cluster) -> None:
    states, brokers, places = cluster
    placed = after(states, plan_rebalance(states, brokers, places))
    for key, replicas in placed.items():
        assert len(set(replicas)) == len(replicas) == len(states[key].replicas)
        assert len(hosts_of(replicas, places)) == min(len(replicas), len(hosts_of(brokers, places)))
        assert len(racks_of(replicas, places)) == min(len(replicas), len(racks_of(brokers, places)))
    assert plan_rebalance({key: initial_state(replicas) for key, replicas in placed.items()}, brokers, places) == {}


@given(clusters())
def test_without_racks_all_hold_about_the_same(cluster: Cluster) -> None:
    states, brokers, _ = cluster
    placed = after(states, plan_rebalance(states, brokers, {}))
    held = Counter(dict.fromkeys(brokers, 0))
    held.update(node for replicas in placed.values() for node in replicas)
    assert max(held.values()) - min(held.values()) <= 1


@given(clusters(), st.integers(0, 6))
def test_who_leaves_holds_nothing(cluster: Cluster, gone: int) -> None:
    states, brokers, places = cluster
    assume(len(brokers) > 3 and gone < len(brokers))
    staying = [node for node in brokers if node != gone]
    plan = plan_leaving(states, nodes(gone), staying, places)
    assert set(plan) == {key for key, state in states.items() if gone in state.replicas}
    for key, replicas in plan.items():
        assert len(set(replicas)) == len(states[key].replicas)
        assert gone not in replicas
        assert [node for node in states[key].replicas if node != gone] == [
            node for node in replicas if node in states[key].replicas
        ], "the others stay, in their order"


def test_a_new_broker_gets_its_share_and_no_more_is_copied() -> None:
    states = states_of(*([1, 2, 3], [2, 3, 1], [3, 1, 2]) * 4)
    plan = plan_rebalance(states, nodes(1, 2, 3, 4), {})
    placed = after(states, plan)
    assert Counter(node for replicas in placed.values() for node in replicas) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert Counter(replicas[0] for replicas in placed.values()) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert copies(states, plan) == 9


def test_leaders_are_evened_without_a_copy_through_a_third() -> None:
    states = states_of([1, 2], [1, 2], [1, 2], [2, 3], [3, 2])
    plan = plan_rebalance(states, nodes(1, 2, 3), in_racks("aba"))
    leads = Counter(replicas[0] for replicas in after(states, plan).values())
    assert sorted(leads.values()) == [1, 2, 2]


def test_a_leaving_replica_goes_to_a_rack_of_its_own() -> None:
    plan = plan_leaving(states_of([1, 2]), nodes(2), nodes(1, 3, 4), in_racks("abab"))
    assert plan == {tp(0): (1, 4)}


def test_a_leaving_replica_goes_to_a_host_of_its_own() -> None:
    hosts = {NodeId(number): Place(host=host) for number, host in enumerate(("one", "one", "two", "two"), 1)}
    states = states_of([1, 3], [3, 1], [1, 4])
    assert plan_leaving(states, nodes(3), nodes(1, 2, 4), hosts) == {tp(0): (1, 4), tp(1): (4, 1)}


def test_a_second_host_gets_one_replica_of_each_partition() -> None:
    hosts = {NodeId(number): Place(host=host) for number, host in enumerate(("one", "one", "two", "two"), 1)}
    states = states_of([1, 2], [2, 1], [1, 2], [2, 1])
    plan = plan_rebalance(states, nodes(1, 2, 3, 4), hosts)
    placed = after(states, plan)
    assert all(len(hosts_of(replicas, hosts)) == 2 for replicas in placed.values())
    assert Counter(node for replicas in placed.values() for node in replicas) == dict.fromkeys(hosts, 2)
    assert copies(states, plan) == 4


def test_wider_partitions_keep_what_they_have() -> None:
    places = in_racks("aab")
    states = states_of([1], [2], [3, 1])
    assert plan_widening(states, 2, list(places), places) == {tp(0): (1, 3), tp(1): (2, 3)}
    assert plan_widening(states, 3, list(places), places) == {tp(0): (1, 3, 2), tp(1): (2, 3, 1), tp(2): (3, 1, 2)}
    assert plan_widening(states, 9, nodes(1), {}) == {tp(1): (2, 1)}


def test_too_few_would_stay() -> None:
    with pytest.raises(InvalidReplication, match="t-0 has 3 replicas, and only 2 brokers would stay"):
        plan_leaving(states_of([1, 2, 3]), nodes(3), nodes(1, 2), {})


def test_what_moves_already_is_counted_where_it_goes() -> None:
    begun = begin_reassignment(initial_state(nodes(1, 2)), nodes(2, 3))
    assert begun is not None
    assert plan_leaving({tp(0): begun}, nodes(1), nodes(2, 3), {}) == {}


def test_a_large_cluster_is_evened_with_the_fewest_copies() -> None:
    places = {NodeId(n): Place("abc"[n % 3]) for n in range(12)}
    old = {node: places[node] for node in nodes(*range(9))}
    placed = place(0, 10_000, 3, deal_order(old), 0, old)
    states = {tp(index): initial_state(replicas) for index, replicas in enumerate(placed)}
    plan = plan_rebalance(states, list(places), places)
    held = Counter(node for replicas in after(states, plan).values() for node in replicas)
    assert max(held.values()) - min(held.values()) <= 1
    assert copies(states, plan) == 7_500
