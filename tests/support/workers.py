"""Services of several workers, as clients and operators see them, and a load that notes what was acknowledged."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tierlog.client import Client, path
from tierlog.process import ServeProcess

WAIT_S = 90.0


def until(check: Callable[[], Any], what: str, within_s: float = WAIT_S) -> Any:
    """Returns the first true answer. What raises is asked again."""
    deadline, last = time.monotonic() + within_s, None
    while time.monotonic() < deadline:
        try:
            if last := check():
                return last
        except Exception as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s:.0f} s: {what}; last: {last!r}")


def worker_pids(service: ServeProcess) -> dict[int, int]:
    """Returns process ids by worker."""
    return {number: pid for pid in children(service.pid) if (number := worker_number(pid))}


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(each) for each in (task / "children").read_text().split()]
    return found


def worker_number(pid: int) -> int | None:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return int(words[3]) if b"tierlog.workers.worker" in words else None


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def cluster(url: str) -> dict[str, Any]:
    with Client(url) as client:
        found: dict[str, Any] = client.get(path("cluster"))
        return found


def wait_for_brokers(url: str, count: int) -> None:
    """Waits until each of so many brokers sees all of them."""

    def agree() -> bool:
        brokers = cluster(url)["brokers"]
        urls = [f"http://{each['http_host']}:{each['http_port']}" for each in brokers]
        return len(urls) == count and all(len(cluster(each)["brokers"]) == count for each in urls)

    until(agree, f"{count} brokers see each other")


def partitions(url: str, topic: str) -> list[dict[str, Any]]:
    with Client(url) as client:
        found: list[dict[str, Any]] = client.get(path("topics", topic))["partitions"]
        return found


def make_topic(url: str, name: str, **wanted: Any) -> None:
    with Client(url) as client:
        client.post(path("topics"), {"name": name, **wanted})


class Load:
    """Produces to topics from a thread of its own until it stops; `acked` has the values that were acknowledged."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.acked: dict[str, set[bytes]] = {topic: set() for topic in topics}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for topic in self.acked:
                self._producer.produce(topic, b"%d" % number, key=b"%d" % (number % 97), on_delivery=self._told)
            number += 1
            self._producer.poll(0)
            time.sleep(0.0005)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked[str(message.topic())].add(message.value() or b"")

    @property
    def count(self) -> int:
        return sum(len(each) for each in self.acked.values())

    def more(self, count: int) -> None:
        """Waits until so many more are acknowledged."""
        wanted = self.count + count
        until(lambda: self.count >= wanted, f"{count} more records acknowledged")

    def stop(self) -> dict[str, set[bytes]]:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        return self.acked

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()
        del self._producer


@contextmanager
def load(bootstrap: str, *topics: str) -> Iterator[Load]:
    running = Load(bootstrap, topics)
    running._thread.start()
    try:
        yield running
    finally:
        running.end()


def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[int, int, bytes]]:
    """Returns partition, offset and value of every record, from the start to the ends as they are now."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reads-all", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        ends = {}
        for partition in range(count):
            _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        found: list[tuple[int, int, bytes]] = []
        deadline = time.monotonic() + WAIT_S
        left = {partition for partition, end in ends.items() if end > 0}
        while left:
            assert time.monotonic() < deadline, f"partitions {left} of {topic} are not read to their ends"
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                found.append((message.partition(), message.offset(), message.value()))
                if message.offset() + 1 >= ends[message.partition()]:
                    left.discard(message.partition())
        return found
    finally:
        consumer.close()
