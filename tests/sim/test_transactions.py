"""Random schedules against the pure cores of transactions: no anomaly; and every mutant of them has one."""

from itertools import chain
from typing import Final

import pytest

from tests.sim.report import Report
from tests.sim.transactions.rules import MUTANTS
from tests.sim.transactions.simulation import run

SEEDS_AT_ONCE: Final = 25
SEARCHED: Final = 600
CAUGHT_BY: Final = {
    "a batch repeats one of another transaction": 63,
    "a marker counts before it is committed": 45,
    "a marker of the same epoch ends an open transaction": 93,
    "a transaction of an old client begins unasked": 383,
    "markers are written before the decision is": 182,
    "the log is stable up to its end": 50,
}
"""Tried first, to save the search; another seed is as good."""


def check(seeds: range) -> list[Report]:
    reports = [run(seed) for seed in seeds]
    for report in reports:
        assert report.violation is None, f"python -m tests.sim --transactions --seed {report.seed}: {report.violation}"
    return reports


@pytest.mark.parametrize("first", range(0, 100, SEEDS_AT_ONCE))
def test_no_schedule_has_an_anomaly(first: int) -> None:
    reports = check(range(first, first + SEEDS_AT_ONCE))
    for what in ("committed", "aborted"):
        assert sum(report.did[what] for report in reports) > 4 * SEEDS_AT_ONCE, f"hardly anything was {what}"
    assert sum(report.elections for report in reports) > SEEDS_AT_ONCE, "hardly anything happened"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 11_000, 1_000))
def test_thousands_of_schedules(first: int) -> None:
    check(range(first, first + 1_000))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_catches(mutant: str) -> None:
    seeds = chain([CAUGHT_BY.get(mutant, 0)], range(SEARCHED))
    assert any(run(seed, MUTANTS[mutant]).violation is not None for seed in seeds), "nobody noticed"


def test_a_run_depends_on_its_seed_alone() -> None:
    first, again = run(7, tracing=True), run(7, tracing=True)
    assert (first.trace, first.did) == (again.trace, again.did)
    assert run(8, tracing=True).did != first.did
