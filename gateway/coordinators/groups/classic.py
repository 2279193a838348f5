"""The group machine of the classic protocol: members, generations, and the answers that members get.

It owns membership, generations, the choice of leader, and assignments. It has no clock, no randomness and no I/O: each
call takes `now_ms` and leaves its effects in the outbox. `roster` keeps the set of members, `refusals` decides what is
refused, and `gateway.coordinators.group_offsets` handles offsets. The driver, `gateway.coordinators.group_members`,
does everything that waits or writes. The table of states, with its drawing, is in `states`.

Invariants:
- There is one generation at a time, and its number only grows. A request that names another one changes nothing.
- An assignment reaches members only after it is committed, and only members of its generation.
- Every ticket is answered exactly once; `end` answers those that are left.
- A member's SESSION timer runs while we wait for that member. It does not run while the member waits for us, except for
  a newcomer.
- Every choice among members (leader, ties of votes) follows the order in which they joined.
"""

from typing import Final

from gateway.coordinators.errors import (
    CoordinatorError,
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    MemberIdRequired,
    RebalanceInProgress,
    Refusal,
    UnknownMember,
)
from gateway.coordinators.groups import refusals
from gateway.coordinators.groups.initial_delay import InitialDelay
from gateway.coordinators.groups.member import Member
from gateway.coordinators.groups.memory import Memory
from gateway.coordinators.groups.messages import (
    NO_MEMBER,
    PENDING_BYTES,
    Effect,
    GroupLimits,
    GroupSnapshot,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
    Ticket,
    Timer,
    TimerKind,
)
from gateway.coordinators.groups.outbox import Outbox
from gateway.coordinators.groups.roster import Roster
from gateway.coordinators.groups.states import HEARTBEAT_ANSWERS, TRANSITIONS, State, Trigger
from gateway.coordinators.groups.subscription import all_assigned, all_subscribed
from hot_tier.ids import TopicPartition

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""A newcomer that waits in a long rebalance may be gone already. We cannot know, so it is not kept for ever."""

_JOIN: Final = Timer(TimerKind.JOIN)
_SYNC: Final = Timer(TimerKind.SYNC)


class ClassicGroup:
    def __init__(self, limits: GroupLimits) -> None:
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.roster = Roster()
        self._limits = limits
        self._initial_delay = InitialDelay(limits.initial_rebalance_delay_ms)
        self._not_synced: set[str] = set()
        self._assigning: tuple[int, dict[str, bytes]] | None = None
        """The leader's assignments while they are being written, by the number of the write."""
        self._replacing: dict[int, JoinAnswer] = {}
        """Answers to static members that replaced a predecessor, by the number of the write that each waits for."""
        self._outbox = Outbox()
        self._memory = Memory(self._outbox)

    @classmethod
    def restored(cls, snapshot: GroupSnapshot, limits: GroupLimits, now_ms: int) -> "ClassicGroup":
        """Returns a group that was read back. Its members continue their heartbeats as if nothing had happened."""
        group = cls(limits)
        group.generation = snapshot.generation
        group.protocol_type = snapshot.protocol_type or None
        group.protocol_name = snapshot.protocol_name
        if snapshot.members:
            group.state = State.STABLE
            group.leader = snapshot.leader
            for each in snapshot.members:
                member = Member.restored(each, snapshot.protocol_name or "")
                group.roster.add(member)
                group._memory.hold(member)
                group._restart_session(member, now_ms)
            if len(group.roster) > limits.max_size:
                group._rebalance(now_ms)
        return group

    def take_effects(self) -> list[Effect]:
        return self._outbox.take()

    @property
    def size(self) -> int:
        return len(self.roster)

    @property
    def is_idle(self) -> bool:
        return self.state is State.EMPTY and not self.roster.pending

    @property
    def is_vacant(self) -> bool:
        return self.is_idle and self.generation == 0

    @property
    def held_bytes(self) -> int:
        return self._memory.held_bytes

    def subscribed_topics(self) -> frozenset[str] | None:
        return all_subscribed(self.protocol_type, self.roster)

    def read_partitions(self) -> frozenset[TopicPartition]:
        return all_assigned(self.protocol_type, self.roster)

    def snapshot(self, assignments: dict[str, bytes] | None = None) -> GroupSnapshot:
        """Returns the state to persist. With `assignments`, it contains these instead of the members' present ones."""
        members = self.roster.snapshots(self.protocol_name, assignments) if self.protocol_name is not None else ()
        return GroupSnapshot(self.protocol_type or "", self.generation, self.protocol_name, self.leader, members)

    # Joining

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        """Replies now, or when the next generation is formed."""
        roster = self.roster
        member_id, instance_id = request.member_id, request.instance_id
        newcomer = member_id == NO_MEMBER
        predecessor = roster.instance(instance_id) if newcomer and instance_id is not None else None
        if refusal := refusals.refuse_join(self, request, self._limits):
            if refusal is GroupFull and member_id in roster:
                self._remove(roster[member_id])
            self._outbox.reply(ticket, JoinAnswer(NO_MEMBER if refusal is GroupFull else member_id, refusal))
        elif predecessor is not None:
            self._replace_static(roster[predecessor], request, ticket, now_ms)
        elif newcomer and instance_id is None and request.must_know_id:
            roster.pending[request.fresh_id] = request.client_host
            self._outbox.hold(request.client_host, PENDING_BYTES)
            wait_ms = min(request.session_timeout_ms, NEW_MEMBER_TIMEOUT_MS)
            self._outbox.set_timer(Timer(TimerKind.PENDING, request.fresh_id), now_ms + wait_ms)
            self._outbox.reply(ticket, JoinAnswer(request.fresh_id, MemberIdRequired))
        elif newcomer:
            self._add(Member.joining(request.fresh_id, request), request, ticket, now_ms)
        elif member_id in roster.pending and instance_id is None:
            self._forget_pending(member_id)
            self._add(Member.joining(member_id, request), request, ticket, now_ms)
        elif refusal := refusals.refuse_member(self, member_id, instance_id):
            self._outbox.reply(ticket, JoinAnswer(member_id, refusal))
        else:
            self._rejoin(roster[member_id], request, ticket, now_ms)
        self._form_if_all_joined(now_ms)

    def _add(self, member: Member, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        if not len(self.roster):
            self.protocol_type = request.protocol_type
            self.leader = member.id
        self.roster.add(member)
        self._memory.hold(member)
        self.roster.wait_for_join(member, ticket)
        self._initial_delay.newcomer()
        self._restart_session(member, now_ms)
        self._rebalance(now_ms)

    def _rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        unchanged = member.protocols == request.protocols
        leads = member.id == self.leader
        if self.state is State.COMPLETING_REBALANCE and unchanged:
            # The member missed our answer, so it gets the answer again.
            self._outbox.reply(ticket, self._joined(member, to_leader=leads))
            self._restart_session(member, now_ms)
        elif self.state is State.STABLE and unchanged and not leads:
            self._outbox.reply(ticket, self._joined(member))
            self._restart_session(member, now_ms)
        else:
            # If a leader joins again with nothing changed in its request, it has seen topics change.
            self._update(member, request, ticket)
            self._rebalance(now_ms)

    def _replace_static(self, member: Member, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        """Gives a process with a known `group.instance.id` the place and the assignment of its predecessor."""
        old_id, old_leader = member.id, self.leader
        self._answer_join(member, JoinAnswer(old_id, FencedInstance))
        self._answer_sync(member, SyncAnswer(FencedInstance))
        self._outbox.clear_timer(Timer(TimerKind.SESSION, old_id))
        self.roster.rename(member, request.fresh_id)
        if self.leader == old_id:
            self.leader = member.id
        if old_id in self._not_synced:
            self._not_synced.remove(old_id)
            self._not_synced.add(member.id)
        self._update(member, request, ticket)
        self._restart_session(member, now_ms)
        if self.state is not State.STABLE or self.roster.choose_protocol() != self.protocol_name:
            # A leader that assigns now uses the old id; and another protocol needs another assignment.
            self._rebalance(now_ms)
            return
        if request.can_skip_assignment:
            leads = member.id == self.leader
            answer = self._joined(member, to_leader=leads, skip_assignment=leads)
        else:
            # An old client would compute an assignment, which a stable group never hands out. So it is told that its
            # dead predecessor leads.
            answer = self._joined(member, leader=old_leader)
        self._replacing[self._outbox.persist(self.snapshot())] = answer

    def _update(self, member: Member, request: JoinRequest, ticket: Ticket) -> None:
        self._answer_join(member, JoinAnswer(member.id, RebalanceInProgress))
        self.roster.change_protocols(member, request.protocols)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._memory.hold(member)
        self.roster.wait_for_join(member, ticket)

    # From one generation to the next

    def _rebalance(self, now_ms: int) -> None:
        if self.state is State.PREPARING_REBALANCE:
            return
        if self.state is State.COMPLETING_REBALANCE:
            self._assigning = None
            for member in self.roster:
                member.assignment = b""
                if self._answer_sync(member, SyncAnswer(RebalanceInProgress)):
                    self._restart_session(member, now_ms)
        self._end_sync_phase()
        timeout_ms = self.roster.rebalance_timeout_ms
        wait_ms = self._initial_delay.start(timeout_ms) if self.state is State.EMPTY else timeout_ms
        self._outbox.set_timer(_JOIN, now_ms + wait_ms)
        self._move(Trigger.REBALANCE)

    def _form_if_all_joined(self, now_ms: int) -> None:
        roster = self.roster
        if self.state is not State.PREPARING_REBALANCE or self._initial_delay.runs:
            return
        if roster.waiting == len(roster) and not roster.pending:
            self._form_generation(now_ms)

    def _form_generation(self, now_ms: int) -> None:
        """Closes the generation with the members that have joined. Of the absent ones only static members stay."""
        roster = self.roster
        for member in [each for each in roster if each.join_ticket is None and each.instance_id is None]:
            self._drop(member)
        if len(roster) and not roster.waiting:
            # Only absent static members are left. Either they come back, or their sessions expire.
            self._outbox.set_timer(_JOIN, now_ms + roster.rebalance_timeout_ms)
            return
        self._outbox.clear_timer(_JOIN)
        self.generation += 1
        if not len(roster):
            self.protocol_name = self.leader = None
            self._move(Trigger.EMPTIED)
            self._outbox.persist(self.snapshot())
            return
        if self.leader is None or roster[self.leader].join_ticket is None:
            self.leader = next(member.id for member in roster if member.join_ticket is not None)
        self.protocol_name = roster.choose_protocol()
        self._move(Trigger.FORMED)
        for member in roster:
            member.is_new = False
            self._not_synced.add(member.id)
            self._answer_join(member, self._joined(member, to_leader=member.id == self.leader))
            self._restart_session(member, now_ms)
        self._outbox.set_timer(_SYNC, now_ms + roster.rebalance_timeout_ms)

    # Assignments

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> None:
        """Replies now, or when the leader's assignment is committed."""
        if refusal := refusals.refuse_sync(self, request):
            self._outbox.reply(ticket, SyncAnswer(refusal))
            return
        member = self.roster[request.member_id]
        self._not_synced.discard(member.id)
        if not self._not_synced:
            self._outbox.clear_timer(_SYNC)
        if self.state is State.STABLE:
            self._outbox.reply(ticket, self._assigned(member))
            self._restart_session(member, now_ms)
            return
        self._answer_sync(member, SyncAnswer(RebalanceInProgress))
        member.sync_ticket = ticket
        if member.id == self.leader and self._assigning is None:
            given = request.assignments or {}
            assignments = {each.id: given.get(each.id, b"") for each in self.roster}
            self._assigning = (self._outbox.persist(self.snapshot(assignments)), assignments)

    def persisted(self, number: int, failure: Refusal, now_ms: int) -> None:
        if self._assigning is not None and self._assigning[0] == number:
            _, assignments = self._assigning
            self._assigning = None
            if failure is None:
                for member in self.roster:
                    member.assignment = assignments[member.id]
                    self._memory.hold(member)
                self._move(Trigger.ASSIGNED)
            for member in self.roster:
                if self._answer_sync(member, self._assigned(member) if failure is None else SyncAnswer(failure)):
                    self._restart_session(member, now_ms)
            if failure is not None:
                self._rebalance(now_ms)
        elif number in self._replacing:
            answer = self._replacing.pop(number)
            if self.state is State.STABLE and answer.member_id in self.roster:
                member = self.roster[answer.member_id]
                self._answer_join(member, answer if failure is None else JoinAnswer(NO_MEMBER, failure))
                self._restart_session(member, now_ms)

    # Heartbeats, commits, leaving and timers

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Refusal:
        if refusal := refusals.refuse_generation(self, member_id, instance_id, generation):
            return refusal
        self._restart_session(self.roster[member_id], now_ms)
        return HEARTBEAT_ANSWERS[self.state]

    def commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, in_transaction: bool = False
    ) -> Refusal:
        """Returns why this sender may not commit. In a transaction the producer sends it: no session is prolonged."""
        refusal = refusals.refuse_commit(self, member_id, instance_id, generation, in_transaction=in_transaction)
        if refusal is None and not in_transaction and member_id in self.roster:
            self._restart_session(self.roster[member_id], now_ms)
        return refusal

    def leave(self, leaving: LeavingMember, now_ms: int) -> Refusal:
        member_id = leaving.member_id
        if self.state is State.DEAD:
            return CoordinatorNotAvailable
        if member_id in self.roster.pending:
            self._forget_pending(member_id)
            self._form_if_all_joined(now_ms)
            return None
        if member_id == NO_MEMBER and leaving.instance_id is not None:
            # An operator removes a static member by its instance id.
            member_id = self.roster.instance(leaving.instance_id) or NO_MEMBER
        if refusal := refusals.refuse_member(self, member_id, leaving.instance_id):
            return refusal
        self._remove(self.roster[member_id])
        self._after_removal(now_ms)
        return None

    def timer_fired(self, timer: Timer, now_ms: int) -> None:
        kind, member_id = timer
        roster = self.roster
        if kind is TimerKind.JOIN and self.state is State.PREPARING_REBALANCE:
            more_ms = self._initial_delay.prolong()
            if more_ms is None:
                self._form_generation(now_ms)
            else:
                self._outbox.set_timer(_JOIN, now_ms + more_ms)
        elif kind is TimerKind.SYNC and self._not_synced:
            for silent in [member for member in roster if member.id in self._not_synced]:
                self._remove(silent)
            self._after_removal(now_ms)
        elif kind is TimerKind.PENDING and member_id in roster.pending:
            self._drop_pending(member_id)
            self._form_if_all_joined(now_ms)
        elif kind is TimerKind.SESSION and member_id in roster and not roster[member_id].outlives_its_session:
            self._remove(roster[member_id])
            self._after_removal(now_ms)

    def end(self, refusal: type[CoordinatorError]) -> None:
        for member in list(self.roster):
            self._answer_join(member, JoinAnswer(member.id, refusal))
            self._answer_sync(member, SyncAnswer(refusal))
            self._drop(member)
        for member_id in list(self.roster.pending):
            self._forget_pending(member_id)
        self._outbox.clear_timer(_JOIN)
        self._end_sync_phase()
        self._assigning = None
        self._move(Trigger.ENDED)

    def _after_removal(self, now_ms: int) -> None:
        if self.state is not State.EMPTY:
            self._rebalance(now_ms)
            self._form_if_all_joined(now_ms)

    # Small parts

    def _remove(self, member: Member) -> None:
        self._answer_join(member, JoinAnswer(NO_MEMBER, UnknownMember))
        self._answer_sync(member, SyncAnswer(UnknownMember))
        self._drop(member)

    def _drop(self, member: Member) -> None:
        self._outbox.clear_timer(Timer(TimerKind.SESSION, member.id))
        self.roster.remove(member)
        self._memory.release(member)
        self._not_synced.discard(member.id)
        if self.leader == member.id:
            self.leader = next((each.id for each in self.roster), None)

    def _forget_pending(self, member_id: str) -> None:
        self._drop_pending(member_id)
        self._outbox.clear_timer(Timer(TimerKind.PENDING, member_id))

    def _drop_pending(self, member_id: str) -> None:
        self._outbox.hold(self.roster.pending.pop(member_id), -PENDING_BYTES)

    def _end_sync_phase(self) -> None:
        if self._not_synced:
            self._not_synced.clear()
            self._outbox.clear_timer(_SYNC)

    def _joined(
        self, member: Member, *, to_leader: bool = False, skip_assignment: bool = False, leader: str | None = None
    ) -> JoinAnswer:
        assert self.protocol_name is not None
        return JoinAnswer(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader or self.leader or NO_MEMBER,
            skip_assignment=skip_assignment,
            members=tuple(each.for_leader(self.protocol_name) for each in self.roster) if to_leader else (),
        )

    def _assigned(self, member: Member) -> SyncAnswer:
        return SyncAnswer(None, self.protocol_type, self.protocol_name, member.assignment)

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        if member.join_ticket is not None:
            self._outbox.reply(member.join_ticket, answer)
            self.roster.end_wait_for_join(member)

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        if member.sync_ticket is None:
            return False
        self._outbox.reply(member.sync_ticket, answer)
        member.sync_ticket = None
        return True

    def _restart_session(self, member: Member, now_ms: int) -> None:
        timeout_ms = NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        self._outbox.set_timer(Timer(TimerKind.SESSION, member.id), now_ms + timeout_ms)

    def _move(self, trigger: Trigger) -> None:
        self.state = TRANSITIONS[self.state][trigger]
