"""Brokers for chaos: each test has its own, on a directory of its own, with crash-safe settings."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peer.kafka import KafkaServer
from benchmarks.process import BrokerProcess
from benchmarks.service import TierlogServer

TARGET = os.environ.get("TIERLOG_CHAOS_TARGET", "tierlog")
MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Starts brokers and ends them with the test, whatever state they are in."""
    made: list[BrokerProcess] = []

    def make(**options) -> BrokerProcess:
        broker = KafkaServer(tmp_path, heap="512M") if TARGET == "kafka" else TierlogServer(tmp_path, **options)
        made.append(broker)
        return broker.start()

    yield make
    for broker in made:
        if broker.running:
            broker.resume()
        broker.kill()
