"""The roles of a partition on one broker, as a table.

    ABSENT ─ led ─► LEADING ─ unheard ─► STRANDED ─ heard ─► LEADING
                    LEADING ─ disk failed ─► FAILED
                                         STRANDED ─ disk failed ─► FAILED
                                         STRANDED ─ led ─► LEADING
    ABSENT ─ followed ─► FOLLOWING
    ABSENT ─ doubted ─► IN_DOUBT ─ trusted ─► FOLLOWING
    LEADING, STRANDED, FAILED, FOLLOWING, IN_DOUBT ─ closed ─► CLOSED

ABSENT     this broker does not serve it
LEADING    producers write here
STRANDED   it leads, and hears of too few followers to commit anything: producers look for another leader
FAILED     it leads, and its disk failed: nothing is written here, and the partition is to be handed over
FOLLOWING  its log is a copy of the leader's
IN_DOUBT   its log misses something that was synced: no position is told until the leader or the bucket has answered
CLOSED     the role is over. A partition that gets another role begins again at ABSENT

So a partition never goes from one role to another without an end in between: what was under way in the old role is
dropped there. An event that changes nothing, such as a follower that is heard of by a leader that is not stranded,
leaves the state as it is; what comes after the end leaves it at its end.
"""

from enum import Enum, auto
from typing import Final

from hot_tier import states


class Role(Enum):
    ABSENT = auto()
    LEADING = auto()
    STRANDED = auto()
    FAILED = auto()
    FOLLOWING = auto()
    IN_DOUBT = auto()
    CLOSED = auto()


class Event(Enum):
    LED = auto()
    """The image names this broker as leader, in an epoch that is new here."""
    FOLLOWED = auto()
    """The image names another leader, and the log here is whole."""
    DOUBTED = auto()
    """The image names another leader, and the log here misses something."""
    HEARD = auto()
    """A follower has asked for records."""
    UNHEARD = auto()
    """Too few followers ask for anything."""
    DISK_FAILED = auto()
    TRUSTED = auto()
    """The log was begun anew, at the leader's word or at the archive's end."""
    CLOSED = auto()
    """Another role, the topic is gone, or the broker stops."""


MOVES: Final = {
    Role.ABSENT: {Event.LED: Role.LEADING, Event.FOLLOWED: Role.FOLLOWING, Event.DOUBTED: Role.IN_DOUBT},
    Role.LEADING: {
        Event.LED: Role.LEADING,
        Event.HEARD: Role.LEADING,
        Event.UNHEARD: Role.STRANDED,
        Event.DISK_FAILED: Role.FAILED,
        Event.CLOSED: Role.CLOSED,
    },
    Role.STRANDED: {
        Event.LED: Role.LEADING,
        Event.HEARD: Role.LEADING,
        Event.UNHEARD: Role.STRANDED,
        Event.DISK_FAILED: Role.FAILED,
        Event.CLOSED: Role.CLOSED,
    },
    Role.FAILED: {
        Event.LED: Role.FAILED,
        Event.HEARD: Role.FAILED,
        Event.UNHEARD: Role.FAILED,
        Event.DISK_FAILED: Role.FAILED,
        Event.CLOSED: Role.CLOSED,
    },
    Role.FOLLOWING: {Event.TRUSTED: Role.FOLLOWING, Event.CLOSED: Role.CLOSED},
    Role.IN_DOUBT: {Event.TRUSTED: Role.FOLLOWING, Event.CLOSED: Role.CLOSED},
    Role.CLOSED: {Event.HEARD: Role.CLOSED, Event.UNHEARD: Role.CLOSED, Event.CLOSED: Role.CLOSED},
}

OPEN: Final = frozenset({Role.LEADING, Role.STRANDED, Role.FOLLOWING, Role.IN_DOUBT})
"""Here a reader may wait for more."""


def after(role: Role, event: Event) -> Role:
    return states.after(MOVES, role, event)
