"""Runs the group machines: carries out their effects, runs their timers, and keeps the requests that wait.

One heap of deadlines and one timer of the event loop serve all groups. A member that waits costs a future; a heartbeat
costs a dict store. Sessions are measured with the loop's clock, so that a jump of the wall clock does not expire all
members.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import uuid4

from gateway.budget import Budget
from gateway.coordinators.deadlines import Deadlines
from gateway.coordinators.errors import CoordinatorError, CoordinatorNotAvailable, GroupFull, NotCoordinator
from gateway.coordinators.groups.group import Group
from gateway.coordinators.groups.group_map import GroupEntry
from gateway.coordinators.groups.messages import (
    NO_MEMBER,
    ClearTimer,
    GroupLimits,
    Held,
    JoinAnswer,
    JoinRequest,
    Persist,
    Reply,
    SetTimer,
    SyncAnswer,
    SyncRequest,
    Ticket,
    Timer,
)
from gateway.coordinators.groups.states import State
from gateway.coordinators.offsets_topic.keys import GroupKey, write_key
from gateway.coordinators.offsets_topic.values import write_group
from gateway.coordinators.settings import GroupSettings
from hot_tier.errors import NotLeader, TierlogError

GROUP_SHARE: Final = 4
"""One group may take a quarter of the memory for members."""
_MEMBER_NAME_CHARACTERS: Final = 249


class GroupMembers:
    def __init__(self, settings: GroupSettings, clock: Callable[[], int]) -> None:
        self.limits = GroupLimits(
            min_session_timeout_ms=settings.min_session_timeout_ms,
            max_session_timeout_ms=settings.max_session_timeout_ms,
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            max_size=settings.max_size,
            max_bytes=settings.max_bytes // GROUP_SHARE,
        )
        self.budget = Budget("members of groups", settings.max_bytes)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadlines: Deadlines[tuple[GroupEntry, Timer]] = Deadlines()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        self._waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self._tickets = count(1)

    def now_ms(self) -> int:
        """Returns the time of the loop's clock, not of the wall clock."""
        return int(self._loop.time() * 1000)

    async def join(self, entry: GroupEntry, request: JoinRequest) -> JoinAnswer:
        more_bytes = request.size_bytes - entry.classic.roster.held_by(request.member_id)
        if more_bytes > 0 and not self.budget.has_room(request.client_host, more_bytes):
            self.carry_out(entry)
            return JoinAnswer(NO_MEMBER, GroupFull)
        ticket, waiting = self._ticket()
        entry.classic.join(request, ticket, self.now_ms())
        self.carry_out(entry)
        answer: JoinAnswer = await waiting
        return answer

    async def sync(self, entry: GroupEntry, request: SyncRequest) -> SyncAnswer:
        ticket, waiting = self._ticket()
        entry.classic.sync(request, ticket, self.now_ms())
        self.carry_out(entry)
        answer: SyncAnswer = await waiting
        return answer

    def end(self, entry: GroupEntry, refusal: type[CoordinatorError]) -> None:
        entry.group.end(refusal)
        self.carry_out(entry)

    def carry_out(self, entry: GroupEntry) -> None:
        """Carries out the machine's effects. This is called after every call of a machine."""
        for effect in entry.group.take_effects():
            match effect:
                case SetTimer(timer, deadline_ms):
                    self._deadlines.set((entry, timer), deadline_ms)
                case ClearTimer(timer):
                    self._deadlines.clear((entry, timer))
                case Reply(ticket, answer):
                    waiting = self._waiting.pop(ticket)
                    if not waiting.done():
                        waiting.set_result(answer)
                case Held(address, more_bytes):
                    self.budget.hold(address, more_bytes)
                case Persist():
                    self._persist(entry, effect)
        entry.home.drop_if_vacant(entry)
        self._set_wake()

    def close(self) -> None:
        if self._wake is not None:
            self._wake.cancel()

    def _ticket(self) -> tuple[Ticket, asyncio.Future[Any]]:
        ticket = Ticket(next(self._tickets))
        waiting = self._waiting[ticket] = self._loop.create_future()
        return ticket, waiting

    def _persist(self, entry: GroupEntry, effect: Persist) -> None:
        now_ms = self._clock()
        if not effect.snapshot.members:
            entry.empty_since_ms = now_ms
        record = (write_key(GroupKey(entry.group_id)), write_group(effect.snapshot, now_ms))
        entry.home.writer.write([record], partial(self._persisted, entry, entry.group, effect.number))

    def _persisted(self, entry: GroupEntry, group: Group, number: int, error: TierlogError | None) -> None:
        if entry.group is not group or group.state is State.DEAD:
            return
        group.persisted(number, None if error is None else refusal_of(error), self.now_ms())
        self.carry_out(entry)

    def _set_wake(self) -> None:
        next_ms = self._deadlines.next_ms()
        if next_ms is None or (self._wake is not None and self._wake_ms <= next_ms):
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wake_ms = next_ms
        # One millisecond later, because the loop may wake us too early by its clock's resolution.
        self._wake = self._loop.call_at((next_ms + 1) / 1000, self._fire_due)

    def _fire_due(self) -> None:
        self._wake = None
        now_ms = self.now_ms()
        for entry, timer in self._deadlines.take_due(now_ms):
            entry.group.timer_fired(timer, now_ms)
            self.carry_out(entry)
        self._set_wake()


def refusal_of(error: TierlogError) -> type[CoordinatorError]:
    """Returns the refusal that members get when a write failed."""
    return NotCoordinator if isinstance(error, NotLeader) else CoordinatorNotAvailable


def new_member_id(client_id: str, instance_id: str | None) -> str:
    """Returns a unique id. It starts with the client's own name, so that people can find the process."""
    return f"{(instance_id or client_id)[:_MEMBER_NAME_CHARACTERS]}-{uuid4()}"
