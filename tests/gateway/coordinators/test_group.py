"""The group machine, transition by transition: who joins, who is told what, what is written, which timers run."""

import dataclasses

import pytest

from gateway.coordinators.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from gateway.coordinators.groups.classic import NEW_MEMBER_TIMEOUT_MS, ClassicGroup
from gateway.coordinators.groups.messages import PENDING_BYTES, JoinAnswer, Protocol, SyncAnswer, Timer, TimerKind
from gateway.coordinators.groups.states import State
from tests.gateway.coordinators.simulation import LIMITS, RANGE, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


def state(sim: Simulation) -> State:
    return sim.group.state


# First join


def test_a_newcomer_is_sent_away_with_an_id_and_may_use_it_once(sim):
    answer = sim.join()
    assert (answer.error, answer.generation) == (MemberIdRequired, -1)
    assert answer.member_id and state(sim) is State.EMPTY

    ticket = sim.start_join(answer.member_id)
    assert state(sim) is State.PREPARING_REBALANCE and ticket not in sim.answers
    sim.advance(0)
    joined = sim.answers[ticket]
    assert joined == JoinAnswer(
        answer.member_id,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=answer.member_id,
        members=((answer.member_id, None, b"topics"),),
    )
    assert state(sim) is State.COMPLETING_REBALANCE
    assert not sim.group.roster.pending


def test_old_clients_join_without_the_detour(sim):
    ticket = sim.start_join(version=3)
    sim.advance(0)
    assert sim.answers[ticket].error is None and sim.answers[ticket].generation == 1


def test_an_id_never_used_is_forgotten_after_its_session(sim):
    member_id = sim.id_for_newcomer(session_timeout_ms=5_000)
    sim.advance(4_999)
    assert sim.group.roster.pending.keys() == {member_id} and not sim.group.is_vacant
    sim.advance(1)
    assert not sim.group.roster.pending and sim.group.is_vacant
    assert sim.join(member_id).error is UnknownMember


def test_an_unknown_id_is_refused(sim):
    sim.stable(1)
    answer = sim.join("somebody")
    assert (answer.error, answer.member_id) == (UnknownMember, "somebody")
    assert state(sim) is State.STABLE


@pytest.mark.parametrize("timeout_ms", [0, 999, 60_001])
def test_session_timeouts_have_bounds(sim, timeout_ms):
    assert sim.join(session_timeout_ms=timeout_ms).error is InvalidSessionTimeout
    assert sim.group.is_vacant


@pytest.mark.parametrize("timeout_ms", [1_000, 60_000])
def test_the_bounds_themselves_are_allowed(sim, timeout_ms):
    assert sim.join(session_timeout_ms=timeout_ms).error is MemberIdRequired


# The initial delay


def test_the_first_generation_waits_for_company_and_longer_with_each_newcomer():
    sim = Simulation(limits=dataclasses.replace(LIMITS, initial_rebalance_delay_ms=250))
    first = sim.start_join(version=3)
    sim.advance(200)
    second = sim.start_join(version=3)
    sim.advance(250)
    assert first not in sim.answers, "the second member prolonged the delay"
    sim.advance(50)
    assert sim.answers[first].generation == sim.answers[second].generation == 1
    assert len(sim.group.roster) == 2


def test_newcomers_prolong_the_delay_up_to_the_rebalance_timeout():
    sim = Simulation(limits=dataclasses.replace(LIMITS, initial_rebalance_delay_ms=250))
    first = sim.start_join(version=3, rebalance_timeout_ms=1_000)
    for _ in range(9):
        assert first not in sim.answers
        sim.advance(100)
        sim.start_join(version=3, rebalance_timeout_ms=1_000)
    sim.advance(100)
    assert sim.answers[first].generation == 1


def test_the_delay_runs_only_for_an_empty_group():
    sim = Simulation(limits=dataclasses.replace(LIMITS, initial_rebalance_delay_ms=250))
    (leader,) = sim.stable(1)
    newcomer = sim.start_join(version=3)
    sim.start_join(leader)
    assert sim.answers[newcomer].generation == 2


# Protocols


def test_the_protocol_with_most_votes_among_those_all_support_is_chosen(sim):
    def protocols(*names):
        return tuple(Protocol(name, name.encode()) for name in names)

    for each in (("only-mine", "range", "sticky"), ("sticky", "range"), ("sticky", "range", "other")):
        sim.start_join(version=3, protocols=protocols(*each))
    sim.advance(0)
    assert sim.group.protocol_name == "sticky"
    leader = sim.group.leader
    (answer,) = [a for a in sim.answers.values() if a.member_id == leader]
    assert {metadata for _, _, metadata in answer.members} == {b"sticky"}


def test_ties_go_to_the_earliest_member(sim):
    sim.start_join(version=3, protocols=(Protocol("b", b""), Protocol("a", b"")))
    sim.start_join(version=3, protocols=(Protocol("a", b""), Protocol("b", b"")))
    sim.advance(0)
    assert sim.group.protocol_name == "b"


def test_a_protocol_named_twice_counts_once(sim):
    sim.start_join(version=3, protocols=(Protocol("a", b""), Protocol("a", b"")))
    sim.start_join(version=3, protocols=(Protocol("a", b""),))
    sim.advance(0)
    assert sim.group.protocol_name == "a"


@pytest.mark.parametrize(
    "odd_one",
    [
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"protocols": ()},
        {"protocols": (Protocol("unheard-of", b""),)},
    ],
)
def test_a_member_that_does_not_fit_is_refused_and_disturbs_nobody(sim, odd_one):
    sim.stable(2)
    assert sim.join(**odd_one).error is InconsistentProtocol
    assert state(sim) is State.STABLE and len(sim.group.roster) == 2


@pytest.mark.parametrize("odd_one", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_too_needs_a_type_and_a_protocol(sim, odd_one):
    assert sim.join(**odd_one).error is InconsistentProtocol


def test_an_emptied_group_may_change_its_type(sim):
    (member,) = sim.stable(1)
    sim.leave(member)
    sim.start_join(version=3, protocol_type="connect", protocols=(Protocol("sessioned", b"opaque"),))
    sim.advance(0)
    assert (sim.group.protocol_type, sim.group.protocol_name) == ("connect", "sessioned")


# Sync


def test_everybody_gets_the_assignment_the_leader_made(sim):
    sim.stable(3)
    ids = [member.id for member in sim.group.roster]
    assert state(sim) is State.STABLE
    assert [member.assignment for member in sim.group.roster] == [f"{each}@1".encode() for each in ids]
    (written,) = sim.written
    assert (written.generation, written.protocol_name, written.leader) == (1, "range", ids[0])
    assert [m.assignment for m in written.members] == [f"{each}@1".encode() for each in ids]


def test_followers_wait_for_the_leader_and_latecomers_get_theirs_at_once(sim):
    leader, early, late = (sim.id_for_newcomer() for _ in range(3))
    for each in (leader, early, late):
        sim.start_join(each)
    sim.advance(0)
    waiting = sim.start_sync(early)
    assert waiting not in sim.answers
    sim.sync(leader, None, {early: b"e", late: b"l"})
    assert sim.answers[waiting] == SyncAnswer(None, "consumer", "range", b"e")
    assert sim.sync(late).assignment == b"l"
    assert sim.sync(leader).assignment == b"", "whom the leader left out has nothing"


def test_assignments_are_handed_out_only_once_committed(sim):
    sim.commits_at_once = False
    member = sim.id_for_newcomer()
    sim.start_join(member)
    sim.advance(0)
    ticket = sim.start_sync(member, assignments={member: b"a"})
    assert ticket not in sim.answers and state(sim) is State.COMPLETING_REBALANCE
    assert sim.heartbeat(member) is None
    sim.commit_write()
    assert sim.answers[ticket].assignment == b"a" and state(sim) is State.STABLE


def test_sessions_run_again_once_a_slow_write_is_committed(sim):
    sim.commits_at_once = False
    member = sim.id_for_newcomer()
    sim.start_join(member)
    sim.advance(0)
    sim.start_sync(member, assignments={})
    sim.advance(20_000)
    assert member in sim.group.roster, "it waits for us"
    sim.commit_write()
    assert sim.timers[Timer(TimerKind.SESSION, member)] == sim.now_ms + 10_000


def test_a_failed_write_starts_the_rebalance_over(sim):
    sim.commits_at_once = False
    member = sim.id_for_newcomer()
    sim.start_join(member)
    sim.advance(0)
    ticket = sim.start_sync(member, assignments={member: b"a"})
    sim.commit_write(CoordinatorNotAvailable)
    assert sim.answers[ticket].error is CoordinatorNotAvailable
    assert state(sim) is State.PREPARING_REBALANCE
    assert sim.join(member).generation == 2


def test_a_late_write_of_a_past_generation_changes_nothing(sim):
    sim.commits_at_once = False
    member = sim.id_for_newcomer()
    sim.start_join(member)
    sim.advance(0)
    ticket = sim.start_sync(member, assignments={member: b"old"})
    newcomer = sim.start_join(version=3)
    assert sim.answers[ticket].error is RebalanceInProgress
    sim.start_join(member)
    assert sim.answers[newcomer].generation == 2
    sim.commit_write()
    assert state(sim) is State.COMPLETING_REBALANCE
    assert all(m.assignment == b"" for m in sim.group.roster)


def test_sessions_run_from_the_moment_a_generation_is_formed(sim):
    members = sim.stable(2)
    sim.start_join(members[0])
    sim.advance(9_000)
    sim.start_join(members[1])
    assert all(sim.timers[Timer(TimerKind.SESSION, each)] == sim.now_ms + 10_000 for each in members)


def test_only_the_leaders_assignment_counts(sim):
    leader, other = (sim.id_for_newcomer() for _ in range(2))
    sim.start_join(leader)
    sim.start_join(other)
    sim.advance(0)
    ticket = sim.start_sync(other, assignments={other: b"all of it"})
    assert ticket not in sim.answers and not sim.written
    sim.start_sync(leader, assignments={other: b"fair share"})
    assert sim.answers[ticket].assignment == b"fair share"


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 2}, IllegalGeneration),
        ({"protocol_type": "connect"}, InconsistentProtocol),
        ({"protocol_name": "sticky"}, InconsistentProtocol),
        ({"instance_id": "nobody"}, UnknownMember),
        ({"protocol_type": "consumer", "protocol_name": "range"}, None),
    ],
)
def test_sync_is_checked(sim, more, refusal):
    (member,) = sim.stable(1)
    assert sim.sync(member, **more).error is refusal


def test_sync_by_a_stranger_or_during_a_rebalance(sim):
    (member,) = sim.stable(1)
    assert sim.sync("stranger").error is UnknownMember
    sim.start_join(version=3)
    assert sim.sync(member).error is RebalanceInProgress


def test_who_does_not_ask_for_its_assignment_is_removed(sim):
    leader, lazy = (sim.id_for_newcomer() for _ in range(2))
    sim.start_join(leader)
    sim.start_join(lazy)
    sim.advance(0)
    sim.sync(leader, None, {})
    for _ in range(6):
        sim.advance(5_000)
        sim.heartbeat(leader)
        sim.heartbeat(lazy)
    assert state(sim) is State.PREPARING_REBALANCE
    assert lazy not in sim.group.roster and leader in sim.group.roster


# Heartbeats, leaving, sessions


def test_heartbeats_keep_a_member_and_tell_it_of_a_rebalance(sim):
    (member,) = sim.stable(1)
    for _ in range(10):
        sim.advance(9_000)
        assert sim.heartbeat(member) is None
    sim.start_join(version=3)
    assert sim.heartbeat(member) is RebalanceInProgress


def test_heartbeats_are_checked(sim):
    (member,) = sim.stable(1)
    assert sim.heartbeat("stranger") is UnknownMember
    assert sim.heartbeat(member, generation=0) is IllegalGeneration
    assert sim.heartbeat(member, generation=2) is IllegalGeneration


def test_a_silent_member_is_removed_at_its_session_timeout(sim):
    leader, silent = sim.stable(2)
    sim.advance(9_999)
    sim.heartbeat(leader)
    sim.advance(1)
    assert silent not in sim.group.roster and state(sim) is State.PREPARING_REBALANCE
    assert sim.heartbeat(leader) is RebalanceInProgress
    assert sim.join(leader).generation == 2


def test_the_last_member_leaves_an_empty_group_behind(sim):
    (member,) = sim.stable(1)
    assert sim.leave(member) is None
    assert state(sim) is State.EMPTY and sim.group.generation == 2
    written = sim.written[-1]
    assert (written.generation, written.protocol_type, written.members) == (2, "consumer", ())
    assert (written.protocol_name, written.leader) == (None, None)
    assert not sim.timers
    assert sim.heartbeat(member) is UnknownMember
    assert not sim.group.is_vacant


def test_when_the_leader_leaves_the_next_one_leads(sim):
    leader, second, third = sim.stable(3)
    sim.leave(leader)
    sim.start_join(third)
    sim.start_join(second)
    assert sim.group.leader == second
    assert sim.group.generation == 2


def test_leaving_is_checked(sim):
    sim.stable(1)
    assert sim.leave("stranger") is UnknownMember
    assert sim.leave("", "nobody") is UnknownMember
    pending = sim.id_for_newcomer()
    assert sim.leave(pending) is None
    assert not sim.group.roster.pending
    assert state(sim) is State.STABLE


def test_a_member_that_waits_does_not_time_out_but_a_newcomer_that_waits_too_long_does(sim):
    (member,) = sim.stable(1, rebalance_timeout_ms=3_600_000, session_timeout_ms=60_000)
    newcomer = sim.start_join(version=3)
    while sim.now_ms < 1_000_000 + NEW_MEMBER_TIMEOUT_MS:
        assert newcomer not in sim.answers
        assert sim.heartbeat(member) is RebalanceInProgress
        sim.advance(50_000)
    assert sim.answers[newcomer].error is UnknownMember

    (again,) = [sim.start_join(member)]
    assert sim.answers[again].generation == 2


@pytest.mark.parametrize("how", ["leaves", "expires"])
def test_a_generation_does_not_wait_for_an_id_that_is_given_up(sim, how):
    (member,) = sim.stable(1)
    pending = sim.id_for_newcomer(session_timeout_ms=5_000)
    ticket = sim.start_join(member)
    assert ticket not in sim.answers, "the newcomer is expected"
    if how == "leaves":
        sim.leave(pending)
    else:
        sim.advance(5_000)
    assert sim.answers[ticket].generation == 2


def test_dynamic_members_that_do_not_rejoin_in_time_are_out(sim):
    leader, other = sim.stable(2)
    newcomer = sim.start_join(version=3)
    sim.start_join(other)
    for _ in range(3):
        sim.heartbeat(leader)
        sim.advance(9_999)
    sim.heartbeat(leader)
    assert newcomer not in sim.answers
    sim.advance(3)
    assert leader not in sim.group.roster
    assert sim.answers[newcomer].generation == 2
    assert sim.group.leader == other
    assert sim.heartbeat(leader, 1) is UnknownMember


# Joining again


def test_a_follower_that_joins_unchanged_disturbs_nobody(sim):
    _, follower = sim.stable(2)
    answer = sim.join(follower)
    assert (answer.generation, answer.members, state(sim)) == (1, (), State.STABLE)


def test_a_leader_or_a_changed_member_that_joins_makes_a_generation(sim):
    leader, follower = sim.stable(2)
    sim.start_join(leader)
    assert state(sim) is State.PREPARING_REBALANCE
    sim.rejoin_all()
    sim.sync_all()
    sim.start_join(follower, protocols=(Protocol("range", b"other topics"),))
    assert state(sim) is State.PREPARING_REBALANCE
    sim.rejoin_all()
    assert sim.group.generation == 3
    assert sim.group.roster[follower].protocols[0].metadata == b"other topics"


def test_a_member_that_missed_its_answer_gets_it_again(sim):
    leader, follower = (sim.id_for_newcomer() for _ in range(2))
    sim.start_join(leader)
    sim.start_join(follower)
    sim.advance(0)
    assert len(sim.join(leader).members) == 2
    assert sim.join(follower).members == ()
    assert sim.group.generation == 1


def test_a_changed_member_during_completion_starts_over(sim):
    leader, follower = (sim.id_for_newcomer() for _ in range(2))
    sim.start_join(leader)
    sim.start_join(follower)
    sim.advance(0)
    waiting = sim.start_sync(follower)
    sim.start_join(leader, protocols=(Protocol("range", b"new"),))
    assert sim.answers[waiting].error is RebalanceInProgress
    assert state(sim) is State.PREPARING_REBALANCE


def test_a_repeated_join_or_sync_releases_the_first(sim):
    leader, follower = sim.stable(2)
    first = sim.start_join(leader)
    second = sim.start_join(leader)
    assert sim.answers[first].error is RebalanceInProgress and second not in sim.answers
    sim.start_join(follower)
    assert sim.answers[second].generation == 2
    first = sim.start_sync(follower)
    second = sim.start_sync(follower)
    assert sim.answers[first].error is RebalanceInProgress and second not in sim.answers


# Static members


def static_pair(sim: Simulation, **options: object) -> tuple[str, str]:
    a = sim.start_join(instance_id="a", **options)
    b = sim.start_join(instance_id="b", **options)
    sim.advance(0)
    sim.sync_all()
    assert state(sim) is State.STABLE
    return sim.answers[a].member_id, sim.answers[b].member_id


def test_a_static_member_comes_back_without_a_rebalance(sim):
    _, b = static_pair(sim)
    before = sim.group.roster[b].assignment
    answer = sim.join(instance_id="b")
    assert (answer.error, answer.generation, answer.members) == (None, 1, ())
    assert answer.member_id != b and state(sim) is State.STABLE
    assert sim.sync(answer.member_id, instance_id="b").assignment == before
    assert {m.member_id for m in sim.written[-1].members} == {m.id for m in sim.group.roster}
    assert Timer(TimerKind.SESSION, answer.member_id) in sim.timers
    assert Timer(TimerKind.SESSION, b) not in sim.timers


def test_its_predecessor_is_fenced(sim):
    _, b = static_pair(sim)
    sim.join(instance_id="b")
    assert sim.heartbeat(b, instance_id="b") is FencedInstance
    assert sim.sync(b, instance_id="b").error is FencedInstance
    assert sim.join(b, instance_id="b").error is FencedInstance
    assert sim.commit(b, 1, "b") is FencedInstance
    assert sim.leave(b, "b") is FencedInstance
    assert sim.heartbeat(b) is UnknownMember


def test_a_static_leader_that_comes_back_leads_but_does_not_assign(sim):
    a, _ = static_pair(sim)
    answer = sim.join(instance_id="a")
    assert answer.leader == answer.member_id != a
    assert answer.skip_assignment and len(answer.members) == 2


def test_an_old_client_is_kept_from_assigning_by_naming_its_predecessor(sim):
    a, _ = static_pair(sim)
    answer = sim.join(instance_id="a", version=8)
    assert (answer.leader, answer.skip_assignment, answer.members) == (a, False, ())
    assert sim.group.leader == answer.member_id


def test_a_replacement_is_answered_once_it_is_committed(sim):
    static_pair(sim)
    sim.commits_at_once = False
    ticket = sim.start_join(instance_id="b")
    assert ticket not in sim.answers
    sim.commit_write()
    assert sim.answers[ticket].error is None


def test_a_replacement_that_could_not_be_written_may_try_again(sim):
    static_pair(sim)
    sim.commits_at_once = False
    ticket = sim.start_join(instance_id="b")
    sim.commit_write(CoordinatorNotAvailable)
    assert (sim.answers[ticket].error, sim.answers[ticket].member_id) == (CoordinatorNotAvailable, "")
    sim.commits_at_once = True
    assert sim.join(instance_id="b").generation == 1


def test_a_replacement_overtaken_by_a_rebalance_is_part_of_it(sim):
    a, _ = static_pair(sim)
    sim.commits_at_once = False
    ticket = sim.start_join(instance_id="b")
    newcomer = sim.start_join(version=3)
    sim.commit_write()
    assert ticket not in sim.answers
    sim.start_join(a, instance_id="a")
    assert sim.answers[ticket].generation == sim.answers[newcomer].generation == 2


def test_a_static_member_that_changes_the_chosen_protocol_makes_a_generation(sim):
    both = (Protocol("range", b""), Protocol("sticky", b""))
    sim.start_join(instance_id="a", protocols=both)
    sim.start_join(instance_id="b", protocols=both)
    sim.advance(0)
    sim.sync_all()
    assert sim.group.protocol_name == "range"
    sim.start_join(instance_id="b", protocols=(Protocol("sticky", b""),))
    assert state(sim) is State.PREPARING_REBALANCE


def test_a_replacement_while_the_leader_assigns_starts_over(sim):
    sim.start_join(instance_id="a")
    sim.start_join(instance_id="b")
    sim.advance(0)
    assert state(sim) is State.COMPLETING_REBALANCE
    sim.start_join(instance_id="b")
    assert state(sim) is State.PREPARING_REBALANCE


def test_a_replacement_fences_a_predecessor_that_waits_for_its_assignment(sim):
    sim.start_join(instance_id="a")
    b = sim.start_join(instance_id="b")
    sim.advance(0)
    waiting = sim.start_sync(sim.answers[b].member_id, instance_id="b")
    sim.start_join(instance_id="b")
    assert sim.answers[waiting].error is FencedInstance


def test_a_replacement_during_a_join_fences_the_waiting_predecessor(sim):
    first = sim.start_join(instance_id="a")
    second = sim.start_join(instance_id="a")
    assert sim.answers[first].error is FencedInstance
    sim.advance(0)
    assert sim.answers[second].generation == 1 and len(sim.group.roster) == 1


def test_a_static_member_that_misses_a_rebalance_stays_until_its_session_ends(sim):
    a, b = static_pair(sim, rebalance_timeout_ms=5_000)
    sim.advance(8_000)
    sim.heartbeat(a)
    newcomer = sim.start_join(version=3, rebalance_timeout_ms=5_000)
    sim.start_join(b, instance_id="b", rebalance_timeout_ms=5_000)
    sim.advance(5_000)
    assert sim.answers[newcomer].generation == 2
    assert a in sim.group.roster
    assert sim.group.leader == b, "an absent member cannot lead"
    assert len(sim.answers[newcomer].members) == 0


def test_absent_static_members_alone_do_not_make_a_generation(sim):
    a, b = static_pair(sim, rebalance_timeout_ms=2_000)
    sim.leave(a, "a")
    sim.advance(9_999)
    assert state(sim) is State.PREPARING_REBALANCE and sim.group.generation == 1
    assert b in sim.group.roster
    sim.advance(1)
    assert state(sim) is State.EMPTY, "its session ended"


def test_an_operator_removes_a_static_member_by_name(sim):
    _, b = static_pair(sim)
    assert sim.leave("", "b") is None
    assert b not in sim.group.roster and state(sim) is State.PREPARING_REBALANCE


def test_a_pending_id_is_never_static(sim):
    member_id = sim.id_for_newcomer()
    assert sim.join(member_id, instance_id="x").error is UnknownMember


# Size


def test_a_full_group_refuses_newcomers_but_keeps_its_members():
    sim = Simulation(limits=dataclasses.replace(LIMITS, max_size=2))
    leader, _ = sim.stable(2)
    answer = sim.join()
    assert (answer.error, answer.member_id) == (GroupFull, "")
    sim.start_join(leader)
    sim.rejoin_all()
    assert sim.group.generation == 2 and len(sim.group.roster) == 2


def test_ids_handed_out_count():
    sim = Simulation(limits=dataclasses.replace(LIMITS, max_size=2))
    ids = [sim.id_for_newcomer() for _ in range(2)]
    assert sim.join().error is GroupFull
    sim.start_join(ids[0])
    sim.start_join(ids[1])
    sim.advance(0)
    assert len(sim.group.roster) == 2


def test_a_restored_group_that_is_too_large_sheds_the_last_to_rejoin():
    sim = Simulation()
    first, second, third = sim.stable(3)
    small = dataclasses.replace(LIMITS, max_size=2)
    again = Simulation(limits=small, group=ClassicGroup.restored(sim.written[-1], small, 0), now_ms=0)
    assert state(again) is State.PREPARING_REBALANCE
    again.start_join(first)
    again.start_join(second)
    assert again.join(third).error is GroupFull
    assert again.group.generation == 2 and len(again.group.roster) == 2


def test_what_members_bring_is_bounded_and_counted_by_address():
    sim = Simulation(limits=dataclasses.replace(LIMITS, max_bytes=100_000))
    large = (Protocol("range", bytes(40_000)),)
    member_id = sim.id_for_newcomer(protocols=large)
    assert sim.held == {"/127.0.0.1": PENDING_BYTES}
    sim.start_join(member_id, protocols=large)
    sim.start_join(version=3, protocols=large)
    assert 80_000 < sim.group.held_bytes == sim.held["/127.0.0.1"] <= 100_000
    assert sim.join(version=3, protocols=large).error is GroupFull
    # Whoever is in it may come again with as much.
    sim.advance(60_000)
    assert sim.join(member_id, protocols=large).error is not GroupFull
    sim.group.end(CoordinatorNotAvailable)
    sim.settle()
    assert sim.group.held_bytes == sim.held.total() == 0


def test_an_id_is_not_kept_for_longer_than_a_newcomer():
    sim = Simulation(limits=dataclasses.replace(LIMITS, max_session_timeout_ms=1_800_000))
    sim.id_for_newcomer(session_timeout_ms=1_800_000)
    sim.advance(NEW_MEMBER_TIMEOUT_MS)
    assert not sim.group.roster.pending


# Commits


def test_who_may_commit(sim):
    assert sim.commit() is None, "a group without members takes offsets from simple consumers"
    (member,) = sim.stable(1)
    assert sim.commit(member, 1) is None
    assert sim.commit(member, 0) is IllegalGeneration
    assert sim.commit("stranger", 1) is UnknownMember
    assert sim.commit() is UnknownMember
    assert sim.commit(member, -1) is IllegalGeneration
    assert sim.commit(member, 1, "nobody") is UnknownMember


def test_commits_are_taken_while_a_rebalance_is_prepared_and_not_once_it_completes(sim):
    (member,) = sim.stable(1)
    sim.start_join(version=3)
    assert sim.commit(member, 1) is None
    sim.start_join(member)
    assert state(sim) is State.COMPLETING_REBALANCE
    assert sim.commit(member, 2) is RebalanceInProgress
    assert sim.commit(member, 1) is IllegalGeneration


def test_a_commit_counts_as_a_sign_of_life(sim):
    (member,) = sim.stable(1)
    for _ in range(5):
        sim.advance(9_000)
        assert sim.commit(member, 1) is None


# Restart and end


def test_a_restored_group_goes_on(sim):
    leader, follower = sim.stable(2)
    again = Simulation(group=ClassicGroup.restored(sim.written[-1], LIMITS, 5_000), now_ms=5_000)
    assert state(again) is State.STABLE
    assert again.heartbeat(leader) is None
    assert again.commit(follower, 1) is None
    assert again.sync(follower).assignment == f"{follower}@1".encode()
    again.advance(20_000)
    assert state(again) is State.EMPTY, "silent members of a restored group time out as always"


def test_a_restored_static_member_keeps_its_name():
    sim = Simulation()
    _, b = static_pair(sim)
    again = Simulation(group=ClassicGroup.restored(sim.written[-1], LIMITS, 0), now_ms=0)
    assert again.heartbeat(b, instance_id="b") is None
    assert again.join(instance_id="b").generation == 1


def test_an_empty_group_is_restored_empty_with_its_generation(sim):
    (member,) = sim.stable(1)
    sim.leave(member)
    again = Simulation(group=ClassicGroup.restored(sim.written[-1], LIMITS, 0), now_ms=0)
    assert state(again) is State.EMPTY and again.group.generation == 2
    again.start_join(version=3)
    again.advance(0)
    assert again.group.generation == 3, "generations never repeat"


def test_the_end_tells_everybody_who_waits_and_stops_every_timer(sim):
    leader, follower = sim.stable(2)
    sim.id_for_newcomer()
    joining = sim.start_join(leader)
    sim.group.end(NotCoordinator)
    sim.settle()
    assert sim.answers[joining].error is NotCoordinator
    assert not sim.timers and state(sim) is State.DEAD
    assert sim.heartbeat(follower) is CoordinatorNotAvailable
    assert sim.join(follower).error is CoordinatorNotAvailable
    assert sim.sync(follower).error is CoordinatorNotAvailable
    assert sim.commit() is CoordinatorNotAvailable
    assert sim.leave(follower) is CoordinatorNotAvailable


def test_the_end_releases_waiting_syncs(sim):
    a, b = (sim.id_for_newcomer() for _ in range(2))
    sim.start_join(a)
    sim.start_join(b)
    sim.advance(0)
    waiting = sim.start_sync(b)
    sim.group.end(NotCoordinator)
    sim.settle()
    assert sim.answers[waiting].error is NotCoordinator


def test_stale_timers_do_nothing(sim):
    (member,) = sim.stable(1)
    for timer in (
        Timer(TimerKind.JOIN),
        Timer(TimerKind.SYNC),
        Timer(TimerKind.SESSION, "gone"),
        Timer(TimerKind.PENDING, member),
    ):
        sim.group.timer_fired(timer, sim.now_ms)
    sim.settle()
    assert state(sim) is State.STABLE and sim.group.roster[member].protocols == RANGE
