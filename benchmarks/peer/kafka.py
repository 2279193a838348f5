"""Apache Kafka as one process: broker and controller in one, KRaft, loopback, its own directory.

JVM flags are those of Kafka's own start script, heap included. Settings are Kafka's defaults, except for two: one node
needs another replication of internal topics, and tests cannot wait for the delay before the first rebalance.
"""

import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from benchmarks.peer.jars import jars_dir, java
from benchmarks.process import BrokerFailed, BrokerProcess, free_port

JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def new_cluster_id() -> str:
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")


class KafkaServer(BrokerProcess):
    name = "kafka"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        heap: str = "1G",
        cluster_id: str = "",
    ) -> None:
        super().__init__(directory)
        self.heap = heap
        self._cluster_id = cluster_id or new_cluster_id()
        self.port = free_port()
        controller = free_port()
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller}",
            "log.dirs": str(directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            **(settings or {}),
        }

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    def command(self) -> Sequence[str]:
        properties = self.directory / "server.properties"
        if not properties.exists():
            properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
            self._format(properties)
        heap = (f"-Xmx{self.heap}", f"-Xms{self.heap}")
        return [java(), *heap, *JVM_FLAGS, "-cp", f"{jars_dir()}/*", "kafka.Kafka", str(properties)]

    def _format(self, properties: Path) -> None:
        arguments = [
            "format",
            f"--cluster-id={self._cluster_id}",
            "-c",
            str(properties),
        ]  # An id may begin with a dash.
        command = [java(), "-Xmx128M", "-cp", f"{jars_dir()}/*", "kafka.tools.StorageTool", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if result.returncode != 0:
            raise BrokerFailed(f"kafka storage format failed:\n{result.stdout}{result.stderr}")
