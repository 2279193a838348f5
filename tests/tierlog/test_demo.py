"""The demo keeps its word: every check holds, with a Kafka client and without one."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.etcd import etcd_binary
from tierlog.demo import archive
from tierlog.demo.report import Report
from tierlog.demo.story import Story
from tierlog.process import ServeProcess

WITHOUT_KAFKA_CLIENT = """
import sys
sys.modules["confluent_kafka"] = None
from tierlog.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


STARTS = [
    pytest.param(["-m", "tierlog"], id="kafka"),
    pytest.param(["-c", WITHOUT_KAFKA_CLIENT], id="http", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("start", STARTS)
def test_every_check_holds(start: list[str]) -> None:
    command = [sys.executable, *start, "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert len(document["checks"]) >= 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("more", [[], pytest.param(["--secure"], marks=pytest.mark.slow)], ids=["open", "closed"])
@pytest.mark.parametrize("start", STARTS)
def test_every_check_of_the_cluster_holds(
    start: list[str], more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd_binary()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where the command line finds a closed broker
    command = [sys.executable, *start, "demo", "--cluster", *more, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert len(document["checks"]) >= 6 + len(more)
    assert document["figures"]["failover_seconds"] > 0


@pytest.mark.timeout(300)
def test_the_report_is_for_people(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tierlog", "demo", "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9" in done.stdout
    assert "Spark" in done.stdout
    assert "checks hold" in done.stdout
    assert "✗" not in done.stdout and done.stdout.count("✓") >= 10
    assert list((tmp_path / "kept").glob("data/logs/orders.*/*/*.log"))
    assert f"tierlog serve --data-dir {tmp_path}/kept/data" in done.stdout
    assert "http://127.0.0.1:8080/console" in done.stdout.splitlines()[-2]


def test_a_spark_that_takes_too_long_is_a_check_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_SPARK_TIMEOUT_S", 0.001)
    monkeypatch.setattr(archive.shutil, "which", lambda name: name)
    report = Report(quiet=True)
    archive._count_with_spark(report, "file:///nowhere", "orders", 1)
    assert [(each.claim, each.holds) for each in report.checks] == [("Spark reads the archive", False)]


def test_an_interrupted_act_leaves_no_thread_that_the_program_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> float:
        assert "outage" in {thread.name for thread in threading.enumerate()}
        raise KeyboardInterrupt

    story = Story(ServeProcess(tmp_path / "never started"), Report(quiet=True))
    monkeypatch.setattr(story, "_send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        story._kill()
    assert "outage" not in {thread.name for thread in threading.enumerate()}
