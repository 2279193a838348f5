"""Which events are kept, and the bounded queue in which they wait until `writer` has written them.

- An event leaves the queue only when it is written to every in-sync replica, or when the broker ends.
- The queue is bounded in bytes. With `on_full=refuse` it refuses requests when it is full, and has as much room again
  for what is being answered; beyond that, and with `on_full=drop`, events are dropped and counted.
- Exclusions and kinds never hide what was refused. Who is refused again and again is counted (`refusals`).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from gateway.audit.events import Event, Resource, Result
from gateway.audit.kinds import Act
from gateway.audit.refusals import Refusals
from gateway.audit.settings import AuditKind, AuditSettings
from gateway.audit.trail import Trail
from gateway.principal import Principal
from hot_tier.errors import TierlogError
from hot_tier.ids import TopicId

MOST_COUNTS: Final = 20_000
"""Of all connections together."""
MOST_SHARED: Final = 10_000
TELL_MS: Final = 60_000

_log = structlog.get_logger()


class AuditFull(TierlogError):
    """The audit cannot be written, and what may not go on without it is refused."""

    retriable = True

    def __init__(self) -> None:
        super().__init__(
            "the audit cannot be written now, and without it this is not done",
            hint="try again; the broker's log says what keeps it from writing to __audit",
        )


class Audit:
    def __init__(
        self,
        settings: AuditSettings,
        clock: Callable[[], int],
        topic_name: Callable[[TopicId], str | None],
        is_user: Callable[[str], bool],
    ) -> None:
        """`topic_name` returns the name of a topic with this id; `is_user` says whether there is such a user."""
        self._settings = settings
        self.clock = clock
        self.topic_name = topic_name
        self.is_user = is_user
        self.kinds = frozenset(settings.kinds)
        self._excluded_topics = frozenset(settings.excluded_topics)
        self._excluded_users = frozenset(settings.excluded_users)
        self.interval_ms = settings.interval_ms
        self._refusals = Refusals(settings.interval_ms)
        self._refuses = settings.on_full == "refuse"
        self._limit_bytes = settings.queue_bytes * (2 if self._refuses else 1)
        self._queue: deque[Event] = deque()
        self._counting: dict[Trail, None] = {}
        """The trails that count, in the order in which they began."""
        self._counts = 0
        self._shared: dict[Principal, Trail] = {}
        """Ordered by last use, least recent first."""
        self._told_ms = 0
        self.queued_bytes = 0
        self.refusing = False
        """Whether requests of the kinds that are written are refused now."""
        self.dropped = 0
        self.refused = 0
        self.total_written = 0
        self.failures = 0
        """Attempts to write that failed."""

    def trail(self, principal: Principal, port: int) -> Trail:
        return Trail(self, principal, port)

    def shared_trail(self, principal: Principal, port: int) -> Trail:
        """Returns the trail of a sender who may use a new connection for each request."""
        trail = self._shared.pop(principal, None)
        if trail is None:
            trail = Trail(self, principal, port)
            if len(self._shared) >= MOST_SHARED:
                self._shared.pop(next(iter(self._shared))).flush()
        self._shared[principal] = trail
        trail.port = port
        return trail

    def wants(self, kind: AuditKind, user: str, result: Result) -> bool:
        return result.outcome == "refused" or (kind in self.kinds and user not in self._excluded_users)

    def excludes(self, resource: Resource | None) -> bool:
        return resource is not None and resource.type == "topic" and resource.name in self._excluded_topics

    def admit(self, act: Act | None) -> None:
        """Raises AuditFull for an act that must not be done now, because the audit cannot write it."""
        if self.refusing and act is not None and act.kind in self.kinds:
            self.refused += 1
            raise AuditFull

    # Events

    def note(self, event: Event) -> None:
        if event.result.outcome != "refused" or self._refusals.is_told(event):
            self._keep(event)

    def _keep(self, event: Event) -> None:
        size = event.size
        if self.queued_bytes + size > self._limit_bytes:
            self._drop()
            return
        self._queue.append(event)
        self.queued_bytes += size
        self._look()

    def oldest(self, most_bytes: int) -> list[Event]:
        """Returns events that fit together, at least one if there is one. They stay in the queue."""
        found: list[Event] = []
        for event in self._queue:
            most_bytes -= event.size
            if found and most_bytes < 0:
                break
            found.append(event)
        return found

    def written(self, count: int) -> None:
        """Takes the oldest events out of the queue."""
        for _ in range(count):
            self.queued_bytes -= self._queue.popleft().size
        self.total_written += count
        self._look()

    @property
    def waiting(self) -> int:
        """Returns how many events are not written yet."""
        return len(self._queue)

    def _look(self) -> None:
        self.refusing = self._refuses and self.queued_bytes >= self._settings.queue_bytes

    def _drop(self) -> None:
        self.dropped += 1
        now_ms = self.clock()
        if not 0 <= now_ms - self._told_ms < TELL_MS:
            self._told_ms = now_ms
            _log.error("the audit cannot be written: events are lost", lost=self.dropped, queued=len(self._queue))

    # Counts

    def counting(self, trail: Trail) -> None:
        """Notes that a trail has one count more."""
        if trail not in self._counting:
            trail.since_ms = self.clock()
            self._counting[trail] = None
        self._counts += 1
        if self._counts > MOST_COUNTS:
            next(iter(self._counting)).flush()

    def counted(self, trail: Trail, counts: int) -> None:
        """Notes that a trail has turned its counts into events."""
        self._counting.pop(trail, None)
        self._counts -= counts

    def tell_counts(self, *, everything: bool = False) -> None:
        """Turns counts whose interval is over into events."""
        now_ms = self.clock()
        over_ms = now_ms - self.interval_ms
        for trail in list(self._counting):
            if not everything and trail.since_ms > over_ms:
                break
            trail.flush()
        for event in self._refusals.counted(now_ms, everything=everything):
            self._keep(event)
