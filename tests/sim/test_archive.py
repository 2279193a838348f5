"""Brokers that archive on a bucket that fails: nothing is lost between the tiers, and mistakes are found."""

from collections import Counter
from typing import Final

import pytest

from tests.sim.archive_mutants import MUTANTS
from tests.sim.archive_simulation import run

SEARCHED: Final = 200
LAST_CAUGHT_BY: Final = {
    "a manifest is published without a comparison": 9,
    "a deposed leader collects what it does not know": 56,
    "an older manifest is gone on from": 20,
}
"""Tried first, to save the search; another seed is as good."""


def check(seeds: range) -> Counter[str]:
    did: Counter[str] = Counter()
    for seed in seeds:
        report = run(seed)
        assert report.violation is None, f"python -m tests.sim --archive --seed {seed}: {report.violation}"
        did.update(report.did)
    return did


def test_no_fault_of_the_bucket_loses_records() -> None:
    did = check(range(12))
    assert did["manifests published"] > 12 * 20 and did["takeovers"] > 12, "hardly anything was archived"
    assert did["local drops"] > 12 * 10 and did["objects deleted"] > 12 * 10, "hardly anything was let go"
    assert did["cold reads"] > 12 * 5, "hardly anything was read from the bucket"


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(10_000, 12_000, 500))
def test_thousands_of_faults_of_the_bucket(first: int) -> None:
    check(range(first, first + 500))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checkers_catch(mutant: str) -> None:
    seeds = [LAST_CAUGHT_BY.get(mutant, 0), *range(SEARCHED)]
    caught = next((seed for seed in seeds if run(seed, MUTANTS[mutant]).violation is not None), None)
    assert caught is not None, "nobody noticed"
    assert run(caught).violation is None, f"it is not the mutant that is caught by seed {caught}"


def test_a_run_depends_on_its_seed_alone() -> None:
    first, again = run(7, tracing=True), run(7, tracing=True)
    assert first.trace == again.trace
    assert run(8, tracing=True).trace != first.trace
