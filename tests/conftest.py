"""Fixtures that the whole suite shares: real service processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import MakeService, services
from tierlog.process import ServeProcess


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
