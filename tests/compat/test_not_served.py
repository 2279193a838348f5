"""What is not served fails within seconds in the clients of others; none of them waits or tries for ever."""

import pytest
from confluent_kafka import Consumer

from .conftest import TARGET

pytestmark = pytest.mark.skipif(TARGET == "kafka", reason="Kafka serves all of this")

SOON_S = 5


def test_librdkafka_with_the_consumer_protocol_fails(bootstrap):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["nothing"])
    try:
        message = consumer.poll(SOON_S)
        assert message is not None and message.error() is not None
        assert "API version not supported" in message.error().str()
    finally:
        consumer.close()
