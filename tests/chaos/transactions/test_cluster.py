"""Random faults on three brokers with transactions: no anomaly for any reader, and the bucket has the same rows."""

import shutil
from pathlib import Path

import pytest

from benchmarks.clusters import TierlogCluster
from benchmarks.network import why_not
from tests.chaos.cluster.faults import CUTS, KEEPER, PROCESSES, WITH_COORDINATOR, Kind, schedule, shown
from tests.chaos.cluster.run import NODES, started
from tests.chaos.conftest import TARGET
from tests.chaos.faulty_mount import FaultyMount

from .bucket import CONFIG, SETTINGS, Bucket
from .checker import SAFETY
from .history import Ending
from .run import TransactionRun

NO_NETWORK, NO_FUSE = why_not(), FaultyMount.why_not()
needs_namespaces = pytest.mark.skipif(NO_NETWORK is not None, reason=str(NO_NETWORK))
needs_fuse = pytest.mark.skipif(NO_FUSE is not None, reason=str(NO_FUSE))
only_tierlog = pytest.mark.skipif(
    TARGET != "tierlog", reason="another broker has another metadata store and other disks"
)
pytestmark = pytest.mark.skipif(TARGET == "tierlog" and shutil.which("etcd") is None, reason="no etcd on PATH")


def run_schedule(directory: Path, kinds, rounds: int, *, keepers: int = 1, **load) -> None:
    with started(directory, kinds, settings=SETTINGS, keepers=keepers) as cluster_run:
        cluster = cluster_run.cluster
        plan = schedule(cluster_run.seed, kinds, rounds, WITH_COORDINATOR)
        print(f"{len(plan)} rounds:\n{shown(plan)}")
        config = {"min.insync.replicas": "2"} | (CONFIG if TARGET == "tierlog" else {"segment.bytes": "1048576"})
        run = TransactionRun(
            cluster.bootstrap,
            directory,
            seed=cluster_run.seed,
            replicas=len(NODES),
            config=config,
            checks=SAFETY,
            **load,
        )
        archive = None
        if isinstance(cluster, TierlogCluster):
            archive = Bucket(cluster.directory / "bucket", cluster.brokers.values()).read
        with run:
            run.wait_for_commits()
            injector = cluster_run.injector(run.topics[0])
            for round_ in plan:
                run.wait_for_commits()
                injector.carry_out(round_)
            run.wait_for_commits()
            history = run.verdict(archive)
    assert history.count(Ending.COMMITTED) > 5 * rounds
    assert history.count(Ending.ABORTED) > rounds


@pytest.mark.timeout(240)
def test_processes(tmp_path):
    run_schedule(tmp_path, PROCESSES, rounds=2)


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_network(tmp_path):
    run_schedule(tmp_path, CUTS, rounds=2)


@only_tierlog
@needs_fuse
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(3))
def test_power(tmp_path, number):
    run_schedule(tmp_path, (Kind.POWER, Kind.POWER, *PROCESSES), rounds=4)


@only_tierlog
@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(16))
def test_everything(tmp_path, number):
    run_schedule(tmp_path, (*PROCESSES, *CUTS, *KEEPER), rounds=6, stalls=number % 2 == 1)


@only_tierlog
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_members_of_etcd(tmp_path):
    run_schedule(tmp_path, (*PROCESSES, *KEEPER), rounds=5, keepers=3)
