"""The effects of a machine, in order. Its driver takes them and carries them out."""

from gateway.coordinators.groups.messages import (
    ClearTimer,
    Effect,
    GroupSnapshot,
    Held,
    JoinAnswer,
    Persist,
    Reply,
    SetTimer,
    SyncAnswer,
    Ticket,
    Timer,
)


class Outbox:
    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._last_persist = 0

    def take(self) -> list[Effect]:
        """Returns the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def reply(self, ticket: Ticket, answer: JoinAnswer | SyncAnswer) -> None:
        self._effects.append(Reply(ticket, answer))

    def persist(self, snapshot: GroupSnapshot) -> int:
        """Returns the number of the write. `persisted` will be called with this number."""
        self._last_persist += 1
        self._effects.append(Persist(self._last_persist, snapshot))
        return self._last_persist

    def set_timer(self, timer: Timer, deadline_ms: int) -> None:
        self._effects.append(SetTimer(timer, deadline_ms))

    def clear_timer(self, timer: Timer) -> None:
        self._effects.append(ClearTimer(timer))

    def hold(self, address: str, more_bytes: int) -> None:
        self._effects.append(Held(address, more_bytes))
