"""Single faults whose course is known: what goes on meanwhile, and what must not."""

import shutil
import time

import pytest

from tests.chaos.conftest import TARGET

from .faults import PROCESSES, Fault, Kind, Who
from .inject import start
from .run import run_schedule, started

pytestmark = [
    pytest.mark.skipif(TARGET != "tierlog", reason="another broker has another metadata store"),
    pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd on PATH"),
]


def outage_of_etcd(directory, seconds: float) -> None:
    """Partitions whose in-sync replicas do not change go on, for producers and for consumers."""
    with started(directory, [Kind.KEEPER_DOWN]) as run, run.under_load() as (runs, _):
        for keeper in run.cluster.keepers:
            keeper.kill()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for each in runs:
                each.wait_for_acks(10)
                each.wait_for_reads(10)
        for keeper in run.cluster.keepers:
            start(keeper)


@pytest.mark.timeout(240)
def test_etcd_is_gone_for_a_moment(tmp_path):
    outage_of_etcd(tmp_path, 5)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_etcd_is_gone_for_a_minute(tmp_path):
    outage_of_etcd(tmp_path, 60)


@pytest.mark.timeout(240)
def test_a_paused_leader_acknowledges_nothing_when_it_goes_on(tmp_path):
    with started(tmp_path, [Kind.PAUSE]) as run, run.under_load() as (runs, injector):
        (paused,) = injector.nodes(Who.LEADER)
        led = {n for n, state in injector.view().partitions.items() if state.leader == paused}
        assert led
        standing_ns = time.monotonic_ns() + 10**9
        injector.carry_out((Fault(Kind.PAUSE, Who.LEADER, 0, 6),))
        runs[0].wait_for_acks()
    assert len({end.node for end in runs[0].history.epoch_ends if end.partition in led}) > 1, "nobody else was elected"
    of_the_paused = [send for send in runs[0].history.sends if send.node == paused and send.partition in led]
    # What was sent before may have been on every replica by then: that is acknowledged late, and rightly.
    assert [send for send in of_the_paused if send.invoked_ns > standing_ns] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(2))
def test_archived_while_brokers_die(tmp_path, number):
    """Most of each log is in the bucket alone by the end; readers go through both tiers."""
    config = {"remote.storage.enable": "true", "segment.bytes": "131072", "local.retention.bytes": "262144"}
    strong, _ = run_schedule(tmp_path, PROCESSES, rounds=5, config=config, settings=("archive.check_ms=500",))
    for node, partitions in strong.history.stored.items():
        assert all(batches[0].first_offset > 0 for batches in partitions.values()), f"node {node} dropped nothing"
