"""The steps of archiving one led partition, as a table.

    CLOSED ─ opened ─► OPEN ─ named ─► UPLOADING ─ settled ─► OPEN
                                       UPLOADING ─ opened ─► OPEN
                       OPEN, UPLOADING ─ doubted ─► UNSURE ─ opened ─► OPEN
    CLOSED, OPEN, UPLOADING, UNSURE ─ stopped ─► STOPPED ─ opened ─► OPEN

CLOSED     the newest manifest has not been loaded under this leader epoch
OPEN       it was, and taken over; nothing is being uploaded
UPLOADING  metadata names an upload that is to be published, or removed
UNSURE     a publish may or may not have taken effect: the bucket is asked before anything else is begun
STOPPED    the manifest is not the one to go on from, until the bucket is put right or a person decides

Work that had begun may end in UNSURE and STOPPED: it does not end the doubt, so these states stay as they are.
Whether it may still publish is decided in the bucket, never by this table.
"""

from enum import Enum, auto
from typing import Final

from hot_tier import states


class Step(Enum):
    CLOSED = auto()
    OPEN = auto()
    UPLOADING = auto()
    UNSURE = auto()
    STOPPED = auto()


class Event(Enum):
    OPENED = auto()
    """The newest manifest is loaded and taken over."""
    NAMED = auto()
    """Metadata names an upload."""
    SETTLED = auto()
    """The upload is published, or removed."""
    DOUBTED = auto()
    STOPPED = auto()


MOVES: Final = {
    Step.CLOSED: {Event.OPENED: Step.OPEN, Event.DOUBTED: Step.CLOSED, Event.STOPPED: Step.STOPPED},
    Step.OPEN: {
        Event.OPENED: Step.OPEN,
        Event.NAMED: Step.UPLOADING,
        Event.SETTLED: Step.OPEN,
        Event.DOUBTED: Step.UNSURE,
        Event.STOPPED: Step.STOPPED,
    },
    Step.UPLOADING: {
        Event.OPENED: Step.OPEN,
        Event.NAMED: Step.UPLOADING,
        Event.SETTLED: Step.OPEN,
        Event.DOUBTED: Step.UNSURE,
        Event.STOPPED: Step.STOPPED,
    },
    Step.UNSURE: {
        Event.OPENED: Step.OPEN,
        Event.NAMED: Step.UNSURE,
        Event.SETTLED: Step.UNSURE,
        Event.DOUBTED: Step.UNSURE,
        Event.STOPPED: Step.STOPPED,
    },
    Step.STOPPED: {
        Event.OPENED: Step.OPEN,
        Event.NAMED: Step.STOPPED,
        Event.SETTLED: Step.STOPPED,
        Event.DOUBTED: Step.STOPPED,
        Event.STOPPED: Step.STOPPED,
    },
}

MUST_OPEN: Final = frozenset({Step.CLOSED, Step.UNSURE, Step.STOPPED})
"""Nothing is begun before the newest manifest is loaded."""


def after(step: Step, event: Event) -> Step:
    return states.after(MOVES, step, event)
