"""The commit rule against its definition, over any order of events; the in-sync set case by case."""

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.store import Revision
from hot_tier.ids import LeaderEpoch, NodeId, Offset
from hot_tier.replication.leadership import Leadership, Silence

A, B, C, D = (NodeId(node) for node in range(4))
LAG_MS = 1_000
LIVE = {A: 1, B: 1, C: 1}


def leading(isr: tuple[NodeId, ...], *, start: int = 0, known: int = 0) -> Leadership:
    state = PartitionState(A, LeaderEpoch(3), isr, (A, B, C), version=Revision(10))
    return Leadership(A, state, Offset(start), Offset(known), now_ms=0)


def written(leadership: Leadership, isr: Iterable[NodeId]) -> PartitionState:
    state = leadership.state
    return replace(state, isr=tuple(isr), version=Revision(state.version + 1))


def fetch(leadership: Leadership, node: NodeId, offset: int, end: int, now_ms: int = 0, broker_epoch: int = 1) -> bool:
    return leadership.fetched(node, broker_epoch, Offset(offset), Offset(end), now_ms)


def test_alone_it_commits_what_it_has_synced() -> None:
    leadership = leading((A,))
    assert leadership.holds(Offset(5))
    assert leadership.high_watermark == 5
    assert not leadership.holds(Offset(5))


def test_every_in_sync_replica_must_hold_it() -> None:
    leadership = leading((A, B, C))
    assert not leadership.holds(Offset(10))
    assert not fetch(leadership, B, 8, 10)
    assert fetch(leadership, C, 6, 10)
    assert leadership.high_watermark == 6
    assert fetch(leadership, C, 10, 10)
    assert leadership.high_watermark == 8


def test_a_stranger_counts_for_nothing() -> None:
    leadership = leading((A, B))
    leadership.holds(Offset(10))
    assert not fetch(leadership, D, 10, 10)
    assert leadership.isr_wanted(0, LAG_MS, {**LIVE, D: 1}) is None


def silence(*nodes: NodeId, since_ms: int = 1) -> Silence:
    return Silence(since_ms, {A, *nodes})  # nobody asks itself


def test_a_leader_that_hears_too_few_is_stranded_where_the_others_are_enough() -> None:
    leadership = leading((A, B, C))
    assert leadership.is_stranded(silence(B, C), LIVE, 2)
    assert not leadership.is_stranded(silence(B, C, since_ms=-1), LIVE, 2), "it has just begun to lead"
    assert not leadership.is_stranded(silence(B), LIVE, 2), "two can commit"
    assert not leadership.is_stranded(silence(B, C), LIVE, 1), "it can commit alone, once they are out of sync"
    assert not leadership.is_stranded(silence(B, C), {A: 1, B: 1}, 2), "one of them is dead, the other not enough"
    assert not leading((A, B)).is_stranded(silence(B), LIVE, 2), "the third may be in sync soon"


def test_a_leader_is_stranded_too_if_one_of_the_silent_has_left_the_set_before() -> None:
    leadership = leading((A, B))
    assert leadership.is_stranded(silence(B, C), LIVE, 2)
    assert not leadership.is_stranded(silence(B, C), {A: 1, B: 1}, 2), "C is dead, B not enough"
    assert not leadership.is_stranded(silence(B, C), {A: 1, C: 1}, 2), "B is dead, and C may lack records"
    assert not leading((A,)).is_stranded(silence(B, C), LIVE, 2), "nobody in sync could lead in its place"


def test_a_silent_member_leaves_where_the_others_are_enough_to_commit() -> None:
    def wanted(leadership: Leadership, silence: Silence, min_in_sync: int) -> tuple[NodeId, ...] | None:
        return leadership.isr_wanted(2, LAG_MS, LIVE, silence=silence, min_in_sync=min_in_sync)

    assert wanted(leading((A, B, C)), silence(B), 2) == (A, C)
    assert wanted(leading((A, B, C)), silence(B, since_ms=-1), 2) is None, "it has just begun to lead"
    assert wanted(leading((A, B, C)), silence(B), 3) is None, "nothing could be committed without it"
    assert wanted(leading((A, B, C)), silence(B, C), 2) is None
    assert wanted(leading((A, B, C)), silence(B), 1) == (A, C)
    assert wanted(leading((A, B, C)), silence(B, C), 1) is None, "nobody is left alone with the records so soon"
    assert wanted(leading((A, B)), silence(B), 1) is None


def test_a_silent_replica_does_not_join() -> None:
    leadership = leading((A, B))
    fetch(leadership, C, 0, 0)
    assert leadership.isr_wanted(0, LAG_MS, LIVE, silence=silence(C), min_in_sync=2) is None
    assert leadership.isr_wanted(0, LAG_MS, LIVE) == (A, B, C)


def test_a_growth_counts_before_it_is_written_and_a_shrink_after() -> None:
    leadership = leading((A, B))
    leadership.holds(Offset(5))
    fetch(leadership, B, 5, 5)
    fetch(leadership, C, 5, 5)
    assert leadership.isr_wanted(0, LAG_MS, LIVE) == (A, B, C)
    leadership.proposed((A, B, C))
    leadership.holds(Offset(9))
    assert not fetch(leadership, B, 9, 9), "C may be in the set already"
    assert leadership.isr_wanted(5_000, LAG_MS, LIVE) is None, "one proposal at a time"
    assert not leadership.settled(written(leadership, (A, B, C)))
    assert leadership.in_sync == (A, B, C)

    assert leadership.isr_wanted(0, LAG_MS, {A: 1, B: 1}) == (A, B)
    leadership.proposed((A, B))
    assert not leadership.holds(Offset(9)), "C may be in the set still"
    assert leadership.settled(written(leadership, (A, B)))
    assert leadership.high_watermark == 9


def test_a_lost_answer_counts_both_ways_until_a_later_version_is_seen() -> None:
    leadership = leading((A, B))
    leadership.holds(Offset(5))
    fetch(leadership, B, 5, 5)
    fetch(leadership, C, 5, 5)
    leadership.proposed((A, B, C))
    leadership.unanswered()
    leadership.holds(Offset(9))
    assert not fetch(leadership, B, 9, 9)
    assert not leadership.confirm(leadership.state), "the version we started from says nothing"
    without_c = {A: 1, B: 1}
    assert leadership.isr_wanted(0, LAG_MS, without_c) == (A, B), "proposed again, to end the doubt"
    leadership.proposed((A, B))
    leadership.refused()
    assert not leadership.holds(Offset(9)), "refused because the first one was written, perhaps"
    assert leadership.confirm(written(leadership, (A, B)))
    assert leadership.high_watermark == 9
    assert leadership.isr_wanted(0, LAG_MS, without_c) is None


def test_a_refused_growth_counts_no_longer() -> None:
    leadership = leading((A, B))
    leadership.holds(Offset(5))
    fetch(leadership, B, 5, 5)
    fetch(leadership, C, 5, 5)
    leadership.proposed((A, B, C))
    leadership.holds(Offset(9))
    leadership.refused()
    assert fetch(leadership, B, 9, 9)


def test_the_image_may_be_faster_than_the_answer_or_slower() -> None:
    leadership = leading((A, B, C))
    leadership.holds(Offset(5))
    fetch(leadership, B, 5, 5)
    old = leadership.state
    leadership.proposed((A, B))
    shrunk = written(leadership, (A, B))
    assert leadership.confirm(shrunk)
    assert leadership.isr_wanted(0, LAG_MS, LIVE) is None, "the answer is still to come"
    assert not leadership.settled(shrunk)
    assert not leadership.confirm(old)
    assert leadership.in_sync == (A, B)


def test_a_member_leaves_when_it_is_gone_or_has_fallen_behind() -> None:
    leadership = leading((A, B, C))
    leadership.holds(Offset(10))
    fetch(leadership, B, 10, 10, now_ms=100)
    fetch(leadership, C, 4, 10, now_ms=900)
    assert leadership.isr_wanted(1_000, LAG_MS, LIVE) is None
    assert leadership.isr_wanted(1_001, LAG_MS, LIVE) == (A, B), "C was last caught up when the epoch began"
    assert leadership.isr_wanted(1_000, LAG_MS, {A: 1, C: 1}) == (A, C), "B is no longer registered"
    assert leadership.isr_wanted(9_000, LAG_MS, {}) == (A,)


def test_keeping_pace_with_a_growing_log_is_being_caught_up() -> None:
    leadership = leading((A, B))
    for step in range(20):
        fetch(leadership, B, 10 * step, 10 * (step + 1), now_ms=500 * step)
    assert leadership.isr_wanted(500 * 19, LAG_MS, LIVE) is None


def test_a_replica_joins_when_it_holds_all_that_may_be_committed() -> None:
    leadership = leading((A, B), start=8, known=3)
    leadership.holds(Offset(8))
    fetch(leadership, C, 5, 5)
    assert leadership.isr_wanted(0, LAG_MS, LIVE) is None, "the old leader may have committed up to 8"
    fetch(leadership, C, 8, 9)
    assert leadership.isr_wanted(0, LAG_MS, LIVE) == (A, B, C)
    assert leadership.isr_wanted(0, LAG_MS, LIVE, draining=[C]) is None
    assert leadership.isr_wanted(0, LAG_MS, {**LIVE, C: 2}) is None, "another process than the one that fetched"
    assert leadership.isr_wanted(0, LAG_MS, {A: 1, B: 1}) is None


def test_what_a_replica_told_before_it_left_is_forgotten() -> None:
    leadership = leading((A, B))
    leadership.holds(Offset(5))
    fetch(leadership, C, 5, 5)
    leadership.confirm(written(leadership, (A, B)))
    assert leadership.isr_wanted(0, LAG_MS, LIVE) is None
    fetch(leadership, C, 5, 5)
    assert leadership.isr_wanted(0, LAG_MS, LIVE) == (A, B, C)


class Commits(RuleBasedStateMachine):
    """The store, with writes that arrive late or never answer, beside a leader that must not commit too much."""

    def __init__(self) -> None:
        super().__init__()
        self.leadership = leading((A, B, C))
        self.store = self.leadership.state
        self.unseen: list[PartitionState] = []
        self.ends = {A: 0, B: 0, C: 0}
        self.out: PartitionState | None = None
        self.under_way: list[PartitionState] = []
        self.highest = 0

    def commit(self, state: PartitionState) -> None:
        self.store = replace(state, version=Revision(self.store.version + 1))
        self.unseen.append(self.store)

    @rule(more=st.integers(1, 3))
    def own_log_is_synced(self, more: int) -> None:
        self.ends[A] += more
        self.leadership.holds(Offset(self.ends[A]))

    @rule(node=st.sampled_from([B, C]), share=st.integers(0, 4))
    def follower_fetches(self, node: NodeId, share: int) -> None:
        self.ends[node] = max(self.ends[node], self.ends[A] * share // 4)
        fetch(self.leadership, node, self.ends[node], self.ends[A])

    @precondition(lambda self: self.out is None)
    @rule(live=st.sets(st.sampled_from([B, C])))
    def propose(self, live: set[NodeId]) -> None:
        wanted = self.leadership.isr_wanted(0, LAG_MS, {A: 1} | dict.fromkeys(live, 1))
        if wanted is not None:
            self.leadership.proposed(wanted)
            self.out = replace(self.leadership.state, isr=wanted)

    @precondition(lambda self: self.out is not None)
    @rule(answered=st.booleans())
    def store_decides(self, answered: bool) -> None:
        assert self.out is not None
        proposal, self.out = self.out, None
        if not answered:
            self.under_way.append(proposal)
            self.leadership.unanswered()
        elif proposal.version == self.store.version:
            self.commit(proposal)
            self.leadership.settled(self.store)
        else:
            self.leadership.refused()

    @precondition(lambda self: self.under_way)
    @rule()
    def late_write_arrives(self) -> None:
        proposal = self.under_way.pop()
        if proposal.version == self.store.version:
            self.commit(proposal)

    @precondition(lambda self: len(self.store.isr) > 1)
    @rule(which=st.integers(0, 1))
    def somebody_else_shrinks(self, which: int) -> None:
        others = [node for node in self.store.isr if node != A]
        gone = others[which % len(others)]
        self.commit(replace(self.store, isr=tuple(node for node in self.store.isr if node != gone)))

    @precondition(lambda self: self.unseen)
    @rule()
    def image_follows(self) -> None:
        self.leadership.confirm(self.unseen.pop(0))

    @invariant()
    def all_in_sync_hold_what_is_committed(self) -> None:
        committed = self.leadership.high_watermark
        assert committed >= self.highest
        self.highest = committed
        assert committed <= min(self.ends[node] for node in self.store.isr)


TestCommits = Commits.TestCase
TestCommits.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
