"""A group machine with a clock that the test turns, timers that fire when due, and writes that the test commits."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

from gateway.coordinators.errors import Refusal
from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.messages import (
    ClearTimer,
    GroupLimits,
    GroupSnapshot,
    Held,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Persist,
    Protocol,
    Reply,
    SetTimer,
    SyncAnswer,
    SyncRequest,
    Ticket,
    Timer,
)
from gateway.coordinators.groups.states import State

LIMITS = GroupLimits(
    min_session_timeout_ms=1_000,
    max_session_timeout_ms=60_000,
    initial_rebalance_delay_ms=0,
    max_size=100,
    max_bytes=1 << 20,
)
RANGE = (Protocol("range", b"topics"),)


@dataclass
class Simulation:
    limits: GroupLimits = LIMITS
    now_ms: int = 1_000_000
    group: ClassicGroup = None  # type: ignore[assignment]
    commits_at_once: bool = True
    answers: dict[int, JoinAnswer | SyncAnswer] = field(default_factory=dict)
    timers: dict[Timer, int] = field(default_factory=dict)
    unwritten: list[Persist] = field(default_factory=list)
    written: list[GroupSnapshot] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)
    """Bytes by address."""

    def __post_init__(self) -> None:
        if self.group is None:
            self.group = ClassicGroup(self.limits)
        self.issued = 0
        self._ids = itertools.count(1)
        self.settle()

    def settle(self) -> None:
        while effects := self.group.take_effects():
            for effect in effects:
                match effect:
                    case Reply(ticket, answer):
                        assert ticket not in self.answers, "a ticket was answered twice"
                        self.answers[ticket] = answer
                    case SetTimer(timer, deadline_ms):
                        self.timers[timer] = deadline_ms
                    case ClearTimer(timer):
                        self.timers.pop(timer, None)
                    case Held(address, more_bytes):
                        self.held[address] += more_bytes
                    case Persist():
                        self.unwritten.append(effect)
            if self.commits_at_once:
                while self.unwritten:
                    self.commit_write()

    def commit_write(self, failure: Refusal = None) -> None:
        persist = self.unwritten.pop(0)
        if failure is None:
            self.written.append(persist.snapshot)
        self.group.persisted(persist.number, failure, self.now_ms)
        self.settle()

    def advance(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while self.timers:
            timer, deadline_ms = min(self.timers.items(), key=lambda item: item[1])
            if deadline_ms > end_ms:
                break
            del self.timers[timer]
            self.now_ms = max(self.now_ms, deadline_ms)
            self.group.timer_fired(timer, self.now_ms)
            self.settle()
        self.now_ms = end_ms

    def _ticket(self) -> Ticket:
        self.issued += 1
        return Ticket(self.issued)

    def start_join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        version: int = 9,
    ) -> Ticket:
        ticket = self._ticket()
        request = JoinRequest(
            member_id=member_id,
            fresh_id=f"{instance_id or 'client'}-{next(self._ids)}",
            instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            must_know_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.group.join(request, ticket, self.now_ms)
        self.settle()
        return ticket

    def join(self, member_id: str = "", **options: object) -> JoinAnswer:
        """A join that is answered without anything else happening."""
        answer = self.answers[self.start_join(member_id, **options)]  # type: ignore[arg-type]
        assert isinstance(answer, JoinAnswer)
        return answer

    def start_sync(
        self, member_id: str, generation: int | None = None, assignments: dict[str, bytes] | None = None, **more: object
    ) -> Ticket:
        ticket = self._ticket()
        request = SyncRequest(
            member_id=member_id,
            generation=self.group.generation if generation is None else generation,
            assignments=assignments,
            **more,  # type: ignore[arg-type]
        )
        self.group.sync(request, ticket, self.now_ms)
        self.settle()
        return ticket

    def sync(self, member_id: str, *arguments: object, **more: object) -> SyncAnswer:
        answer = self.answers[self.start_sync(member_id, *arguments, **more)]  # type: ignore[arg-type]
        assert isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> Refusal:
        refusal = self.group.heartbeat(
            member_id, instance_id, self.group.generation if generation is None else generation, self.now_ms
        )
        self.settle()
        return refusal

    def commit(self, member_id: str = "", generation: int = -1, instance_id: str | None = None) -> Refusal:
        refusal = self.group.commit(member_id, instance_id, generation, self.now_ms)
        self.settle()
        return refusal

    def leave(self, member_id: str, instance_id: str | None = None) -> Refusal:
        refusal = self.group.leave(LeavingMember(member_id, instance_id), self.now_ms)
        self.settle()
        return refusal

    def id_for_newcomer(self, **options: object) -> str:
        return self.join(**options).member_id

    def stable(self, size: int = 1, **options: object) -> list[str]:
        """Bring a fresh group to Stable with so many dynamic members, the leader first."""
        ids = [self.id_for_newcomer(**options) for _ in range(size)]
        for member_id in ids:
            self.start_join(member_id, **options)  # type: ignore[arg-type]
        self.advance(self.limits.initial_rebalance_delay_ms * (size + 1))
        self.sync_all()
        assert self.group.state is State.STABLE and self.group.leader == ids[0]
        return ids

    def rejoin_all(self) -> None:
        """Who has not joined the generation that is being formed does so, with what it joined with before."""
        for member in list(self.group.roster):
            if member.join_ticket is None and self.group.state is State.PREPARING_REBALANCE:
                self.start_join(member.id, instance_id=member.instance_id, protocols=member.protocols)

    def sync_all(self) -> dict[str, SyncAnswer]:
        """The leader assigns each member a text of its own; everybody asks for it."""
        ids = [member.id for member in self.group.roster]
        assignments = {each: f"{each}@{self.group.generation}".encode() for each in ids}
        tickets = {
            each: self.start_sync(each, assignments=assignments if each == self.group.leader else None) for each in ids
        }
        return {each: self.answers[ticket] for each, ticket in tickets.items()}  # type: ignore[misc]
