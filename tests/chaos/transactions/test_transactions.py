"""Transactions on one broker that is killed, paused and stopped: committed is there as a whole, aborted nowhere."""

import time

import pytest

from .run import TransactionRun
from .workload import ALL

SMALL_SEGMENTS = {"segment.bytes": "1048576"}


def fault_rounds(make_broker, directory, rounds: int, **load) -> None:
    broker = make_broker()
    with TransactionRun(broker.bootstrap, directory, config=SMALL_SEGMENTS, **load) as run:
        for round_ in range(rounds):
            run.wait_for_commits()
            time.sleep(run.random.uniform(0.05, 1.0))
            if round_ % 3 == 1:
                broker.pause()
                time.sleep(run.random.uniform(0.5, 4))
                broker.resume()
            else:
                broker.kill() if round_ % 3 == 0 else broker.stop()
                broker.start()
        run.wait_for_commits()
        history = run.verdict()
    assert len(history.transactions) > 10 * rounds


@pytest.mark.timeout(240)
def test_without_faults(make_broker, tmp_path):
    broker = make_broker()
    with TransactionRun(broker.bootstrap, tmp_path, config=SMALL_SEGMENTS, rate=30) as run:
        for _ in range(5):
            run.wait_for_commits()
            time.sleep(1)
        run.verdict()


@pytest.mark.timeout(240)
def test_killed_paused_and_stopped(make_broker, tmp_path):
    fault_rounds(make_broker, tmp_path, rounds=3)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_readers_of_all_records_see_what_was_aborted(make_broker, tmp_path):
    """Shows that the load has its anomalies, for who does not ask for committed records."""
    broker = make_broker()
    with (
        pytest.raises(AssertionError, match="violations"),
        TransactionRun(broker.bootstrap, tmp_path, rate=20, streams=0, isolation=ALL) as run,
    ):
        for _ in range(3):
            run.wait_for_commits()
        run.verdict()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("stalls", [False, True])
def test_killed_paused_and_stopped_many_times(make_broker, tmp_path, stalls):
    fault_rounds(make_broker, tmp_path, rounds=40, stalls=stalls)
