"""A browser and a broker for all tests of the console, and pictures of what it shows.

Chromium and its driver are Debian packages (`make test-tools`); without them these tests are skipped.
"""

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.console.actions import ACTIONS
from tests.console.browser import Browser
from tests.console.scene import FLAGS, fill, traffic, wait_for_figures
from tests.support.service import services
from tierlog.process import ServeProcess

PICTURES = Path(os.environ.get("TIERLOG_PICTURES", ".cache/console"))
"""Where pictures are kept, to be looked at."""
PASSED = pytest.StashKey[bool]()
Reports = Generator[None, pytest.TestReport, pytest.TestReport]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with services(tmp_path_factory.mktemp("console")) as make:
        service = make(*FLAGS)
        fill(service)
        with traffic(service):
            wait_for_figures(service)
            yield service


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} is not installed here (make test-tools)")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Browser(PICTURES) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """A window of usual size, without a login; at the end, nothing must have gone wrong in it, and the page must have
    asked the broker for what the test `does`."""
    chromium.begin()
    yield chromium
    if not request.node.stash.get(PASSED, False):
        return
    chromium.check_quiet()
    sent = chromium.requests()
    for mark in request.node.iter_markers("does"):
        for name in mark.args:
            assert any(ACTIONS[name].is_sent_by(*each) for each in sent), f"the page has not asked to {name}"
