"""Measures how long a topic takes no records after a fault of one broker, as a client sees it.

A producer sends a small record to every partition every few milliseconds. A failover lasts from the fault until each
partition has acknowledged a record that was sent after the fault. Records in flight before do not count; the time in
which the client looks for new leaders does. Each broker leads a partition, as is usual for a producer's topic: a client
that is connected only to the lost broker looks for another only after a second connection to it has timed out too.
"""

import math
import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import Cluster
from benchmarks.process import wait_for

TOPIC = "failover"
EVERY_S = 0.005
GIVE_UP_S = 60.0
CLIENT = {"acks": "all", "linger.ms": 0, "socket.timeout.ms": 1000, "request.timeout.ms": 1000, "log_level": 0}
"""The client waits a second for an answer. By default it would wait a minute for a leader that is stopped."""


class Pulse(threading.Thread):
    """Sends until it is told to stop. Notes when each partition first takes a record that was sent after `watch`."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(name="pulse", daemon=True)
        self._partitions = partitions
        self._producer = ck.Producer({"bootstrap.servers": bootstrap, **CLIENT})
        self._stopping = threading.Event()
        self._since = 0.0
        self._taken_at: dict[int, float] = {}

    def run(self) -> None:
        while not self._stopping.is_set():
            sent_at = time.monotonic()

            def report(error: ck.KafkaError | None, message: ck.Message, sent_at: float = sent_at) -> None:
                partition = message.partition()
                if error is None and sent_at > self._since and partition is not None:
                    self._taken_at.setdefault(partition, time.monotonic())

            for partition in range(self._partitions):
                self._producer.produce(TOPIC, b"beat", partition=partition, on_delivery=report)
            self._producer.poll(EVERY_S)
        self._producer.flush(5)

    def stop(self) -> None:
        self._stopping.set()
        self.join(10)

    def watch(self) -> None:
        self._since = time.monotonic()
        self._taken_at = {}

    def all_taken_at(self) -> float:
        wait_for(
            lambda: len(self._taken_at) == self._partitions,
            "all partitions to take records",
            GIVE_UP_S,
            interval_s=0.005,
        )
        return max(self._taken_at.values())


class Failovers:
    """Measures failovers, each with a new client, because an old client remembers which brokers were down before."""

    def __init__(self, cluster: Cluster) -> None:
        self._brokers, self._bootstrap = cluster.brokers, cluster.bootstrap
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        count, config = len(self._brokers), {"min.insync.replicas": "2"}
        self._admin.create_topics([NewTopic(TOPIC, count, count, config=config)])[TOPIC].result(30)

    def kill_leader(self) -> float:
        return self.measure(lambda node: self._brokers[node].kill(), lambda node: self._brokers[node].start())

    def pause_leader(self) -> float:
        return self.measure(lambda node: self._brokers[node].pause(), lambda node: self._brokers[node].resume())

    def measure(self, fault: Callable[[int], object], remedy: Callable[[int], object]) -> float:
        """Returns the milliseconds from a fault of the broker that leads the first partition, in a cluster whose
        replicas are all in sync. Returns infinity if records are not taken before it gives up."""
        wait_for(self._whole, "every replica to be in sync", GIVE_UP_S)
        self._admin.elect_leaders(ElectionType.PREFERRED).result(30)
        pulse = Pulse(self._bootstrap, len(self._brokers))
        pulse.start()
        try:
            pulse.watch()
            pulse.all_taken_at()
            leader = self._partitions()[0].leader
            began = time.monotonic()
            fault(leader)
            try:
                pulse.watch()
                return (pulse.all_taken_at() - began) * 1000
            except TimeoutError:
                return math.inf
            finally:
                remedy(leader)
        finally:
            pulse.stop()

    def _partitions(self) -> dict[int, ck.admin.PartitionMetadata]:
        return self._admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions

    def _whole(self) -> bool:
        try:
            partitions = self._partitions().values()
        except (ck.KafkaException, KeyError):
            return False
        return bool(partitions) and all(
            len(each.isrs) == len(self._brokers) and each.leader in each.isrs for each in partitions
        )
