"""The states of a consumer group: which state follows which, and what each one answers.

```
                      first join                 all members joined, or time is up
     ┌────────┐ ───────────────────▶ ┌───────────────────┐ ─────────────────▶ ┌─────────────────────┐
     │ Empty  │                      │ PreparingRebalance│                    │ CompletingRebalance │
     └────────┘ ◀─────────────────── └───────────────────┘ ◀───────────────── └─────────────────────┘
       │  ▲       nobody is left          ▲                 a join, a leave, a         │
       │  │                               │                 timeout, a failed write    │ the leader's assignment
       │  └ restored without members      │                                            │ is committed
       │                                  │ a join that changes something,             ▼
       │                                  │ a leave, a timeout                    ┌────────┐
       │                                  └────────────────────────────────────── │ Stable │ ◀ restored with members
       ▼                                                                          └────────┘
     ┌────────┐
     │ Dead   │ ◀ deleted or expired when Empty; from any state when another broker takes over
     └────────┘
```

- PreparingRebalance collects members; CompletingRebalance has a new generation and waits for its leader's assignment;
  Stable hands assignments out. The generation grows by one each time PreparingRebalance is left.
- No state follows itself: a join during PreparingRebalance adds to the generation that is being formed.
- Dead is final. A group of the same name is a new machine.
- The values are the names that Kafka's tools show. They are not persisted: a group that is read back is Stable if it
  has members and Empty if it has none, because a rebalance that was under way starts over at the next join.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from gateway.coordinators.errors import (
    CoordinatorNotAvailable,
    RebalanceInProgress,
    Refusal,
    UnknownMember,
)


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Trigger(Enum):
    REBALANCE = "a new generation is needed"
    FORMED = "the next generation has members"
    EMPTIED = "the next generation has none"
    ASSIGNED = "the leader's assignment is committed"
    ENDED = "deleted, expired, or moved to another broker"


TRANSITIONS: Final[Mapping[State, Mapping[Trigger, State]]] = {
    State.EMPTY: {
        Trigger.REBALANCE: State.PREPARING_REBALANCE,
        Trigger.ENDED: State.DEAD,
    },
    State.PREPARING_REBALANCE: {
        Trigger.FORMED: State.COMPLETING_REBALANCE,
        Trigger.EMPTIED: State.EMPTY,
        Trigger.ENDED: State.DEAD,
    },
    State.COMPLETING_REBALANCE: {
        Trigger.REBALANCE: State.PREPARING_REBALANCE,
        Trigger.ASSIGNED: State.STABLE,
        Trigger.ENDED: State.DEAD,
    },
    State.STABLE: {
        Trigger.REBALANCE: State.PREPARING_REBALANCE,
        Trigger.ENDED: State.DEAD,
    },
    State.DEAD: {},
}

# The answers to a member of the current generation. While a rebalance is prepared, a commit is still accepted, so that
# a consumer saves its work before it gives up its partitions. It is refused once the next generation exists.
HEARTBEAT_ANSWERS: Final[Mapping[State, Refusal]] = {
    State.EMPTY: UnknownMember,
    State.PREPARING_REBALANCE: RebalanceInProgress,
    State.COMPLETING_REBALANCE: None,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}
SYNC_ANSWERS: Final[Mapping[State, Refusal]] = {
    State.EMPTY: UnknownMember,
    State.PREPARING_REBALANCE: RebalanceInProgress,
    State.COMPLETING_REBALANCE: None,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}
COMMIT_ANSWERS: Final[Mapping[State, Refusal]] = {
    State.EMPTY: UnknownMember,
    State.PREPARING_REBALANCE: None,
    State.COMPLETING_REBALANCE: RebalanceInProgress,
    State.STABLE: None,
    State.DEAD: CoordinatorNotAvailable,
}
