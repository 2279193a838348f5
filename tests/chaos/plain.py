"""A client without second tries: what one send or one read was told, and nothing else."""

import time
from typing import NamedTuple

import confluent_kafka as ck

STORAGE_ERROR = ck.KafkaError.KAFKA_STORAGE_ERROR


class Sent(NamedTuple):
    """The offset, or the code of the error; never both."""

    offset: int | None
    error: int | None


def send(bootstrap: str, topic: str, values: list[bytes], *, partition: int = 0, timeout_s: float = 10) -> list[Sent]:
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "retries": 0,
            "linger.ms": 0,
            "batch.num.messages": 50,
            "message.timeout.ms": int(timeout_s * 1000),
            "log_level": 0,
        }
    )
    answers: dict[int, Sent] = {}

    def report(index: int):
        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            answers[index] = Sent(None, error.code()) if error else Sent(message.offset(), None)

        return delivered

    for index, value in enumerate(values):
        producer.produce(topic, value, partition=partition, on_delivery=report(index))
        producer.poll(0)
    assert producer.flush(timeout_s + 10) == 0
    return [answers[index] for index in range(len(values))]


class Answered(NamedTuple):
    records: dict[int, bytes]
    error: int | None


def read(bootstrap: str, topic: str, start: int, count: int, *, partition: int = 0, timeout_s: float = 20) -> Answered:
    """Records from `start` on, until there are `count`, or an error of the broker comes in, or time is up."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "fetch.error.backoff.ms": 50,
            "log_level": 0,
        }
    )
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + timeout_s
    try:
        consumer.assign([ck.TopicPartition(topic, partition, start)])
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.2):
                if message.error():
                    return Answered(found, message.error().code())
                found[message.offset()] = message.value()
        return Answered(found, None)
    finally:
        consumer.close()
