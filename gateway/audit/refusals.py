"""Which refusals are written one by one. Anybody who reaches a port can be refused as often as he likes, and must not
fill the disk or the queue by that.

In one interval the first `MOST_TOLD` refusals of a sender are events of their own. Further ones are counted, by what
was asked and why it was refused, and written once when the interval is over, without the names of things. A sender is a
user at an address. If there are more than `MOST_SENDERS` in one interval, the others count as one.
"""

from dataclasses import dataclass, replace
from typing import Final

from gateway.audit.events import Event
from gateway.principal import ANONYMOUS, Principal

MOST_TOLD: Final = 100
MOST_SENDERS: Final = 50

Who = tuple[str, str]
"""User and address."""

OTHERS: Final[Who] = ("", "")
MANY: Final = "0.0.0.0"
"""In place of the address of many senders."""


@dataclass(slots=True)
class _Rest:
    first: Event
    count: int = 0


class Refusals:
    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._since_ms: int | None = None
        self._told: dict[Who, int] = {}
        self._rests: dict[tuple[Who, int, str, str, str], _Rest] = {}

    def is_told(self, event: Event) -> bool:
        """Returns whether the refusal is an event of its own. If not, it is counted here."""
        if self._since_ms is None:
            self._since_ms = event.time_ms
        who = OTHERS if event.sender is None else (event.sender.principal.name, event.sender.principal.address)
        if who not in self._told and len(self._told) >= MOST_SENDERS:
            who = OTHERS
        told = self._told.get(who, 0)
        if told < MOST_TOLD:
            self._told[who] = told + 1
            return True
        key = who, event.class_uid, event.service, event.operation, event.result.code
        rest = self._rests.get(key)
        if rest is None:
            rest = self._rests[key] = _Rest(event)
        rest.count += event.count
        return False

    def counted(self, now_ms: int, *, everything: bool) -> list[Event]:
        """Returns what was counted, if the interval is over."""
        since_ms = self._since_ms
        if since_ms is None or (not everything and 0 <= now_ms - since_ms < self._interval_ms):
            return []
        found = [_summary(who, rest, now_ms, since_ms) for (who, *_), rest in self._rests.items()]
        self._since_ms = None
        self._told.clear()
        self._rests.clear()
        return found


def _summary(who: Who, rest: _Rest, now_ms: int, since_ms: int) -> Event:
    first, sender = rest.first, rest.first.sender
    if sender is not None and who == OTHERS:
        principal = Principal(ANONYMOUS, "anonymous", sender.principal.listener, MANY)
        sender = sender._replace(principal=principal, client_id="")
    return replace(
        first,
        time_ms=now_ms,
        sender=sender,
        result=first.result._replace(detail=""),
        resources=(),
        more=0,
        http=None,
        count=rest.count,
        since_ms=since_ms,
    )
