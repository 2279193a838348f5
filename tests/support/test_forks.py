"""A forked `tierlog` is to a test what a started one is."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import forks
from tierlog.client import Client, path

SERVE = [*forks.COMMAND, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]


@pytest.fixture(params=[subprocess.Popen, forks.Popen], ids=["started", "forked"])
def popen(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Takes what Popen takes; whatever still runs at the end is killed."""
    with ExitStack() as started:

        def make(*arguments: Any, **options: Any) -> Any:
            process = request.param(*arguments, **options)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield make


def test_it_has_its_own_directory_environment_and_group(popen: Any, tmp_path: Path) -> None:
    environment = {**os.environ, "TIERLOG_CLUSTER__NODE_ID": "7"}
    command = [*SERVE, "--data-dir", "here"]
    options = {"cwd": tmp_path, "env": environment, "process_group": 0}
    process = popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    ready = process.stdout.readline()
    with Client(f"http://{ready.split('http=')[1].strip()}") as client:
        assert [broker["id"] for broker in client.get(path("cluster"))["brokers"]] == [7]
    seen = psutil.Process(process.pid)
    assert (seen.ppid(), os.getpgid(process.pid), seen.cwd()) == (os.getpid(), process.pid, str(tmp_path))
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert "event=stopped" in process.stderr.read()
    assert (tmp_path / "here").is_dir()


def test_streams_and_codes(popen: Any) -> None:
    process = popen([*forks.COMMAND, "cost", "--nonsense"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"--nonsense" in out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_signals_end_it(popen: Any, number: signal.Signals, tmp_path: Path) -> None:
    command = [*SERVE, "--data-dir", str(tmp_path / "data")]
    process = popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.readline()
    process.send_signal(number)
    assert process.wait(30) == (-number if number == signal.SIGKILL else 0)


def test_it_ends_with_the_test_run(tmp_path: Path) -> None:
    asking = """
import os, subprocess, sys
from tests.support import forks
process = forks.Popen([*forks.COMMAND, *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
process.stdout.readline()
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    command = [sys.executable, "-c", asking, *SERVE[len(forks.COMMAND) :], "--data-dir", str(tmp_path / "data")]
    asked = subprocess.run(command, stdout=subprocess.PIPE, cwd=forks.ROOT, check=False)
    try:
        psutil.Process(int(asked.stdout)).wait(30)
    except psutil.NoSuchProcess:
        return


def test_what_is_read_while_importing_needs_a_real_start() -> None:
    here = dict(forks.ENVIRONMENT)
    assert forks.can_fork({**here, "TIERLOG_KAFKA__PORT": "0", "AWS_REGION": "x"})
    assert not forks.can_fork({**here, "NUMBA_CACHE_DIR": "/x"})
    assert not forks.can_fork({name: value for name, value in here.items() if name != "PATH"})
    assert forks.module_and_arguments(SERVE) == ("tierlog.__main__", SERVE[3:])
    assert forks.module_and_arguments([sys.executable, "-m", "offloader.worker"]) == ("offloader.worker", [])
    assert forks.module_and_arguments([sys.executable, "-m", "gateway.sql.worker"]) == ("gateway.sql.worker", [])
    assert forks.module_and_arguments([sys.executable, "-m", "moto.server"]) is None


def test_imports_and_earlier_tests_have_left_the_environment_as_it_was() -> None:
    """Else every start of every later test would be a real one."""
    assert forks.can_fork(dict(os.environ))


FIRST_USE = """
import os, subprocess, sys
from tests.support import forks
os.chdir("/")
os.environ["PYTHONPATH"] = "/nowhere"
environment = {**forks.ENVIRONMENT, "TIERLOG_SERVER": "x"}
with forks.Popen([*forks.COMMAND, "--version"], stdout=subprocess.PIPE, env=environment) as process:
    shown = process.stdout.read().decode()
print(forks.SERVER.process.pid, shown, flush=True)
sys.stdin.read()
"""


def test_it_starts_from_anywhere_and_ends_with_who_asked() -> None:
    command = [sys.executable, "-c", FIRST_USE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=forks.ROOT, text=True, **pipes) as process:  # type: ignore[call-overload]
        server, shown = process.stdout.readline().split(" ", 1)
        assert shown.startswith("tierlog ")
        assert psutil.pid_exists(int(server))
        process.kill()
    until_gone(int(server))


def until_gone(pid: int) -> None:
    try:
        psutil.Process(pid).wait(30)
    except psutil.NoSuchProcess:
        pass
