"""The simulation finds mistakes: every mutant of the rules loses, doubles or changes a record under some seed."""

from itertools import chain
from typing import Final

import pytest

from tests.sim.rules import MUTANTS
from tests.sim.simulation import run

SEARCHED: Final = 400
LAST_CAUGHT_BY: Final = {
    "a growth counts only when it is written": 8,
    "a history that parts counts": 48,
    "a lost answer is taken for a no": 99,
    "a replica that leaves does not end the epoch": 15,
    "a shrink counts before it is written": 6,
    "anyone alive is elected": 12,
    "fetches of another epoch count": 33,
}
"""Tried first, to save the search; another seed is as good."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checkers_catch(mutant: str) -> None:
    seeds = chain([LAST_CAUGHT_BY.get(mutant, 0)], range(SEARCHED))
    assert any(run(seed, MUTANTS[mutant]).violation is not None for seed in seeds), "nobody noticed"
