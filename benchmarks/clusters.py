"""Clusters as processes: three brokers, and the processes that keep their metadata.

tierlog uses etcd for that, Apache Kafka a separate controller. So in both, a killed broker takes nothing else down. A
`Place` says where a process runs: its address, and what is put before the command to get there.
"""

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.peer.kafka import KafkaServer, new_cluster_id
from benchmarks.process import BrokerProcess, free_port
from benchmarks.service import TierlogServer

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    host: str = LOOPBACK
    wrapper: tuple[str, ...] = ()


class EtcdServer(BrokerProcess):
    """One member. Time-outs are short, as for one machine or one room; writes are synced."""

    def __init__(self, directory: Path, name: str, host: str, members: Mapping[str, str]) -> None:
        super().__init__(directory)
        self.name, self.host = name, host
        self.port = free_port()
        self._members = members

    def command(self) -> Sequence[str]:
        client, peer = f"http://{self.host}:{self.port}", self._members[self.name]
        return [
            *("etcd", "--name", self.name, "--data-dir", str(self.directory / self.name), "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(f"{name}={url}" for name, url in self._members.items())),
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
        ]

    def serving(self) -> bool:
        return _accepts(self.host, self.port)


class KafkaController(KafkaServer):
    def serving(self) -> bool:
        return _accepts(self.host, self.port)


class Cluster:
    """`brokers` are by node id; `keepers` hold the metadata. Can stand for one broker in sums and addresses."""

    name: str

    def __init__(self, directory: Path, brokers: Mapping[int, BrokerProcess], keepers: Sequence[BrokerProcess]) -> None:
        self.directory, self.brokers, self.keepers = directory, dict(brokers), list(keepers)

    def start(self) -> Self:
        for some in (self.keepers, list(self.brokers.values())):
            with ThreadPoolExecutor(len(some)) as pool:
                list(pool.map(BrokerProcess.start, some))
        return self

    def stop(self) -> None:
        """Stops the brokers cleanly. The keepers go on."""
        for broker in self.brokers.values():
            broker.stop()

    def kill(self) -> None:
        for process in (*self.brokers.values(), *self.keepers):
            if process.running:
                process.resume()
            process.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def cpu_seconds(self) -> float:
        return sum(process.cpu_seconds() for process in (*self.brokers.values(), *self.keepers))

    def rss_bytes(self) -> int:
        return sum(process.rss_bytes() for process in (*self.brokers.values(), *self.keepers))


class TierlogCluster(Cluster):
    """Nodes 1, 2, …, each in its own rack. The bucket is a directory that all of them see."""

    name = "tierlog"

    def __init__(
        self,
        directory: Path,
        places: Sequence[Place] = (Place(),) * 3,
        *,
        keeper_host: str = LOOPBACK,
        keepers: int = 1,
        data_dirs: Mapping[int, Path] | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        """`settings` are written as `section.key=value`."""
        members = {f"etcd-{n}": f"http://{keeper_host}:{free_port()}" for n in range(keepers)}
        etcd = [EtcdServer(directory, name, keeper_host, members) for name in members]
        metadata = f"etcd://{','.join(member.bootstrap for member in etcd)}"
        brokers: dict[int, BrokerProcess] = {}
        for node, place in enumerate(places, 1):
            home = _home(directory, node)
            arguments = ["--node-id", str(node), "--rack", f"rack-{node}", "--metadata", metadata]
            arguments += ["--bucket", f"file://{directory}/bucket"]
            arguments += [part for setting in settings for part in ("--set", setting)]
            brokers[node] = TierlogServer(home, data_dir=(data_dirs or {}).get(node), arguments=arguments)
            brokers[node].host, brokers[node].wrapper = place.host, place.wrapper
        super().__init__(directory, brokers, etcd)


class KafkaCluster(Cluster):
    """One controller without a broker, and three brokers without a controller. The settings are Kafka's defaults."""

    name = "kafka"

    def __init__(
        self,
        directory: Path,
        places: Sequence[Place] = (Place(),) * 3,
        *,
        keeper_host: str = LOOPBACK,
        settings: Mapping[str, str] | None = None,
        heap: str = "1G",
    ) -> None:
        cluster_id, port = new_cluster_id(), free_port()
        shared = {
            "controller.quorum.voters": f"100@{keeper_host}:{port}",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            **(settings or {}),
        }
        roles = {"process.roles": "controller", "node.id": "100", "listeners": f"CONTROLLER://{keeper_host}:{port}"}
        controller = KafkaController(_home(directory, 100), shared | roles, "512M", cluster_id)
        controller.host, controller.port = keeper_host, port
        brokers: dict[int, BrokerProcess] = {}
        for node, place in enumerate(places, 1):
            port = free_port()
            listeners = {"listeners": f"PLAINTEXT://{place.host}:{port}", "broker.rack": f"rack-{node}"}
            roles = {"process.roles": "broker", "node.id": str(node), **listeners}
            brokers[node] = KafkaServer(_home(directory, node), shared | roles, heap, cluster_id)
            brokers[node].host, brokers[node].port, brokers[node].wrapper = place.host, port, place.wrapper
        super().__init__(directory, brokers, [controller])


def _home(directory: Path, node: int) -> Path:
    home = directory / f"node-{node}"
    home.mkdir(parents=True)
    return home


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
