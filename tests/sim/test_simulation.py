"""Random fault schedules against the real replication decisions: nothing acknowledged is lost, doubled or changed."""

import pytest

from tests.sim.report import Report
from tests.sim.simulation import run

SEEDS_AT_ONCE = 25


def check(seeds: range) -> list[Report]:
    reports = [run(seed) for seed in seeds]
    for report in reports:
        assert report.violation is None, f"python -m tests.sim --seed {report.seed}: {report.violation}"
    return reports


@pytest.mark.parametrize("first", range(0, 200, SEEDS_AT_ONCE))
def test_no_fault_schedule_loses_records(first: int) -> None:
    reports = check(range(first, first + SEEDS_AT_ONCE))
    assert sum(report.acks for report in reports) > 100 * SEEDS_AT_ONCE, "the cluster hardly worked"
    assert sum(report.elections for report in reports) > SEEDS_AT_ONCE, "hardly anything happened"
    assert sum(report.abandoned for report in reports) <= SEEDS_AT_ONCE // 10


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 6_000, 500))
def test_thousands_of_fault_schedules(first: int) -> None:
    check(range(first, first + 500))


def test_a_run_depends_on_its_seed_alone() -> None:
    first, again = run(7, tracing=True), run(7, tracing=True)
    assert first.trace == again.trace
    assert run(8, tracing=True).trace != first.trace
