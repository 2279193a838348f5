"""A broker with every kind of login."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.identity_provider import Provider
from tests.support.secured import secured_settings
from tierlog.broker import Broker


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def secured(tmp_path: Path, authority: Authority, provider: Provider) -> AsyncIterator[Broker]:
    made = Broker(secured_settings(tmp_path, authority, provider))
    await made.start()
    yield made
    await made.stop()
