"""The plan follows from measured costs and prices, and docs/CAPACITY.md shows what `tierlog plan` says."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import costs
from offloader.prices import CostSettings
from tests.support.command import tierlog
from tierlog.capacity import MACHINES, Load, Plan, measured, plan

ROOT = Path(__file__).parents[2]
DAY_MS = 86_400_000
LOAD = Load(
    rate=1e6,
    peak=4e6,
    record_bytes=1000,
    producers=10_000,
    consumers=50_000,
    groups=2,
    linger_ms=5,
    batch_bytes=64_000,
    lz4=True,
    retention_ms=30 * DAY_MS,
    local_retention_ms=DAY_MS // 4,
    replication=3,
    partition_rate=10_000,
)


def planned(load: Load = LOAD) -> tuple[Plan, ...]:
    return plan(load, measured(), CostSettings())


def test_what_was_measured_is_what_the_page_says() -> None:
    assert costs.TARGET.read_text() == costs.text(), "run python -m benchmarks.costs"


def test_a_figure_that_is_gone_is_named() -> None:
    with pytest.raises(SystemExit, match="no CPU figure of «consume: 1000 B, none»"):
        costs.costs(costs.PAGE.read_text().replace("| consume: 1000 B, none | broker CPU", "| consume"))


def test_a_batch_is_what_a_producer_gathers_while_it_lingers() -> None:
    assert LOAD.batches_at_peak == 4e6 / 2, "400 records a second each, 5 ms: two at a time"
    assert replace(LOAD, linger_ms=0).batches_at_peak == 4e6, "at least one record"
    assert replace(LOAD, producers=10).batches_at_peak == 4e6 / 64, "at most the size of a batch"


def test_each_reader_fetches_each_batch_but_no_consumer_asks_without_end() -> None:
    assert LOAD.fetches_at_peak == 2 * LOAD.batches_at_peak
    assert replace(LOAD, consumers=10).fetches_at_peak == 2000, "200 times a second each"


def test_there_is_a_partition_for_each_consumer() -> None:
    """Each record is read twice, so two consumers share a partition."""
    assert LOAD.partitions == 25_000
    assert replace(LOAD, consumers=100).partitions == 4e6 / 10_000, "as many as the rate takes"
    assert replace(LOAD, groups=0).partitions == 400


def test_partitions_that_get_little_make_small_objects_and_more_requests() -> None:
    few, many = (
        sum(line.amount for line in planned(load)[0].lines if line.what.startswith("PUT"))
        for load in (replace(LOAD, consumers=100), LOAD)
    )
    each = 7  # Rows in two parts are four requests; then the index and two manifests.
    assert many == pytest.approx(25_000 * 730 * each / 1000), "a segment of each partition in each hour"
    assert few < many / 3


def test_disks_hold_every_copy_for_as_long_as_it_is_local() -> None:
    tiered, disks, _ = planned(replace(LOAD, lz4=False))
    assert disks.disk_gb == pytest.approx(1e6 * 1000 * 86_400 * 30 * 3 / 1e9)
    assert tiered.disk_gb == pytest.approx(disks.disk_gb / 120)
    assert disks.limit == "disk"
    assert disks.brokers * disks.machine.disk_gb * 0.8 >= disks.disk_gb
    assert (disks.brokers - 1) * disks.machine.disk_gb * 0.8 < disks.disk_gb


def test_a_broker_of_ours_has_one_core_for_its_clients() -> None:
    ours, _, theirs = planned()
    cpu = measured().tierlog
    seconds = 4 * (cpu.per_gb + 2 * cpu.replicate_per_gb + 2 * cpu.consume_per_gb)
    seconds += 2e6 * cpu.per_batch + 4e6 * cpu.per_fetch
    assert ours.needed["CPU"] == pytest.approx(seconds / 0.6, abs=1)
    assert theirs.needed["CPU"] < ours.needed["CPU"], "Kafka's brokers use all cores"


def test_more_costs_more_and_gathering_longer_costs_less() -> None:
    for before, after in (
        (LOAD, replace(LOAD, rate=2e6, peak=8e6)),
        (LOAD, replace(LOAD, retention_ms=90 * DAY_MS)),
        (LOAD, replace(LOAD, groups=10)),
        (LOAD, replace(LOAD, lz4=False)),
        (replace(LOAD, linger_ms=50), LOAD),
    ):
        assert all(less.monthly <= more.monthly for less, more in zip(planned(before), planned(after), strict=True))
        assert planned(before)[0].monthly < planned(after)[0].monthly


def test_a_small_load_takes_as_many_brokers_as_copies_on_small_machines() -> None:
    small = replace(LOAD, rate=100, peak=400, producers=5, consumers=5)
    assert [(each.brokers, each.machine) for each in planned(small)] == [(3, MACHINES[0])] * 3


def test_the_command_says_the_same_as_json() -> None:
    told = tierlog("plan", "--json").json
    assert [each["monthly"] for each in told["plans"]] == pytest.approx([each.monthly for each in planned()])
    for each in told["plans"]:
        assert each["monthly"] == pytest.approx(sum(line["cost"] for line in each["lines"]))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--rate", "many"), "--rate cannot be 'many'"),
        (("--record-size", "0"), "--record-size cannot be '0'"),
        (("--rate", "2k/s", "--peak", "1k/s"), "--peak is below --rate"),
        (("--retention", "long"), "'long' is not a length of time"),
    ],
)
def test_a_wrong_value_is_named(flags: tuple[str, ...], told: str) -> None:
    assert told in tierlog("plan", *flags, code=2).err


def test_the_page_shows_what_the_command_says() -> None:
    page = (ROOT / "docs" / "CAPACITY.md").read_text()
    shown = re.findall(r"^```sh\ntierlog (plan.*?)\n```\n\n```\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    for command, text in shown:
        assert tierlog(*shlex.split(command.replace("\\\n", ""))).out == text, f"tierlog {command}"
