"""A small run of the jobs with the bare client: all that was written is read, and every request is answered."""

from pathlib import Path

import pytest

from benchmarks import bare
from benchmarks.client import load
from benchmarks.records import write_records
from benchmarks.service import TierlogServer
from benchmarks.workloads import Figures, Target

PLAN = bare.BarePlan(
    connections=20,
    readers=3,
    fan_out_records=5000,
    disk_records=5000,
    rate_shares=(0.01,),
    flushes=("os",),
    seconds=0.3,
    repeats=1,
)


@pytest.mark.process
@pytest.mark.slow
def test_every_job_gives_figures(tmp_path: Path) -> None:
    try:
        load.build()
    except load.LoadFailed as error:
        pytest.skip(str(error))
    (tmp_path / "broker").mkdir()
    figures: dict[str, Figures] = {}
    with TierlogServer(tmp_path / "broker") as broker:
        target = Target(broker, {bare.RECORD_BYTES: write_records(tmp_path / "records", bare.RECORD_BYTES, 2000)})

        def sample(group: str, job: str, measure, repeats: int) -> None:
            figures[group] = measure(target)

        bare.measure(PLAN, [target], tmp_path, sample)
        with bare.filled([target], 5000) as topics:
            done = load.raw_fetch(broker.bootstrap, topics[target], target.partitions, 3, 5_000_000)
            bare.drop_cached(broker.directory, topics[target])
            again = load.raw_fetch(broker.bootstrap, topics[target], target.partitions, 1, 5_000_000)
    assert (done.records, again.records) == (15_003, 5001)  # one goes first, before the clock starts
    assert set(figures) == {
        "one record per request",
        "consume, bare client",
        "fan-out",
        "consume from disk",
        "latency beside reads from disk",
        "latency by load",
    }
    timed = ("MB/s", "k requests/s", "p50 ms", "p99 ms")  # CPU time comes in steps of 10 ms
    assert all(value > 0 for of_job in figures.values() for unit, value in of_job.items() if unit in timed)
