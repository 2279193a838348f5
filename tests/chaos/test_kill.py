"""kill -9 at random moments under load, over and over: what was acknowledged is there, once, in order."""

import time

import pytest

from .scenario import Scenario, with_all_acks_and_with_one

SMALL_SEGMENTS = {"segment.bytes": "1048576"}


def kill_rounds(make_broker, tmp_path, rounds: int, config: dict[str, str]) -> None:
    broker = make_broker()
    with with_all_acks_and_with_one(broker.bootstrap, tmp_path, config=SMALL_SEGMENTS | config) as runs:
        for round_ in range(rounds):
            for run in runs:
                run.wait_for_service(round_)
            time.sleep(runs[0].random.uniform(0.05, 1.5))
            broker.kill()
            broker.start()
        for run in runs:
            run.wait_for_acks()
        histories = [run.verdict() for run in runs]
    assert all(history.acknowledged > 50 * rounds for history in histories)


@pytest.mark.timeout(240)
def test_killed_a_few_times(make_broker, tmp_path):
    kill_rounds(make_broker, tmp_path, rounds=4, config={})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_many_times(make_broker, tmp_path):
    kill_rounds(make_broker, tmp_path, rounds=100, config={})


@pytest.mark.timeout(240)
def test_killed_while_starting(make_broker, tmp_path):
    """A kill during recovery must not make the next recovery worse."""
    broker = make_broker()
    with Scenario(broker.bootstrap, tmp_path, config=SMALL_SEGMENTS) as run:
        run.wait_for_acks()
        broker.kill()
        for _ in range(4):
            broker.start_and_kill_after(run.random.uniform(0.05, 0.8))
        broker.start()
        run.wait_for_acks()
        run.verdict()


def test_committed_offsets_survive_with_nobody_running(make_broker, tmp_path):
    """The group is gone, the broker is killed and comes back: the offsets are where they were."""
    broker = make_broker()
    with Scenario(broker.bootstrap, tmp_path, producers=2) as run:
        run.wait_for_acks()
        time.sleep(1)

        def kill_and_start() -> None:
            broker.kill()
            broker.start()

        history = run.verdict(before_reading=kill_and_start)
    assert sum(entry.offset for entry in history.committed) > 0


def test_stopped_and_continued(make_broker, tmp_path):
    """A broker that stood still (SIGSTOP) for longer than its clients' patience goes on where it was."""
    broker = make_broker()
    with Scenario(broker.bootstrap, tmp_path) as run:
        for seconds in (0.5, 7.0):
            run.wait_for_acks()
            broker.pause()
            time.sleep(seconds)
            broker.resume()
        run.wait_for_acks()
        run.verdict()


def test_a_clean_stop_under_load(make_broker, tmp_path):
    broker = make_broker()
    with Scenario(broker.bootstrap, tmp_path) as run:
        for _ in range(2):
            run.wait_for_acks()
            broker.stop()
            broker.start()
        run.wait_for_acks()
        run.verdict()
