"""The power goes: whatever was not synced is lost or torn. With flush=commit nothing acknowledged is,
with acks=all and with acks=1.

The data directory, metadata included, is on a FUSE disk that forgets at the cut (`faulty_disk.py`).
"""

import random
import time
from pathlib import Path

import pytest

from benchmarks.service import TierlogServer

from .conftest import TARGET
from .faulty_mount import FaultyMount
from .scenario import chosen_seed, with_all_acks_and_with_one

pytestmark = [
    pytest.mark.skipif(FaultyMount.why_not() is not None, reason=str(FaultyMount.why_not())),
    pytest.mark.skipif(TARGET != "tierlog", reason="Apache Kafka does not sync by default"),
]


def power_rounds(directory: Path, rounds: int, flush: str = "commit") -> None:
    seed = chosen_seed()
    disk = FaultyMount(directory, random.Random(seed))
    disk.mount()
    broker = TierlogServer(directory, data_dir=disk.path / "data")
    try:
        broker.start()
        config = {"segment.bytes": "1048576", "flush": flush}
        with with_all_acks_and_with_one(broker.bootstrap, directory, seed=seed, rate=150, config=config) as runs:
            for round_ in range(rounds):
                for run in runs:
                    run.wait_for_service(round_)
                time.sleep(runs[0].random.uniform(0.05, 1.5))
                disk.cut_power()
                broker.kill()
                disk.unmount()
                disk.mount()
                broker.start()
            for run in runs:
                run.wait_for_acks()
            histories = [run.verdict() for run in runs]
        assert all(history.acknowledged > 50 * rounds for history in histories)
    finally:
        broker.kill()
        disk.unmount()


@pytest.mark.timeout(240)
def test_power_lost_a_few_times(tmp_path):
    power_rounds(tmp_path, rounds=4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_power_lost_many_times(tmp_path):
    power_rounds(tmp_path, rounds=60)


@pytest.mark.timeout(240)
def test_without_syncs_the_same_cuts_lose_records(tmp_path):
    """Shows that the cuts do cut: flush=os leaves syncing to the kernel, and this disk has none."""
    with pytest.raises(AssertionError, match="violations"):
        power_rounds(tmp_path, rounds=2, flush="os")
