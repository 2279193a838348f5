"""What is not served fails within seconds in the clients of others; none of them waits or tries for ever."""

import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from .conftest import TARGET

pytestmark = pytest.mark.skipif(TARGET == "kafka", reason="Kafka serves all of this")

SOON_S = 5


def test_librdkafka_gives_up_its_transactional_id(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    began = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(30)
    assert time.monotonic() - began < SOON_S
    assert refused.value.args[0].fatal()
    assert "transactions are not served" in refused.value.args[0].str()


def test_librdkafka_with_the_consumer_protocol_fails(bootstrap):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["nothing"])
    try:
        message = consumer.poll(SOON_S)
        assert message is not None and message.error() is not None
        assert "API version not supported" in message.error().str()
    finally:
        consumer.close()
