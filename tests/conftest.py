"""Fixtures that the whole suite shares: real service processes. And which tests are tried again.

Tests of real processes, clients and Spark share two cores with each other, and a machine that stalls for seconds ends
leases and time-outs. One that fails is tried once more, and the summary shows that it was. What checks safety or is
free of clocks (chaos, simulation, contracts, everything in process) is never tried again: it failed, or it did not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from benchmarks.process import BrokerProcess
from tests.support import forks
from tests.support.service import MakeService, services
from tierlog.process import ServeProcess

ServeProcess.popen = forks.Popen
BrokerProcess.popen = forks.Popen


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
def logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets up its own logging, for good."""
    yield
    structlog.reset_defaults()


WITH_REAL_PROCESSES = (
    "tests/compat/",
    "tests/gateway/kafka/test_group_clients.py",
    "tests/hot_tier/cluster/test_etcd",
    "tests/integration/",
    "tests/spark/",
    "tests/tierlog/",
)
NEVER_TRIED_AGAIN = (
    "tests/chaos/",
    "tests/docs/test_commands.py",
    "tests/gateway/http/test_archive.py",
    "tests/gateway/http/test_schemathesis.py",
)
STARTERS = {
    "subprocess",
    "benchmarks.service",
    "tests.offloader.harness",
    *(f"tests.support.{name}" for name in ("command", "etcd", "members", "s3", "service")),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(WITH_REAL_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.nodeid.startswith(WITH_REAL_PROCESSES + NEVER_TRIED_AGAIN) or starts_processes(item):
            item.add_marker(pytest.mark.process)
    # Workers that begin together end together if the short files are left for the end.
    long_files = {item.path for item in items if item.get_closest_marker("process")}
    items.sort(key=lambda item: item.path not in long_files)


def starts_processes(item: pytest.Item) -> bool:
    """Whether the test is given a process, or its file uses something that starts one."""
    assert isinstance(item, pytest.Function)
    used = {getattr(each, "__module__", None) or getattr(each, "__name__", "") for each in vars(item.module).values()}
    return bool({"service", "make_service"}.intersection(item.fixturenames) or STARTERS & used)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"why {report.nodeid} was tried again")
        terminalreporter.write_line(report.longreprtext[-3000:])
