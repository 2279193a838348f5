"""Many members, any order of joins, syncs, silences, leaves, restarts and failing writes: what always holds.

The clients here follow the protocol as real ones do (an error makes them join again, forget their id, or stop), but
they stall, crash and come back at will, and some keep talking in the name of a generation that is over.
"""

import dataclasses
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.coordinators.errors import CoordinatorNotAvailable, MemberIdRequired
from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.messages import PENDING_BYTES, JoinAnswer, Protocol, Ticket, Timer, TimerKind
from gateway.coordinators.groups.states import State
from tests.gateway.coordinators.simulation import LIMITS, Simulation

PROTOCOLS = [
    (Protocol("range", b"1"),),
    (Protocol("range", b"2"), Protocol("sticky", b"2")),
    (Protocol("sticky", b"3"), Protocol("range", b"3")),
]


@dataclass
class Client:
    name: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    joining: Ticket | None = None
    syncing: Ticket | None = None
    assignment: bytes | None = None
    members: tuple[str, ...] = ()


class GroupOfClients(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 250, 3_000]), max_size=st.sampled_from([3, 100]))
    def begin(self, delay_ms, max_size):
        limits = dataclasses.replace(LIMITS, initial_rebalance_delay_ms=delay_ms, max_size=max_size)
        self.sim = Simulation(limits=limits, commits_at_once=False)
        self.clients = [
            Client(f"c{i}", f"instance-{i}" if i % 3 == 0 else None, version=9 if i % 2 else 3) for i in range(7)
        ]
        self.highest_generation = 0
        self.handed_out: dict[int, dict[bytes, str]] = {}
        self.past: list[Client] = []

    # What clients do

    def read_answers(self, client: Client) -> None:
        if client.joining is not None and client.joining in self.sim.answers:
            answer = self.sim.answers[client.joining]
            client.joining = None
            assert isinstance(answer, JoinAnswer)
            if answer.error is MemberIdRequired:
                client.member_id = answer.member_id
            elif answer.error is not None:
                self.forget(client)
            else:
                client.member_id, client.generation = answer.member_id, answer.generation
                client.leads = answer.leader == answer.member_id and not answer.skip_assignment
                client.members = tuple(member_id for member_id, _, _ in answer.members)
                client.assignment = None
                assert not client.leads or client.member_id in client.members
        if client.syncing is not None and client.syncing in self.sim.answers:
            answer = self.sim.answers[client.syncing]
            client.syncing = None
            if answer.error is None:
                self.check_assignment(client, answer.assignment)

    def check_assignment(self, client: Client, assignment: bytes) -> None:
        client.assignment = assignment
        if assignment == b"":
            return
        generation, leader, _ = assignment.decode().split("|")
        assert int(generation) == client.generation, "an assignment of another generation"
        holders = self.handed_out.setdefault(client.generation, {})
        # A static member may come back under a new id and hold its predecessor's assignment.
        holder = holders.setdefault(assignment, client.name)
        assert holder == client.name, "two members were given the same assignment"
        assert all(a.split(b"|")[1] == leader.encode() for a in holders), "two leaders assigned in one generation"

    def join_as(self, client: Client, protocols=PROTOCOLS[1]) -> None:
        client.joining = self.sim.start_join(
            client.member_id,
            instance_id=client.instance_id,
            protocols=protocols,
            version=client.version,
            rebalance_timeout_ms=20_000,
        )
        self.read_answers(client)

    def sync_as(self, client: Client) -> None:
        assignments = None
        if client.leads:
            assignments = {each: f"{client.generation}|{client.member_id}|{each}".encode() for each in client.members}
        client.syncing = self.sim.start_sync(
            client.member_id, client.generation, assignments, instance_id=client.instance_id
        )
        self.read_answers(client)

    def step(self, client: Client) -> None:
        """What a real client would do next."""
        self.read_answers(client)
        if client.joining is not None or client.syncing is not None:
            return
        if client.generation < 0:
            self.join_as(client)
        elif client.assignment is None:
            self.sync_as(client)
            if client.syncing is None and client.assignment is None:
                self.part(client)
        elif self.sim.heartbeat(client.member_id, client.generation, client.instance_id) is not None:
            self.part(client)

    def part(self, client: Client) -> None:
        """From its generation; the id is kept for the next join."""
        self.past.append(dataclasses.replace(client))
        client.generation, client.leads, client.assignment = -1, False, None

    def forget(self, client: Client) -> None:
        self.part(client)
        client.member_id = ""

    who = st.integers(0, 6)

    @rule(who=who)
    def one_client_goes_on(self, who):
        self.step(self.clients[who])

    @rule(rounds=st.integers(1, 4), size=st.integers(1, 7))
    def clients_go_on_in_turn(self, rounds, size):
        for _ in range(rounds):
            for client in self.clients[:size]:
                self.step(client)
            while self.sim.unwritten:
                self.sim.commit_write()
            self.sim.advance(300)
            self.observe()

    @rule(who=who, protocols=st.sampled_from(PROTOCOLS))
    def join_again(self, who, protocols):
        """On a new connection perhaps, with the old request still waiting."""
        self.join_as(self.clients[who], protocols)

    @rule(who=who)
    def sync_again(self, who):
        client = self.clients[who]
        if client.generation >= 0 and client.joining is None:
            self.sync_as(client)

    @rule(who=who)
    def leave(self, who):
        client = self.clients[who]
        self.sim.leave(client.member_id, client.instance_id)
        self.forget(client)

    @rule(who=who)
    def crash(self, who):
        client = self.clients[who]
        client.joining = client.syncing = None
        self.forget(client)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def zombie_talks(self, data):
        zombie = data.draw(st.sampled_from(self.past))
        group = self.sim.group
        if zombie.generation == group.generation or zombie.generation < 0:
            return
        before = (group.state, group.generation, [member.id for member in group.roster])
        assert self.sim.heartbeat(zombie.member_id, zombie.generation, zombie.instance_id) is not None
        assert self.sim.commit(zombie.member_id, zombie.generation, zombie.instance_id) is not None
        answer = self.sim.sync(zombie.member_id, zombie.generation, {zombie.member_id: b"mine"})
        assert answer.error is not None
        assert before == (group.state, group.generation, [member.id for member in group.roster])

    @rule(by_ms=st.sampled_from([1, 250, 3_000, 9_000, 25_000, 400_000]))
    def wait(self, by_ms):
        self.sim.advance(by_ms)

    @precondition(lambda self: self.sim.unwritten)
    @rule(failure=st.sampled_from([None, None, None, CoordinatorNotAvailable]))
    def write_ends(self, failure):
        self.sim.commit_write(failure)

    @precondition(lambda self: self.sim.written)
    @rule()
    def broker_restarts(self):
        """Waiting requests fail with their connections; what was committed is read back."""
        last = self.sim.written[-1]
        self.sim.group.end(CoordinatorNotAvailable)
        self.sim.settle()
        self.observe()
        for client in self.clients:
            client.joining = client.syncing = None
        self.sim.unwritten.clear()
        self.sim.timers.clear()
        self.sim.group = ClassicGroup.restored(last, self.sim.limits, self.sim.now_ms)
        self.sim.settle()
        # What was not committed never happened: a generation may be formed anew under the same number.
        self.highest_generation = last.generation
        self.handed_out = {g: held for g, held in self.handed_out.items() if g <= last.generation}

    # What always holds

    @invariant()
    def observe(self):
        if not hasattr(self, "sim"):
            return
        for client in self.clients:
            self.read_answers(client)
        group = self.sim.group
        assert group.generation >= self.highest_generation
        self.highest_generation = group.generation
        roster = list(group.roster)
        assert group.roster.waiting == sum(member.join_ticket is not None for member in roster)
        assert len(roster) <= max(self.sim.limits.max_size, len(self.clients))
        if group.state is State.EMPTY:
            assert not roster
        if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            assert roster and group.leader in group.roster
            assert all(any(name == group.protocol_name for name, _ in member.protocols) for member in roster)
        if group.state is State.PREPARING_REBALANCE:
            assert Timer(TimerKind.JOIN) in self.sim.timers
        for member in roster:
            assert Timer(TimerKind.SESSION, member.id) in self.sim.timers or member.outlives_its_session
        for pending in group.roster.pending:
            assert Timer(TimerKind.PENDING, pending) in self.sim.timers
        held = sum(member.held_bytes for member in roster)
        assert group.held_bytes == held
        assert self.sim.held.total() == held + PENDING_BYTES * len(group.roster.pending)
        assert min(self.sim.held.values(), default=0) >= 0
        live_ids = {member.id for member in roster} | group.roster.pending.keys()
        assert {timer.member_id for timer in self.sim.timers if timer.member_id} <= live_ids

    # Progress

    def teardown(self):
        if not hasattr(self, "sim"):
            return
        self.sim.commits_at_once = True
        self.sim.settle()
        live = self.clients[: min(3, self.sim.limits.max_size)]
        for _ in range(40):
            for client in live:
                self.step(client)
            self.sim.advance(3_000)
            self.observe()
        group = self.sim.group
        assert group.state is State.STABLE
        assert {member.id for member in group.roster} == {client.member_id for client in live}
        assert {client.generation for client in live} == {group.generation}
        assert all(client.assignment for client in live)
        group.end(CoordinatorNotAvailable)
        self.sim.settle()
        assert self.sim.answers.keys() == set(range(1, self.sim.issued + 1)), "a request was never answered"
        assert not self.sim.timers


TestGroupOfClients = GroupOfClients.TestCase
TestGroupOfClients.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
