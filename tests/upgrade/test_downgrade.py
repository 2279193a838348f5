"""What 0.1.0 writes on a directory of the present version is there after the next upgrade."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.golden.releases import records
from tests.support.brokers import Brokers, make_topic
from tests.support.etcd import etcd
from tests.upgrade.versions import environment_of_old, run_as


@pytest.mark.parametrize("flush", ["os", "commit"])
def test_a_killed_0_1_0_loses_nothing_at_the_next_upgrade(flush: str, tmp_path: Path) -> None:
    """0.1.0 writes leader epochs with a sync alone, the present version before their first batch."""
    old = environment_of_old()
    with ExitStack() as stack:
        brokers = Brokers(tmp_path, stack.enter_context(etcd()), stack, {})
        node = brokers.add(1).start()
        make_topic(brokers, "events", partitions=1, config={"flush": flush})
        produce(node.kafka, b"by the present version")
        run_as(node, old)
        produce(node.kafka, b"by 0.1.0")
        node.kill()
        run_as(node, {})
        assert len(records(node.kafka, "events")) == 20


def produce(kafka: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    for _ in range(10):
        producer.produce("events", value, partition=0)
    assert producer.flush(30) == 0
