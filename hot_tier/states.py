"""States as a table: which event leads from which state to which. A move that no table has is a mistake of ours."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


def after(moves: Mapping[State, Mapping[Event, State]], state: State, event: Event) -> State:
    """Returns the state that `event` leads to. Raises AssertionError if the table has no such move."""
    following = moves[state].get(event)
    if following is None:
        leads_to = sorted({to.name for each in moves.values() for by, to in each.items() if by is event})
        raise AssertionError(
            f"{type(state).__name__} {state.name} cannot become {' or '.join(leads_to)}: "
            f"{event.name} is no event of this state"
        )
    return following
