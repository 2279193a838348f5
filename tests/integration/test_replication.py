"""Three brokers, real processes: kill -9 of a leader under an idempotent producer loses nothing; replicas are equal.

producer ──acks=all──▶ leader ✗ kill -9        ┌▶ every acknowledged record once, at its offset
               └─────▶ follower leads, epoch+1 ─┤
leader back ─▶ follows, truncates, in sync ─────┘▶ the same bytes on three disks
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers import Brokers, cluster
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess

DEADLINE_S = 60
PARTITIONS = 3


def create(brokers: Brokers) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
    for made in admin.create_topics([topic]).values():
        made.result(DEADLINE_S)
    return admin


def partitions(admin: AdminClient):
    return admin.list_topics("t", timeout=DEADLINE_S).topics["t"].partitions


class Sending:
    """An idempotent producer, and what was acknowledged to it: value by partition and offset."""

    def __init__(self, brokers: Brokers) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": DEADLINE_S * 1000,
            }
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            number, self._sent = self._sent, self._sent + 1
            value = b"%d:" % number + b"x" * (number % 700)
            self._producer.produce("t", value, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.failed == []
        assert len(self.acked) == self._sent

    def wait_for(self, acked: int) -> None:
        wait_until(lambda: self._producer.poll(0.01) is not None and len(self.acked) >= acked, "acknowledged")

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[message.partition(), message.offset()] = message.value()


def read_all(brokers: Brokers, count: int) -> dict[tuple[int, int], bytes]:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = message.value()
    consumer.close()
    return found


def on_disk(brokers: Brokers, node: int) -> dict[str, bytes]:
    """Each partition's segments of a stopped broker, one after the other."""
    logs = brokers.directory / f"broker-{node}" / "logs"
    return {
        partition.name: b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
        for topic in logs.glob("t.*")
        for partition in topic.iterdir()
    }


def test_a_killed_leader_takes_nothing_with_it(tmp_path: Path) -> None:
    with cluster(tmp_path) as brokers:
        admin = create(brokers)
        sending = Sending(brokers)
        sending.send(300)
        sending.flush()
        for round_ in range(2):
            victim = partitions(admin)[round_].leader
            sending.send(1500)
            sending.wait_for(len(sending.acked) + 200)
            brokers[victim].kill()
            sending.send(600)
            sending.flush()
            assert victim not in {each.leader for each in partitions(admin).values()}
            brokers[victim].start()
            wait_until(lambda: all(len(each.isrs) == 3 for each in partitions(admin).values()), "all are in sync again")
        sending.send(300)
        sending.flush()
        assert read_all(brokers, len(sending.acked)) == sending.acked
        offsets = [offset for partition, offset in sending.acked if partition == 0]
        assert sorted(offsets) == list(range(len(offsets))), "each record once, without gaps"
        with ThreadPoolExecutor() as stopping:
            list(stopping.map(ServeProcess.stop, brokers.by_node.values()))
        first = on_disk(brokers, 1)
        assert sorted(first) == [str(number) for number in range(PARTITIONS)]
        assert first == on_disk(brokers, 2) == on_disk(brokers, 3)


def test_all_brokers_killed_at_once_come_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    with cluster(tmp_path) as brokers:
        create(brokers)
        sending = Sending(brokers)
        sending.send(600)
        sending.flush()
        for node in brokers.by_node:
            brokers[node].kill()
        with ThreadPoolExecutor() as starting:
            list(starting.map(ServeProcess.start, brokers.by_node.values()))
        assert read_all(brokers, len(sending.acked)) == sending.acked
        more = Sending(brokers)
        more.send(300)
        more.flush()
