"""The measured jobs. Each runs against one broker and returns its figures by name.

Both brokers get the same topics, except for the name of the flush policy, and the same client with the same settings.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.client import load
from benchmarks.clusters import Cluster
from benchmarks.peer.tools import run_tool
from benchmarks.process import BrokerProcess, wait_for

PARTITIONS = 4
Flush = Literal["os", "commit", "default"]
Figures = dict[str, float]

# The settings of each broker for the policies. By default tierlog syncs before the ack; Kafka relies on the page cache.
FLUSH: Mapping[str, Mapping[Flush, dict[str, str]]] = {
    "tierlog": {"os": {"flush": "os"}, "commit": {"flush": "commit"}, "default": {}},
    "kafka": {"os": {}, "commit": {"flush.messages": "1"}, "default": {}},
}
GROUPS: Mapping[Flush, str] = {
    "os": "produce",
    "commit": "produce, synced",
    "default": "produce, tierlog synced and Kafka not",
}
QUEUES = {"queue.buffering.max.kbytes": "131072", "queue.buffering.max.messages": "1000000"}


@dataclass(frozen=True, slots=True)
class Produce:
    record_bytes: int
    acks: Literal["1", "all"]
    codec: Literal["none", "lz4"]
    batch_bytes: int
    flush: Flush = "os"

    def client_settings(self) -> dict[str, str]:
        return {
            "acks": self.acks,
            "compression.type": self.codec,
            "batch.size": str(self.batch_bytes),
            "batch.num.messages": "1000000",
            "linger.ms": "5",
            **QUEUES,
        }


class Target:
    """A running broker or cluster. Topics are made for a job and deleted after it.

    Its load may come in at another listener than the one that topics are made at, with the settings `client`."""

    def __init__(
        self,
        broker: BrokerProcess | Cluster,
        records: Mapping[int, Path],
        bootstrap: str = "",
        client: Mapping[str, str] | None = None,
    ) -> None:
        self.broker = broker
        self._records = records
        self._bootstrap = bootstrap or broker.bootstrap
        self._client = client or {}
        self._replicas = len(broker.brokers) if isinstance(broker, Cluster) else 1
        self.partitions = PARTITIONS if self._replicas == 1 else 2 * self._replicas
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": "0"})
        self._made = 0

    @property
    def name(self) -> str:
        return self.broker.name

    def make_topic(self, flush: Flush) -> str:
        self._made += 1
        name = f"load{self._made:04d}"
        config = {"retention.ms": "-1", **FLUSH[self.name][flush]}
        if self._replicas > 1:
            config["min.insync.replicas"] = "2"
        self._admin.create_topics([NewTopic(name, self.partitions, self._replicas, config=config)])[name].result(30)
        wait_for(lambda: self._is_ready(name), f"topic {name}", 30)
        return name

    def _is_ready(self, name: str) -> bool:
        topic = self._admin.list_topics(timeout=10).topics.get(name)
        partitions = topic.partitions.values() if topic else ()
        return bool(partitions) and all(len(p.isrs) == self._replicas and p.leader in p.isrs for p in partitions)

    def remove_topic(self, name: str) -> None:
        """Deletes the topic, also from the disk: what one job wrote must not be written back during the next."""
        self._admin.delete_topics([name])[name].result(30)
        home = self.broker.directory
        wait_for(
            lambda: not any(name in part for _, directories, _ in os.walk(home) for part in directories),
            f"{name} to be deleted",
            60,
            interval_s=0.1,
        )
        os.sync()

    def produce(self, topic: str, job: Produce, *, seconds: float = 0, count: int = 0) -> load.Throughput:
        return load.produce(
            self._bootstrap,
            topic,
            self.partitions,
            self._records[job.record_bytes],
            job.record_bytes,
            {**job.client_settings(), **self._client},
            seconds=seconds,
            count=count,
        )

    # Jobs

    def measure_produce(self, job: Produce, seconds: float) -> Figures:
        topic = self.make_topic(job.flush)
        cpu = self.broker.cpu_seconds()
        done = self.produce(topic, job, seconds=seconds)
        cpu = self.broker.cpu_seconds() - cpu
        self.remove_topic(topic)
        return throughput_figures(done, cpu)

    def measure_consume(self, topic: str, count: int) -> Figures:
        cpu = self.broker.cpu_seconds()
        done = load.consume(self._bootstrap, topic, self.partitions, count, self._client)
        return throughput_figures(done, self.broker.cpu_seconds() - cpu)

    def measure_latency(self, flush: Flush, rate: int, seconds: float) -> Figures:
        settings = {"producer:acks": "all", "producer:linger.ms": "0"}
        topic = self.make_topic(flush)
        load.latency(self.broker.bootstrap, topic, self.partitions, 1000, rate, 1, settings)
        done = load.latency(self.broker.bootstrap, topic, self.partitions, 1000, rate, seconds, settings)
        self.remove_topic(topic)
        return {"p50 ms": done.p50_ms, "p99 ms": done.p99_ms, "p99.9 ms": done.p999_ms}

    def measure_java_produce(self, job: Produce, count: int) -> Figures:
        """Measures with Kafka's own kafka-producer-perf-test, that is, the Java client instead of librdkafka."""
        topic = self.make_topic(job.flush)
        properties = {
            "acks": job.acks,
            "compression.type": job.codec,
            "batch.size": str(job.batch_bytes),
            "linger.ms": "5",
            "buffer.memory": str(128 << 20),
        }
        result = run_tool(
            "kafka-producer-perf-test",
            *("--bootstrap-server", self.broker.bootstrap, "--topic", topic, "--throughput", "-1"),
            *("--num-records", str(count), "--record-size", str(job.record_bytes)),
            *("--command-property", *(f"{key}={value}" for key, value in properties.items())),
            timeout_s=120,
            long_run=True,
        )
        found = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", result.out)
        if not found:
            raise load.LoadFailed(f"kafka-producer-perf-test: {result.out}\n{result.err}")
        self.remove_topic(topic)
        per_s = float(found[-1][1])
        return {"MB/s": per_s * job.record_bytes / 1e6, "records/s": per_s}

    def warm_up(self, seconds: float) -> None:
        """Lets a JIT compile what will be measured."""
        for record_bytes in self._records:
            for codec in ("none", "lz4"):
                topic = self.make_topic("os")
                job = Produce(record_bytes, "all", codec, 64 << 10)
                done = self.produce(topic, job, seconds=seconds)
                self.measure_consume(topic, done.records)
                self.remove_topic(topic)


def throughput_figures(done: load.Throughput, broker_cpu_seconds: float) -> Figures:
    return {
        "MB/s": done.mb_per_s,
        "records/s": done.records_per_s,
        "broker CPU s/GB": broker_cpu_seconds / (done.bytes / 1e9),
        "client cores": done.client_cpu_seconds / done.seconds,
    }


def measure_start(broker: BrokerProcess) -> Figures:
    """Stops the broker and starts it again on its data."""
    broker.stop()
    time.sleep(0.2)
    broker.start()
    return {"start s": broker.start_seconds}
