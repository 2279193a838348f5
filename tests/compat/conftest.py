"""The broker under test, one per run, and the three clients."""

import os
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from benchmarks.peer.jars import PeerUnavailable
from benchmarks.peer.kafka import KafkaServer
from benchmarks.process import wait_for
from benchmarks.service import TierlogServer

from .clients.aio import AioClient
from .clients.confluent import ConfluentClient
from .clients.face import Client, Unsupported
from .clients.kafka_python import KafkaPythonClient

TARGET = os.environ.get("TIERLOG_COMPAT_TARGET", "tierlog")
CLIENTS = {cls.name: cls for cls in (ConfluentClient, AioClient, KafkaPythonClient)}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = os.environ.get("TIERLOG_COMPAT_BOOTSTRAP")
    if given:
        yield given
        return
    directory = tmp_path_factory.mktemp(TARGET)
    try:
        server = KafkaServer(directory) if TARGET == "kafka" else TierlogServer(directory)
        server.start()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    with server:
        yield server.bootstrap


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Client]:
    made = CLIENTS[request.param](bootstrap)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def new_topic(client: Client) -> Callable[..., str]:
    """Makes a topic of its own for the test and returns its name."""

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"compat-{uuid4().hex[:12]}"
        client.create_topic(name, partitions, config)
        wait_for(lambda: client.topics().get(name) == partitions, f"{name} in the metadata", 15)
        return name

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    try:
        return (yield)
    except Unsupported as reason:
        pytest.skip(str(reason))
