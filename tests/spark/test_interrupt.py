"""Ctrl-C ends a Spark job at once, says nothing more, and leaves no process and no file behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmarks.peer.jars import PeerUnavailable, java

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

JOB = """
import sys
from spark.jobs.command import job_parser, run

def work(spark, given):
    spark.catalog.tableExists("looked_for")
    print("working", flush=True)
    return spark.range(10**13).selectExpr("sum(id * id % 7)").collect()[0][0]

sys.exit(run(job_parser("job", ""), work, ["--bucket", "file:///nowhere"], config={"spark.driver.host": "127.0.0.1"}))
"""


def alive(session: int) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except (psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            pass
    return found


def java_runs(session: int) -> bool:
    return any("SparkSubmit" in each for each in alive(session))


@pytest.mark.parametrize("moment", ["while Java starts", "while the job runs"])
def test_an_interrupted_job_leaves_nothing(moment: str, tmp_path: Path) -> None:
    try:
        java()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    errors = tmp_path / "errors"
    directory = tmp_path / "started-here"
    directory.mkdir()
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", JOB],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        ) as job,
    ):
        try:
            if moment == "while Java starts":
                _wait(lambda: java_runs(job.pid))
            else:
                assert job.stdout is not None and job.stdout.readline() == "working\n"
            os.killpg(job.pid, signal.SIGINT)
            assert job.wait(60) == 130
            _wait(lambda: not alive(job.pid))
        finally:
            if left := alive(job.pid):
                os.killpg(job.pid, signal.SIGKILL)
    assert not left
    assert "Traceback" not in errors.read_text() and "rror" not in errors.read_text()
    assert not list(directory.iterdir())


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
