"""Sends and reads the demo's orders: through a Kafka client if one is installed, else through HTTP.

Most services in Python use confluent-kafka. tierlog does not need it, so the demo also works without it. The two differ
in one promise: a Kafka producer is idempotent and writes each order once, but over HTTP a request whose answer was lost
is sent again, so an order may be stored twice.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import islice
from typing import Any, Protocol

from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError
from tierlog.client import Client, Refused, ServerUnreachable, path
from tierlog.demo.orders import Order, number_of

OUTAGE_S = 120.0
READ_S = 60.0

Place = tuple[int, int]
"""Partition and offset."""
OnAck = Callable[[Order, Place], None]


class Target(Protocol):
    """One node or a cluster, given by its addresses."""

    @property
    def kafka(self) -> str: ...

    @property
    def url(self) -> str: ...


class TrafficFailed(TierlogError):
    pass


@dataclass(slots=True)
class Member:
    """One consumer of a group, and what it received."""

    name: str
    partitions: tuple[int, ...] = ()
    numbers: list[int] = field(default_factory=list)


class Traffic(Protocol):
    name: str
    once: bool
    """Whether an order is stored once even if the broker dies before its answer arrives."""

    def produce(self, topic: str, orders: Iterable[Order], on_ack: OnAck) -> None:
        """Sends all orders, through an outage of the broker if there is one. Returns when all are acknowledged."""
        ...

    def share(self, topic: str, group: str, members: int, total: int) -> Sequence[Member]:
        """Reads the whole topic with a group of `members` consumers, and commits."""
        ...


def choose_traffic(service: Target, login: Mapping[str, str]) -> Traffic:
    """`login` are settings of librdkafka. Over HTTP the command line's client finds its login by itself."""
    return KafkaTraffic(service, login) if find_spec("confluent_kafka") else HttpTraffic(service)


class KafkaTraffic:
    once = True

    def __init__(self, service: Target, login: Mapping[str, str]) -> None:
        import confluent_kafka

        self._kafka = confluent_kafka
        self._service = service
        self._login = login
        self.name = f"confluent-kafka {confluent_kafka.version()}"

    def produce(self, topic: str, orders: Iterable[Order], on_ack: OnAck) -> None:
        failed: list[str] = []

        def delivered(order: Order, error: Any, message: Any) -> None:
            if error is not None:
                failed.append(str(error))
            else:
                on_ack(order, (message.partition(), message.offset()))

        producer = self._kafka.Producer(
            {
                **self._common(),
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "message.timeout.ms": int(OUTAGE_S * 1000),
            }
        )
        for order in orders:
            while True:
                try:
                    producer.produce(
                        topic,
                        key=order.key,
                        value=order.value,
                        timestamp=order.timestamp,
                        on_delivery=partial(delivered, order),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        left = producer.flush(OUTAGE_S)
        if left or failed:
            raise TrafficFailed(f"{left + len(failed)} orders were not acknowledged: {failed[:1]}", where=topic)

    def share(self, topic: str, group: str, members: int, total: int) -> Sequence[Member]:
        found = [Member(f"member {index + 1}") for index in range(members)]
        consumers = [self._consumer(group, topic) for _ in found]
        deadline = steady_s() + READ_S
        try:
            while not all(consumer.assignment() for consumer in consumers):
                _check(deadline, "the group's members to get their partitions")
                for member, consumer in zip(found, consumers, strict=True):
                    member.numbers += _numbers(consumer.consume(1000, 0.05))
            while sum(len(member.numbers) for member in found) < total:
                _check(deadline, f"{total} orders, read {sum(len(member.numbers) for member in found)}")
                for member, consumer in zip(found, consumers, strict=True):
                    member.numbers += _numbers(consumer.consume(10_000, 0.05))
            for member, consumer in zip(found, consumers, strict=True):
                member.partitions = tuple(sorted(each.partition for each in consumer.assignment()))
                consumer.commit(asynchronous=False)
        finally:
            for consumer in consumers:
                consumer.close()
        return found

    def _consumer(self, group: str, topic: str) -> Any:
        consumer = self._kafka.Consumer(
            {
                **self._common(),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 300,
            }
        )
        consumer.subscribe([topic])
        return consumer

    def _common(self) -> dict[str, Any]:
        return {
            **self._login,
            "bootstrap.servers": self._service.kafka,
            "client.id": "tierlog-demo",
            "reconnect.backoff.max.ms": 500,
            # The outage is intended. Without this librdkafka would write about it all over the report.
            "log_level": 0,
            "error_cb": lambda _: None,
        }


class HttpTraffic:
    name = "HTTP (confluent-kafka is not installed)"
    once = False
    batch = 1_000

    def __init__(self, service: Target) -> None:
        self._service = service

    def produce(self, topic: str, orders: Iterable[Order], on_ack: OnAck) -> None:
        rest = iter(orders)
        while part := list(islice(rest, self.batch)):
            deadline = steady_s() + OUTAGE_S
            while part := self._send(topic, part, on_ack):
                if steady_s() > deadline:
                    raise TrafficFailed(f"{len(part)} orders were not acknowledged", where=topic)
                time.sleep(0.1)

    def _send(self, topic: str, part: Sequence[Order], on_ack: OnAck) -> list[Order]:
        """Returns the orders to send again: all if nobody answers, or those whose leader is away."""
        messages = [{"key": order.key, "value": order.value.decode(), "timestamp": order.timestamp} for order in part]
        try:
            with Client(self._service.url) as client:
                results = client.post(path("topics", topic, "messages", "batch"), {"messages": messages})["results"]
        except ServerUnreachable:
            return list(part)
        except Refused as error:
            if error.status != 503:
                raise
            return list(part)
        again = []
        for order, stored in zip(part, results, strict=True):
            if "error" not in stored:
                on_ack(order, (stored["partition"], stored["offset"]))
            elif stored["error"]["status"] == 503:
                again.append(order)
            else:
                raise TrafficFailed(stored["error"]["detail"], where=topic)
        return again

    def share(self, topic: str, group: str, members: int, total: int) -> Sequence[Member]:
        with Client(self._service.url) as client:
            count = len(client.get(path("topics", topic))["partitions"])
            found = [Member(f"reader {index + 1}", tuple(range(index, count, members))) for index in range(members)]
            for member in found:
                for partition in member.partitions:
                    numbers = [number for _, number in read_partition(client, topic, partition)]
                    member.numbers += numbers
                    committed = {"topic": topic, "partition": partition, "offset": len(numbers)}
                    client.post(path("consumer-groups", group, "offsets"), committed)
        return found


def read_partition(client: Client, topic: str, partition: int, **query: Any) -> Iterator[tuple[Place, int]]:
    """Returns every order of a partition (or in the time range of `query`) with its place, over HTTP."""
    import base64

    address = path("topics", topic, "partitions", partition, "messages")
    page = client.get(address, limit=10_000, **({"offset": "earliest"} | query if "from" not in query else query))
    while page["messages"]:
        for message in page["messages"]:
            yield (partition, message["offset"]), number_of(base64.b64decode(message["value"]))
        until = {"to": query["to"]} if "to" in query else {}
        page = client.get(address, limit=10_000, offset=page["next_offset"], **until)


def _numbers(messages: Iterable[Any]) -> list[int]:
    found = []
    for message in messages:
        if message.error():
            raise TrafficFailed(str(message.error()))
        found.append(number_of(message.value()))
    return found


def _check(deadline: float, what: str) -> None:
    if steady_s() > deadline:
        raise TrafficFailed(f"waited {READ_S:.0f} s for {what}")
