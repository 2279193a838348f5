"""What one connection does, as the audit sees it: single events, and acts that are counted over an interval.

A client that writes a thousand times a minute is one event a minute for each topic and result, not a thousand. What is
refused is told at once, the first time in each interval; the same again is counted. Counts become events when the
interval is over, when the sender changes, when there are too many, and when the connection ends.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.audit.events import API_ACTIVITY, AUTHENTICATION, LOGON, Event, HttpExchange, Resource, Result, Sender
from gateway.audit.kinds import COUNTED, Act
from gateway.principal import Principal

if TYPE_CHECKING:
    from gateway.audit.audit import Audit

MOST_COUNTS: Final = 256
"""Different things that one connection counts before it tells them."""


class Call(NamedTuple):
    """An operation as a client names it."""

    service: str
    name: str
    version: str
    act: Act


class Counted(NamedTuple):
    call: Call
    resource: Resource | None
    result: Result
    more: int


class Trail:
    __slots__ = ("_again", "_counts", "_login_ms", "audit", "client_id", "is_peer", "port", "principal", "since_ms")

    def __init__(self, audit: "Audit", principal: Principal, port: int) -> None:
        self.audit = audit
        self.principal = principal
        self.port = port
        self.client_id = ""
        """The one that the connection gave last: clients give one per connection."""
        self.is_peer = False
        """Whether this is another broker, shown by its certificate."""
        self.since_ms = 0
        self._login_ms: int | None = None
        self._counts: dict[Counted, list[int]] = {}
        self._again: dict[Hashable, list[int]] = {}
        """The same counts, by a key that is quickly made from an answer."""

    @property
    def counts(self) -> int:
        return len(self._counts)

    def is_now(self, principal: Principal) -> None:
        """Says who does what follows."""
        if principal != self.principal:
            self.flush()
            self.principal = principal

    def login_is_due(self) -> bool:
        """Returns whether a login that comes with every request is to be noted: once per interval."""
        now_ms = self.audit.clock()
        if self._login_ms is not None and 0 <= now_ms - self._login_ms < self.audit.interval_ms:
            return False
        self._login_ms = now_ms
        return True

    def login(self, service: str, how: str, result: Result, claimed: str | None = None) -> None:
        """Notes a login. `claimed` is the name that a client gave if it did not prove to be that user.

        A name that no user has is not written: people type passwords where their name belongs.
        """
        principal = self.principal
        if claimed is not None:
            name = claimed if self.audit.is_user(claimed) else ""
            principal = Principal(name, "anonymous", principal.listener, principal.address)
        if not self.audit.wants("authenticate", principal.name, result):
            return
        self.audit.note(
            Event(
                self.audit.clock(),
                AUTHENTICATION,
                LOGON,
                how,
                service,
                sender=Sender(principal, self.port, self.client_id),
                result=result,
            )
        )

    def note(
        self,
        call: Call,
        result: Result,
        resources: Sequence[Resource] = (),
        more: int = 0,
        http: HttpExchange | None = None,
    ) -> None:
        act = call.act
        if not self.audit.wants(act.kind, self.principal.name, result):
            return
        if act.kind not in COUNTED:
            self.audit.note(self._event(call, result, resources, more, http))
            return
        for resource in resources or (None,):
            if result.outcome == "refused" or not self.audit.excludes(resource):
                self._count(Counted(call, resource, result, more), http)

    def _count(self, key: Counted, http: HttpExchange | None) -> None:
        known = self._counts.get(key)
        if known is not None:
            known[0] += 1
            return
        if len(self._counts) >= MOST_COUNTS:
            self.flush()
        self.audit.counting(self)
        if key.result.outcome == "refused":
            shown = () if key.resource is None else (key.resource,)
            self.audit.note(self._event(key.call, key.result, shown, key.more, http))
            self._counts[key] = [0]
        else:
            self._counts[key] = [1]

    def again(self, key: Hashable) -> bool:
        """Counts one more of what `remember` was told under this key. Returns False if there is none."""
        count = self._again.get(key)
        if count is None:
            return False
        count[0] += 1
        return True

    def remember(self, key: Hashable, counted: Counted) -> None:
        count = self._counts.get(counted)
        if count is not None:
            self._again[key] = count

    def flush(self) -> None:
        """Turns the counts into events."""
        if not self._counts:
            return
        counts, self._counts = self._counts, {}
        self._again.clear()
        self.audit.counted(self, len(counts))
        for key, (count,) in counts.items():
            if count:
                shown = () if key.resource is None else (key.resource,)
                event = self._event(key.call, key.result, shown, key.more, None)
                self.audit.note(replace(event, count=count, since_ms=self.since_ms))

    def _event(
        self, call: Call, result: Result, resources: Sequence[Resource], more: int, http: HttpExchange | None
    ) -> Event:
        return Event(
            self.audit.clock(),
            API_ACTIVITY,
            call.act.activity,
            call.name,
            call.service,
            call.version,
            Sender(self.principal, self.port, self.client_id),
            result,
            resources,
            more,
            http=http,
        )
