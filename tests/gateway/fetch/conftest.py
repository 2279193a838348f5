"""A node to read from."""

import pytest

from tests.gateway.kafka.node import running_node


@pytest.fixture
async def node(tmp_path):
    async with running_node(str(tmp_path / "node")) as running:
        yield running
