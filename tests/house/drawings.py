"""The drawing of a state table in its module's docstring: `ONE, TWO ─ event ─► THREE ─ event ─► …`."""

import re
from collections.abc import Mapping
from enum import Enum

_ARROW = re.compile(r" ─ ([a-z ]+) ─► ")

Arrow = tuple[str, str, str]


def drawn(docstring: str | None) -> set[Arrow]:
    """Returns each arrow as state, event, state."""
    arrows: set[Arrow] = set()
    for line in (docstring or "").splitlines():
        states = _ARROW.split(line.strip())
        for sources, event, target in zip(states[0::2], states[1::2], states[2::2], strict=False):
            arrows |= {(source, event.upper().replace(" ", "_"), target) for source in sources.split(", ")}
    return arrows


def changes(moves: Mapping[Enum, Mapping[Enum, Enum]]) -> set[Arrow]:
    """Returns the moves of a table that lead to another state; those that change nothing are not drawn."""
    return {
        (state.name, event.name, following.name)
        for state, events in moves.items()
        for event, following in events.items()
        if following is not state
    }
