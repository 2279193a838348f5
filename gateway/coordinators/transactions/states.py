"""The states of a transactional id: which state follows which, and how they are stored.

```
 InitProducerId
      │
      ▼       a partition is added                  commit                   all markers are committed
 ┌───────┐ ─────────────────────────▶ ┌─────────┐ ─────────▶ ┌───────────────┐ ─────────▶ ┌────────────────┐
 │ Empty │                            │ Ongoing │            │ PrepareCommit │            │ CompleteCommit │
 └───────┘                            └─────────┘            └───────────────┘            └────────────────┘
                                           │   abort, time-out,
                                           │   a newer producer
                                           │                  ┌──────────────┐            ┌───────────────┐
                                           └────────────────▶ │ PrepareAbort │ ─────────▶ │ CompleteAbort │
                                                              └──────────────┘            └───────────────┘
```

Empty, CompleteCommit and CompleteAbort are idle: each leads to Ongoing when a partition is added, to Empty when a
producer begins anew, to PrepareAbort when a TV2 producer aborts what has no partition, and to Dead when the
transactional id was not used for long.

- A state counts when its record is committed. Until then the old state counts, and other requests wait. CompleteCommit
  and CompleteAbort count when all markers are committed: their record comes with the next one, or later. A coordinator
  that does not find it finds what was decided, and writes the markers again.
- Markers are written only in PrepareCommit and PrepareAbort, and nothing else happens there: what was decided stays.
- Dead is a tombstone in the journal. PrepareEpochFence is a state that Kafka has between Ongoing and PrepareAbort, in
  memory only; here the epoch is raised by the record of PrepareAbort itself. It is here because tools filter by it.
- The numbers are Kafka's, and they are stored. The names are those that Kafka's tools show.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Returns the name that Kafka's tools show."""
        return self.name.title().replace("_", "")


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided, and markers are being written."""
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open."""

FOLLOWING: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
}
"""Empty follows itself when another producer begins, Ongoing when a partition is added."""
