"""Fixtures that the whole suite shares: real service processes. And which tests are tried again.

Tests of real processes, clients and Spark share two cores with each other, and a machine that stalls for seconds ends
leases and time-outs. One that fails is tried once more, and the summary shows that it was. What checks safety or is
free of clocks (chaos, simulation, contracts, everything in process) is never tried again: it failed, or it did not.
"""

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from benchmarks.process import BrokerProcess
from tests.support import forked_workers, forks, turns
from tests.support.service import MakeService, services
from tierlog.process import ServeProcess

# A JVM of a test lives for seconds: it does not use them to compile well.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC")
# A note that a closed broker leaves for the command line is for the tests that look for it.
os.environ["XDG_STATE_HOME"] = os.devnull
# How long an example takes says nothing of the code: other tests use the same cores.
settings.register_profile("without deadlines", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without deadlines")
ServeProcess.popen = forks.Popen
BrokerProcess.popen = forks.Popen
asyncio.create_subprocess_exec = forked_workers.create_subprocess_exec


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """One node for all tests of a worker that neither stop it nor change its settings; name your topics uniquely."""
    with services(tmp_path_factory.mktemp("service")) as make:
        yield make()


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[MakeService]:
    """Starts nodes of the test's own: `make_service("--set", "topic.flush=os")`."""
    with services(tmp_path) as make:
        yield make


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets up its own logging, for good; some packages set variables."""
    environment = dict(os.environ)
    yield
    structlog.reset_defaults()
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


WITH_REAL_PROCESSES = (
    "tests/compat/",
    "tests/console/",
    "tests/gateway/kafka/test_group_clients.py",
    "tests/hot_tier/cluster/test_etcd",
    "tests/integration/",
    "tests/monitoring/",
    "tests/spark/",
    "tests/tierlog/",
)
NEVER_TRIED_AGAIN = (
    "tests/chaos/",
    "tests/docs/test_commands.py",
    "tests/gateway/http/test_archive.py",
    "tests/gateway/http/test_schemathesis.py",
    "tests/gateway/http/test_sql.py",
)
STARTERS = {
    "subprocess",
    "benchmarks.service",
    "tests.offloader.harness",
    *(f"tests.support.{name}" for name in ("command", "etcd", "members", "s3", "service")),
}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Half a million objects are made, and stay: the garbage collector would look through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(WITH_REAL_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.nodeid.startswith(WITH_REAL_PROCESSES + NEVER_TRIED_AGAIN) or starts_processes(item):
            item.add_marker(pytest.mark.process)
    turns.longest_first(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> turns.Turns:
    return turns.Turns(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    forks.remember_environment()
    if any(item.get_closest_marker("process") for item in session.items):
        forks.SERVER.start()
    gc.freeze()


def starts_processes(item: pytest.Item) -> bool:
    """Whether the test is given a process, or its file uses something that starts one."""
    assert isinstance(item, pytest.Function)
    used = {getattr(each, "__module__", None) or getattr(each, "__name__", "") for each in vars(item.module).values()}
    return bool({"service", "make_service"}.intersection(item.fixturenames) or STARTERS & used)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"why {report.nodeid} was tried again")
        terminalreporter.write_line(report.longreprtext[-3000:])
