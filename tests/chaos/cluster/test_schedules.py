"""Random faults on three real brokers: what was acknowledged stays, once, in order, the same on every replica."""

import os
import shutil

import pytest

from benchmarks.network import why_not
from tests.chaos.conftest import TARGET
from tests.chaos.faulty_mount import FaultyMount

from .faults import CUTS, KEEPER, PROCESSES, Kind
from .run import run_schedule

NO_NETWORK, NO_FUSE = why_not(), FaultyMount.why_not()
needs_namespaces = pytest.mark.skipif(NO_NETWORK is not None, reason=str(NO_NETWORK))
needs_fuse = pytest.mark.skipif(NO_FUSE is not None, reason=str(NO_FUSE))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
only_tierlog = pytest.mark.skipif(
    TARGET != "tierlog", reason="another broker has another metadata store and other disks"
)
pytestmark = pytest.mark.skipif(TARGET == "tierlog" and shutil.which("etcd") is None, reason="no etcd on PATH")


@pytest.mark.timeout(240)
def test_processes(tmp_path):
    run_schedule(tmp_path, PROCESSES, rounds=2)


@needs_namespaces
@pytest.mark.timeout(240)
def test_network(tmp_path):
    run_schedule(tmp_path, CUTS, rounds=2)


@only_tierlog
@needs_fuse
@pytest.mark.timeout(240)
def test_power(tmp_path):
    run_schedule(tmp_path, [Kind.POWER], rounds=1)


@only_tierlog
@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(12))
def test_everything(tmp_path, number):
    run_schedule(tmp_path, (*PROCESSES, *CUTS, *KEEPER), rounds=6)


@only_tierlog
@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_closed(tmp_path):
    """By TLS, SCRAM and permissions the same holds, and the audit lacks nothing."""
    run_schedule(tmp_path, (*PROCESSES, Kind.KILL, Kind.PAUSE, *CUTS), rounds=5, secured=True)


@only_tierlog
@needs_fuse
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(4))
def test_power_and_processes(tmp_path, number):
    run_schedule(tmp_path, (*PROCESSES, Kind.POWER, Kind.POWER), rounds=6)


@only_tierlog
@needs_root
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(2))
def test_full_disks(tmp_path, number):
    kinds = (Kind.KILL, *[Kind.DISK_FULL] * 3)
    run_schedule(tmp_path, kinds, rounds=5, settings=("log.min_free_bytes=4194304",))


@only_tierlog
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(2))
def test_three_members_of_etcd(tmp_path, number):
    run_schedule(tmp_path, (*PROCESSES, *KEEPER), rounds=5, keepers=3)


@only_tierlog
@needs_fuse
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_without_syncs_power_loss_loses_records(tmp_path):
    """Shows that the cuts do cut: with flush=os three copies in memory are none when the power goes."""
    with pytest.raises(AssertionError, match="violations"):
        run_schedule(tmp_path, [Kind.POWER], rounds=3, config={"flush": "os"})
