"""Elections and reassignments: what every result keeps, whatever state it starts from, and the cases by name."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hot_tier.cluster.elections import (
    Kept,
    advance_reassignment,
    begin_reassignment,
    cancel_reassignment,
    elect,
    prefer,
    reassignment_target,
    resign,
    restart,
)
from hot_tier.cluster.model import NO_NODE, PartitionState
from hot_tier.ids import LeaderEpoch, NodeId

A, B, C, D = (NodeId(node) for node in range(4))
NODES = [NodeId(node) for node in range(5)]

node_sets = st.sets(st.sampled_from(NODES))


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.permutations(NODES))[: draw(st.integers(1, 5))])
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1)))
    state = PartitionState(
        leader=draw(st.sampled_from([NO_NODE, *isr])),
        leader_epoch=LeaderEpoch(draw(st.integers(0, 9))),
        isr=isr,
        replicas=replicas,
    )
    if draw(st.booleans()):
        target = tuple(draw(st.permutations(NODES))[: draw(st.integers(1, 4))])
        state = begin_reassignment(state, target) or state
    return state


def state_of(leader: NodeId, isr: tuple[NodeId, ...], replicas: tuple[NodeId, ...] = (A, B, C)) -> PartitionState:
    return PartitionState(leader, LeaderEpoch(7), isr, replicas)


def check(before: PartitionState, after: PartitionState | None, *, clean: bool = True) -> None:
    if after is None:
        return
    assert after != before
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader) or (
        after.leader == before.leader and after.leader_epoch == before.leader_epoch + 1
    )
    assert after.leader == NO_NODE or after.leader in after.isr
    assert set(after.isr) <= set(after.replicas)
    assert set(after.adding) | set(after.removing) <= set(after.replicas)
    if clean:
        assert set(after.isr) <= set(before.isr)


@given(states(), node_sets, node_sets)
def test_elections_keep_the_rules(state: PartitionState, live: set[NodeId], draining: set[NodeId]) -> None:
    elected = elect(state, live, draining)
    check(state, elected)
    if state.leader in live:
        assert elected is None
        return
    after = elected or state
    assert after.isr
    in_sync_alive = set(state.isr) & live
    assert (after.leader != NO_NODE) == bool(in_sync_alive)
    if in_sync_alive:
        assert set(after.isr) == in_sync_alive
        assert after.leader not in draining or in_sync_alive <= draining
    else:
        assert after.isr == state.isr
    assert elect(after, live, draining) is None


@given(states(), node_sets)
def test_an_unclean_election_finds_a_leader_if_any_replica_is_alive(state: PartitionState, live: set[NodeId]) -> None:
    elected = elect(state, live, unclean=True)
    check(state, elected, clean=False)
    if set(state.isr) & live:
        assert elected == elect(state, live), "it is clean where it can be"
    elif set(state.replicas) & live:
        assert elected is not None
        assert elected.leader in live
        assert elected.isr == (elected.leader,)


@given(states(), st.sampled_from(NODES), node_sets)
def test_resigning_never_leaves_a_partition_without_its_last_copy(
    state: PartitionState, node: NodeId, live: set[NodeId]
) -> None:
    resigned = resign(state, node, live)
    check(state, resigned)
    after = resigned or state
    assert after.isr
    if state.leader == node and (set(state.isr) - {node}) & live:
        assert after.leader != node
        assert after.leader in live
        assert node not in after.isr


@given(states(), st.sampled_from(NODES), node_sets, st.sampled_from(Kept))
def test_a_restarted_broker_leads_no_epoch_of_its_past(
    state: PartitionState, node: NodeId, live: set[NodeId], kept: Kept
) -> None:
    restarted = restart(state, node, live - {node}, kept)
    check(state, restarted)
    after = restarted or state
    if state.leader == node:
        assert after.leader_epoch > state.leader_epoch
    if kept is Kept.NOTHING:
        assert node not in after.isr
    if kept is Kept.MAYBE_NOT_TAIL and len(state.isr) > 1:
        assert node not in after.isr
    if kept is Kept.ALL:
        assert after.isr == state.isr


@given(states(), node_sets)
def test_the_preferred_leader_leads_if_it_can(state: PartitionState, live: set[NodeId]) -> None:
    preferred = prefer(state, live)
    check(state, preferred)
    if preferred is not None:
        assert preferred.leader == state.replicas[0]
        assert preferred.isr == state.isr


@given(states(), st.permutations(NODES), st.integers(1, 4), node_sets)
def test_a_reassignment_ends_at_its_target(
    state: PartitionState, order: list[NodeId], count: int, live: set[NodeId]
) -> None:
    target = tuple(order[:count])
    begun = begin_reassignment(state, target) or state
    assert reassignment_target(begun) == target
    assert begun.isr == state.isr
    assert begun.leader == state.leader
    assert begin_reassignment(begun, target) is None
    caught_up = replace(begun, isr=begun.replicas)
    done = advance_reassignment(caught_up, live)
    if done is None:
        assert (not begun.adding and not begun.removing) or (begun.leader not in target and not set(target) & live)
        return
    check(caught_up, done)
    assert done.replicas == target
    assert set(done.isr) == set(target)
    assert not done.adding and not done.removing


@given(states(), st.permutations(NODES), st.integers(1, 4), node_sets)
def test_a_cancelled_reassignment_brings_the_old_replicas_back(
    state: PartitionState, order: list[NodeId], count: int, live: set[NodeId]
) -> None:
    old = set(state.replicas) - set(state.adding)
    begun = begin_reassignment(state, tuple(order[:count])) or state
    cancelled = cancel_reassignment(begun, live)
    check(begun, cancelled)
    if cancelled is not None:
        assert set(cancelled.replicas) == old
        assert not cancelled.adding and not cancelled.removing


def test_the_first_replica_in_sync_and_alive_is_elected() -> None:
    elected = elect(state_of(A, (A, C, B)), live={B, C})
    assert elected == PartitionState(B, LeaderEpoch(8), (C, B), (A, B, C))
    drained = elect(state_of(A, (A, C, B)), live={B, C}, draining={B})
    assert drained is not None and drained.leader == C
    last_resort = elect(state_of(A, (A, B)), live={B, C}, draining={B})
    assert last_resort is not None and last_resort.leader == B


def test_without_a_live_in_sync_replica_nobody_leads_and_nobody_is_forgotten() -> None:
    orphaned = elect(state_of(A, (A, B)), live={C})
    assert orphaned == PartitionState(NO_NODE, LeaderEpoch(8), (A, B), (A, B, C))
    assert elect(orphaned, live={C}) is None
    back = elect(orphaned, live={A, C})
    assert back == PartitionState(A, LeaderEpoch(9), (A,), (A, B, C))


def test_a_lost_disk_leaves_the_in_sync_set_before_its_broker_counts_again() -> None:
    assert restart(state_of(B, (A, B)), A, live={B}, kept=Kept.NOTHING) == state_of(B, (B,))
    led = restart(state_of(A, (A, B, C)), A, live={C}, kept=Kept.NOTHING)
    assert led == PartitionState(C, LeaderEpoch(8), (B, C), (A, B, C))
    waits = restart(state_of(A, (A, B)), A, live=set(), kept=Kept.NOTHING)
    assert waits == PartitionState(NO_NODE, LeaderEpoch(8), (B,), (A, B, C))


def test_the_last_copy_lost_makes_no_leader_by_itself() -> None:
    lost = restart(state_of(A, (A,)), A, live={B}, kept=Kept.NOTHING)
    assert lost == PartitionState(NO_NODE, LeaderEpoch(8), (), (A, B, C))
    assert elect(lost, live={A, B, C}) is None
    unclean = elect(lost, live={A, B, C}, unclean=True)
    assert unclean == PartitionState(A, LeaderEpoch(9), (A,), (A, B, C))


def test_a_power_cut_with_flush_os_trusts_the_other_replicas_first() -> None:
    assert restart(state_of(B, (A, B)), A, live={B}, kept=Kept.MAYBE_NOT_TAIL) == state_of(B, (B,))
    alone = restart(state_of(A, (A,)), A, live=set(), kept=Kept.MAYBE_NOT_TAIL)
    assert alone == PartitionState(A, LeaderEpoch(8), (A,), (A, B, C))


def test_node_zero_counts_as_any_other() -> None:
    handed = restart(state_of(B, (A, B)), B, live={A}, kept=Kept.ALL)
    assert handed is not None and handed.leader == A == 0


def test_a_reassignment_moves_the_leader_last() -> None:
    begun = begin_reassignment(state_of(A, (A, B, C)), (B, C, D))
    assert begun is not None
    assert (begun.replicas, begun.adding, begun.removing) == ((B, C, D, A), (D,), (A,))
    assert advance_reassignment(begun, live={A, B, C, D}) is None
    done = advance_reassignment(replace(begun, isr=(A, B, C, D)), live={A, B, C, D})
    assert done == PartitionState(B, LeaderEpoch(8), (B, C, D), (B, C, D))


def test_a_second_reassignment_drops_what_the_first_was_adding() -> None:
    first = begin_reassignment(state_of(A, (A, B, C)), (A, B, D))
    assert first is not None
    second = begin_reassignment(first, (A, B, C))
    assert second is not None
    assert (second.replicas, second.adding, second.removing) == ((A, B, C, D), (D,), (D,))
    back = replace(state_of(A, (A, B, C)), leader_epoch=LeaderEpoch(8))
    assert advance_reassignment(second, live={A}) == back
    assert cancel_reassignment(second, live={A}) == back


def test_a_replica_that_leaves_is_not_listened_to_before_it_has_heard_of_it() -> None:
    begun = begin_reassignment(state_of(A, (A, B, C)), (A, B))
    assert begun is not None
    done = advance_reassignment(begun, live={A, B, C})
    assert done is not None
    assert (done.leader, done.leader_epoch, done.isr) == (A, 8, (A, B)), "C still fetches in epoch 7"
