"""A cluster on this machine as child processes: one etcd and some brokers, for development, the demo and tests.

What a second start needs to be the same cluster is in its directory:

    cluster.json      ports of everything, and the bucket
    etcd/             metadata
    broker-1/ …       each broker's data; broker-1.out is what it wrote to standard error
    bucket/           the archive, unless another was named

- Brokers are numbered from 1 and stand on racks of their own. A later start may add some.
- Ports are the usual ones where they are free at the first start, and stay what they were then.
- etcd starts first and stops last: a broker that stops hands its partitions over through it.
- All of them end with the thread that started them, also when it is killed (on Linux).
"""

import json
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from cold_tier.objects.open import StoreSettings
from hot_tier.errors import SettingsError, TierlogError
from tierlog.process import ServeFailed, ServeProcess, end_with_parent

PLAN_FILE: Final = "cluster.json"
LOOPBACK: Final = "127.0.0.1"
KAFKA_PORT: Final = 9092
HTTP_PORT: Final = 8080
ETCD_PORT: Final = 2379
USUAL_BROKERS: Final = 3
ETCD_START_S: Final = 30.0
ETCD_STOP_S: Final = 10.0


class EtcdMissing(TierlogError):
    """There is no etcd on PATH."""


@dataclass(slots=True)
class BrokerPorts:
    kafka: int
    http: int


@dataclass(slots=True)
class Plan:
    """What `cluster.json` holds."""

    etcd_port: int
    etcd_peer_port: int
    bucket: str
    brokers: list[BrokerPorts] = field(default_factory=list)

    @property
    def metadata(self) -> str:
        return f"etcd://{LOOPBACK}:{self.etcd_port}"


class LocalCluster:
    def __init__(
        self,
        directory: Path,
        brokers: int | None = None,
        bucket: str | None = None,
        *,
        flags: Sequence[str] = (),
        usual_ports: bool = True,
    ) -> None:
        """`brokers` is as many as last time when None, `flags` go to every `tierlog serve`."""
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.plan = _plan(self.directory, brokers, bucket, usual_ports)
        self.etcd = EtcdProcess(self.directory, self.plan)
        self.brokers = {
            node: self._broker(node, ports, flags)
            for node, ports in enumerate(self.plan.brokers[: brokers or len(self.plan.brokers)], 1)
        }

    def _broker(self, node: int, ports: BrokerPorts, flags: Sequence[str]) -> ServeProcess:
        given = ["--node-id", str(node), "--rack", rack(node), "--metadata", self.plan.metadata]
        broker = ServeProcess(
            self.directory / f"broker-{node}", [*given, "--bucket", self.plan.bucket, *flags], held=True
        )
        broker.kafka, broker.http = f"{LOOPBACK}:{ports.kafka}", f"{LOOPBACK}:{ports.http}"
        return broker

    def start(self) -> Self:
        """All or nothing, also when it is interrupted."""
        try:
            self.etcd.start()
            for broker in self.brokers.values():
                broker.launch()
            for broker in self.brokers.values():
                broker.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """One broker after the other, so that each finds somebody to hand its partitions to."""
        failures = []
        for broker in self.brokers.values():
            try:
                if broker.process is not None and broker.process.poll() is None:
                    broker.stop()
            except ServeFailed as error:
                failures.append(error)
        self.etcd.stop()
        self.kill()
        if failures:
            raise failures[0]

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self.etcd.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    @property
    def kafka(self) -> str:
        """As a Kafka client's `bootstrap.servers`."""
        return ",".join(broker.kafka for broker in self.brokers.values())

    @property
    def url(self) -> str:
        """Over HTTP any broker will do, as long as it runs."""
        return next(broker.url for broker in self.brokers.values() if broker.process is not None)


def rack(node: int) -> str:
    return f"rack-{node}"


class EtcdProcess:
    """Time-outs are those of one machine: a new leader within half a second, leases to the second."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory = directory / "etcd"
        self.output_path = directory / "etcd.out"
        self.process: subprocess.Popen[bytes] | None = None
        self._port = plan.etcd_port
        self._url = f"http://{LOOPBACK}:{plan.etcd_port}"
        self._peer_url = f"http://{LOOPBACK}:{plan.etcd_peer_port}"

    def start(self) -> None:
        binary = shutil.which("etcd")
        if binary is None:
            raise EtcdMissing(
                "there is no etcd on PATH, which keeps a cluster's metadata",
                hint="install it: `make etcd`, `apt install etcd-server` or `brew install etcd`",
            )
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, self._port)) == 0:
                raise ServeFailed(
                    "something listens there already",
                    where=self._url,
                    hint="is this cluster running? Stop it, or use another --data-dir",
                )
        flags = {
            "name": "tierlog",
            "data-dir": str(self.directory),
            "listen-client-urls": self._url,
            "advertise-client-urls": self._url,
            "listen-peer-urls": self._peer_url,
            "initial-advertise-peer-urls": self._peer_url,
            "initial-cluster": f"tierlog={self._peer_url}",
            "heartbeat-interval": "50",
            "election-timeout": "500",
            "auto-compaction-retention": "1h",
        }
        with self.output_path.open("ab") as output:
            self.process = subprocess.Popen(
                [binary, *(f"--{name}={value}" for name, value in flags.items())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
                preexec_fn=end_with_parent,
            )
        self._wait_until_it_answers()

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(ETCD_STOP_S)
            except subprocess.TimeoutExpired:
                pass
            self.kill()

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + ETCD_START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=1) as answer:
                    if json.load(answer).get("health") == "true" and self.process.poll() is None:
                        return
            except (OSError, ValueError):
                pass
            time.sleep(0.02)
        output = "\n".join(self.output_path.read_text(errors="replace").splitlines()[-10:])
        self.kill()
        raise ServeFailed(
            f"etcd did not start\n{output}", where=self._url, hint=f"all of its output: {self.output_path}"
        )


# What a second start needs to know


def _plan(directory: Path, brokers: int | None, bucket: str | None, usual_ports: bool) -> Plan:
    path = directory / PLAN_FILE
    ports = _Ports(usual_ports)
    plan = _read_plan(path) if path.exists() else None
    if plan is None:
        StoreSettings(bucket=bucket or "")  # Before it is written down.
        etcd, peer = ports.take(ETCD_PORT), ports.take(ETCD_PORT + 1)
        plan = Plan(etcd, peer, bucket or f"file://{quote(str(directory / 'bucket'))}")
    elif bucket is not None and bucket != plan.bucket:
        raise SettingsError(
            f"this cluster archives to {plan.bucket}", where="--bucket", hint="leave it out, or use another --data-dir"
        )
    for index in range(len(plan.brokers), brokers or len(plan.brokers) or USUAL_BROKERS):
        plan.brokers.append(BrokerPorts(ports.take(KAFKA_PORT + index), ports.take(HTTP_PORT + index)))
    path.write_text(json.dumps(asdict(plan), indent=2) + "\n")
    return plan


def _read_plan(path: Path) -> Plan:
    try:
        document = json.loads(path.read_text())
        brokers = [BrokerPorts(int(each["kafka"]), int(each["http"])) for each in document["brokers"]]
        return Plan(int(document["etcd_port"]), int(document["etcd_peer_port"]), str(document["bucket"]), brokers)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"is not a cluster's description: {error!r}", where=str(path), hint="use another --data-dir"
        ) from None


class _Ports:
    """Hands out each port once: the one that is asked for if nobody listens there, else any.

    Any is one below those that outgoing connections use, so that it is still free when the cluster starts again.
    """

    def __init__(self, usual: bool) -> None:
        self._usual = usual
        self._taken: set[int] = set()

    def take(self, wanted: int) -> int:
        port = wanted if self._usual else _any_port()
        while port in self._taken or not _is_free(port):
            port = _any_port()
        self._taken.add(port)
        return port


def _any_port() -> int:
    return random.randrange(10_000, 32_000)


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
