"""The loop that the service runs on, and a node on it."""

import pytest
import uvloop

from tests.gateway.kafka.node import node_in_thread, running_node


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def node(tmp_path):
    async with running_node(str(tmp_path / "node")) as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """For clients that block; name your topics uniquely."""
    with node_in_thread(str(tmp_path_factory.mktemp("node"))) as running:
        yield running
