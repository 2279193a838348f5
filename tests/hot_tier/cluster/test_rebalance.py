"""Plans move what must move, even out the rest, and copy nothing that is fine where it is."""

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hot_tier.cluster.elections import begin_reassignment
from hot_tier.cluster.model import PartitionState, initial_state
from hot_tier.cluster.placement import place, rack_order
from hot_tier.cluster.rebalance import Plan, plan_leaving, plan_rebalance, plan_widening
from hot_tier.errors import InvalidReplication
from hot_tier.ids import NodeId, PartitionId, TopicPartition

States = dict[TopicPartition, PartitionState]


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


@st.composite
def clusters(draw: st.DrawFn) -> tuple[States, list[NodeId], dict[NodeId, str | None]]:
    brokers = nodes(*range(draw(st.integers(1, 7))))
    racks = {node: draw(st.sampled_from([None, "a", "b", "c"])) for node in brokers}
    states = {}
    for index in range(draw(st.integers(0, 30))):
        chosen = draw(st.lists(st.sampled_from(brokers), min_size=1, max_size=3, unique=True))
        states[tp(index)] = initial_state(chosen)
    return states, brokers, racks


@given(clusters())
def test_a_rebalanced_cluster_is_left_alone(cluster: tuple[States, list[NodeId], dict[NodeId, str | None]]) -> None:
    states, brokers, racks = cluster
    placed = after(states, plan_rebalance(states, brokers, racks))
    for key, replicas in placed.items():
        assert len(set(replicas)) == len(replicas) == len(states[key].replicas)
        before = {racks[node] or node for node in states[key].replicas}
        assert len({racks[node] or node for node in replicas}) >= len(before), "never on fewer racks"
    assert plan_rebalance({key: initial_state(replicas) for key, replicas in placed.items()}, brokers, racks) == {}


@given(clusters())
def test_without_racks_all_hold_about_the_same(
    cluster: tuple[States, list[NodeId], dict[NodeId, str | None]],
) -> None:
    states, brokers, _ = cluster
    placed = after(states, plan_rebalance(states, brokers, {}))
    held = Counter(dict.fromkeys(brokers, 0))
    held.update(node for replicas in placed.values() for node in replicas)
    assert max(held.values()) - min(held.values()) <= 1


@given(clusters(), st.integers(0, 6))
def test_who_leaves_holds_nothing(cluster: tuple[States, list[NodeId], dict[NodeId, str | None]], gone: int) -> None:
    states, brokers, racks = cluster
    assume(len(brokers) > 3 and gone < len(brokers))
    staying = [node for node in brokers if node != gone]
    plan = plan_leaving(states, nodes(gone), staying, racks)
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
    plan = plan_rebalance(states, nodes(1, 2, 3), {NodeId(1): "a", NodeId(2): "b", NodeId(3): "a"})
    leads = Counter(replicas[0] for replicas in after(states, plan).values())
    assert sorted(leads.values()) == [1, 2, 2]


def test_a_leaving_replica_goes_to_a_rack_of_its_own() -> None:
    racks = {NodeId(1): "a", NodeId(2): "b", NodeId(3): "a", NodeId(4): "b"}
    plan = plan_leaving(states_of([1, 2]), nodes(2), nodes(1, 3, 4), racks)
    assert plan == {tp(0): (1, 4)}


def test_wider_partitions_keep_what_they_have() -> None:
    racks = {NodeId(1): "a", NodeId(2): "a", NodeId(3): "b"}
    states = states_of([1], [2], [3, 1])
    assert plan_widening(states, 2, list(racks), racks) == {tp(0): (1, 3), tp(1): (2, 3)}
    assert plan_widening(states, 3, list(racks), racks) == {tp(0): (1, 3, 2), tp(1): (2, 3, 1), tp(2): (3, 1, 2)}
    assert plan_widening(states, 9, nodes(1), {}) == {tp(1): (2, 1)}


def test_too_few_would_stay() -> None:
    with pytest.raises(InvalidReplication, match="t-0 has 3 replicas, and only 2 brokers would stay"):
        plan_leaving(states_of([1, 2, 3]), nodes(3), nodes(1, 2), {})


def test_what_moves_already_is_counted_where_it_goes() -> None:
    begun = begin_reassignment(initial_state(nodes(1, 2)), nodes(2, 3))
    assert begun is not None
    assert plan_leaving({tp(0): begun}, nodes(1), nodes(2, 3), {}) == {}


def test_a_large_cluster_is_evened_with_the_fewest_copies() -> None:
    racks: dict[NodeId, str | None] = {NodeId(n): "abc"[n % 3] for n in range(12)}
    old = nodes(*range(9))
    placed = place(0, 10_000, 3, rack_order(old, racks), 0, racks)
    states = {tp(index): initial_state(replicas) for index, replicas in enumerate(placed)}
    plan = plan_rebalance(states, list(racks), racks)
    held = Counter(node for replicas in after(states, plan).values() for node in replicas)
    assert max(held.values()) - min(held.values()) <= 1
    assert copies(states, plan) == 7_500
