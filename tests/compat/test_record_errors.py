"""Of a batch with bad records, librdkafka tells which ones were bad, and which were only sent beside them."""

from uuid import uuid4

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic


def test_bad_records_are_told_from_good_ones(bootstrap: str):
    topic = f"compacted-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, 1, config={"cleanup.policy": "compact"})]).values()
    made.result(30)
    outcomes: dict[int, int] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000, "batch.num.messages": 100})
    for number in range(100):
        producer.produce(
            topic,
            b"v",
            key=None if number % 10 == 3 else b"k",
            partition=0,
            on_delivery=lambda error, _, number=number: outcomes.update({number: error.code() if error else 0}),
        )
    assert producer.flush(30) == 0
    bad = {number for number, code in outcomes.items() if code == KafkaError.INVALID_RECORD}
    assert bad == set(range(3, 100, 10))
    assert {code for number, code in outcomes.items() if number not in bad} == {KafkaError._INVALID_DIFFERENT_RECORD}
