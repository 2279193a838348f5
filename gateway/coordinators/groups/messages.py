"""The input and output of a group machine: requests, answers, effects, and the persisted snapshot.

A `Ticket` names a request that waits for its answer (a join, a sync). The driver hands out tickets and keeps the
waiting requests. Every ticket that enters the machine is answered exactly once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NewType

from gateway.coordinators.errors import CoordinatorError

Ticket = NewType("Ticket", int)

NO_GENERATION = -1
NO_MEMBER = ""
MEMBER_BYTES = 2048
"""The memory of a member without metadata, with its timers."""
PENDING_BYTES = 1024
"""The memory of an id that was handed out but not used yet, with its timer."""


class Protocol(NamedTuple):
    """One way of assigning that a member supports. Only clients understand the metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class GroupLimits:
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    max_bytes: int
    """Memory of all members together: their ids, metadata and assignments."""


# Requests


@dataclass(frozen=True, slots=True)
class JoinRequest:
    member_id: str
    """Empty for a newcomer."""
    fresh_id: str
    """The id for a newcomer. It is unique. The driver makes it, because a machine has no randomness."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    must_know_id: bool = True
    """A dynamic newcomer first gets an id and must join again with it (JoinGroup 4 and up)."""
    can_skip_assignment: bool = True
    """The client understands `skip_assignment` (JoinGroup 9 and up)."""

    @property
    def size_bytes(self) -> int:
        """The memory that this member would take."""
        return MEMBER_BYTES + len(self.fresh_id) + sum(len(name) + len(data) for name, data in self.protocols)


@dataclass(frozen=True, slots=True)
class SyncRequest:
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] | None = None
    """By member id. Only the leader's count."""


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    instance_id: str | None = None


# Answers


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    member_id: str
    error: type[CoordinatorError] | None = None
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[MemberMetadata, ...] = ()
    """The metadata of every member. Only the leader gets it."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    error: type[CoordinatorError] | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


# The persisted part


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the protocol that was chosen."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    members: tuple[MemberSnapshot, ...]


# Effects


class TimerKind(Enum):
    JOIN = "the generation being formed is closed"
    SYNC = "members that have not asked for their assignment are removed"
    SESSION = "a silent member is removed"
    PENDING = "an id handed out but never used is forgotten"


class Timer(NamedTuple):
    kind: TimerKind
    member_id: str = NO_MEMBER
    """The member that a SESSION or PENDING timer belongs to."""


class Reply(NamedTuple):
    ticket: Ticket
    answer: JoinAnswer | SyncAnswer


class Persist(NamedTuple):
    """Asks to write the snapshot and to call `persisted(number, …)` when it is committed or has failed."""

    number: int
    snapshot: GroupSnapshot


class SetTimer(NamedTuple):
    """Asks to call `timer_fired` at or after `deadline_ms`. It replaces an earlier deadline of the same timer."""

    timer: Timer
    deadline_ms: int


class ClearTimer(NamedTuple):
    timer: Timer


class Held(NamedTuple):
    """Members that joined from this address hold `more_bytes` more memory; less if it is negative."""

    address: str
    more_bytes: int


Effect = Reply | Persist | SetTimer | ClearTimer | Held
