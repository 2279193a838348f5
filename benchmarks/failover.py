"""How long a partition takes no records after its leader is killed or stands still, as a client sees it.

A producer sends a small record every few milliseconds. The failover took from the fault until the first record that
was sent after it is acknowledged: what was in flight before does not count, and the client's own search for the new
leader does. The topic has a partition on every broker, as a producer's topic mostly has: one that is connected to the
lost broker alone looks for another only when a second connection to it has timed out too.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import confluent_kafka as ck
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import Cluster
from benchmarks.process import BrokerProcess, wait_for

TOPIC = "failover"
EVERY_S = 0.005
GIVE_UP_S = 60.0
CLIENT = {"acks": "all", "linger.ms": 0, "socket.timeout.ms": 1000, "request.timeout.ms": 1000, "log_level": 0}
"""A client that waits a second for an answer, or it would hang on a standing leader for a minute."""


@dataclass(slots=True)
class Beat:
    sent_at: float
    acknowledged_at: float = 0.0


class Pulse(threading.Thread):
    """Sends until it is told to stop, and remembers when each record of partition 0 was sent and acknowledged."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(name="pulse", daemon=True)
        self._partitions = partitions
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, **CLIENT})
        self._stopping = threading.Event()
        self._beats: list[Beat] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            beat = Beat(time.monotonic())
            self._beats.append(beat)

            def report(error: ck.KafkaError | None, _: ck.Message, beat: Beat = beat) -> None:
                if error is None:
                    beat.acknowledged_at = time.monotonic()

            self._producer.produce(TOPIC, b"beat", partition=0, on_delivery=report)
            for partition in range(1, self._partitions):
                self._producer.produce(TOPIC, b"beat", partition=partition)
            self._producer.poll(EVERY_S)
        self._producer.flush(5)

    def stop(self) -> None:
        self._stopping.set()
        self.join(10)

    def first_acknowledged_after(self, moment: float) -> float:
        def found() -> bool:
            return any(beat.sent_at > moment and beat.acknowledged_at for beat in self._beats[-2000:])

        wait_for(found, "a record to be acknowledged again", GIVE_UP_S, interval_s=0.005)
        return min(b.acknowledged_at for b in self._beats if b.sent_at > moment and b.acknowledged_at)


class Failovers:
    """Each with a new client: an old one remembers which brokers were down before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        count, config = len(cluster.brokers), {"min.insync.replicas": "2"}
        self._admin.create_topics([NewTopic(TOPIC, count, count, config=config)])[TOPIC].result(30)
        wait_for(self._whole, "every replica to be in sync", GIVE_UP_S)

    def kill_leader(self) -> float:
        return self._measure(BrokerProcess.kill, BrokerProcess.start)

    def pause_leader(self) -> float:
        return self._measure(BrokerProcess.pause, BrokerProcess.resume)

    def _measure(self, fault: Callable[[BrokerProcess], object], remedy: Callable[[BrokerProcess], object]) -> float:
        """Milliseconds; afterwards all replicas are in sync, and each broker leads what it led."""
        pulse = Pulse(self._cluster.bootstrap, len(self._cluster.brokers))
        pulse.start()
        pulse.first_acknowledged_after(time.monotonic())
        leader = self._cluster.brokers[self._partition().leader]
        began = time.monotonic()
        fault(leader)
        try:
            took = pulse.first_acknowledged_after(began) - began
        finally:
            remedy(leader)
            pulse.stop()
        wait_for(self._whole, "every replica to be in sync again", GIVE_UP_S)
        self._admin.elect_leaders(ElectionType.PREFERRED).result(30)
        return took * 1000

    def _partition(self) -> ck.admin.PartitionMetadata:
        return self._admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]

    def _whole(self) -> bool:
        try:
            partition = self._partition()
        except (ck.KafkaException, KeyError):
            return False
        return len(partition.isrs) == len(self._cluster.brokers) and partition.leader in partition.isrs
