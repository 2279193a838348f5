"""Runs a cluster on this machine as child processes, one etcd and some brokers, for development, the demo and tests.

Its directory has all that a second start needs to run the same cluster:

    cluster.json      ports of everything, and the bucket
    etcd/             metadata
    broker-1/ …       each broker's data; broker-1.out is what it wrote to standard error
    bucket/           the archive, unless another bucket was named
    secure/           if it is closed: certificates, and the admin's password (`tierlog.secured`)

- Brokers are numbered from 1, and each has its own rack. A later start may add brokers.
- At the first start, ports are the usual ones if they are free. Later starts use the same ports.
- etcd starts first and stops last, because a broker that stops hands its partitions over through it.
- All processes end with the thread that started them, even when it is killed (on Linux).
"""

import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from cold_tier.objects.open import StoreSettings
from hot_tier.clock import steady_s
from hot_tier.errors import SettingsError, TierlogError
from tierlog.certificates import Wanted, this_machine
from tierlog.process import ServeFailed, ServeProcess, end_with_parent
from tierlog.secured import Secured, is_secured, refuse_open
from tierlog.settings import Given, load_settings

ETCD: Final = "etcd"
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
    """The content of `cluster.json`."""

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
        secure: bool = False,
        flags: Sequence[str] = (),
        usual_ports: bool = True,
    ) -> None:
        """If `brokers` is None, there are as many as last time. `flags` go to every `tierlog serve`. What was closed
        once by `secure` stays closed."""
        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.plan = _plan(self.directory, brokers, bucket, usual_ports)
        self.closed = Secured(self.directory) if secure or is_secured(self.directory) else None
        if self.closed is not None:
            names = [ETCD, *(_name(node) for node in range(1, len(self.plan.brokers) + 1))]
            self.closed.prepare(Wanted(name, this_machine()) for name in names)
        self.etcd = EtcdProcess(self.directory, self.plan, self.closed)
        self.brokers = {
            node: self._broker(node, ports, flags)
            for node, ports in enumerate(self.plan.brokers[: brokers or len(self.plan.brokers)], 1)
        }

    def _broker(self, node: int, ports: BrokerPorts, flags: Sequence[str]) -> ServeProcess:
        given = ["--node-id", str(node), "--rack", rack(node)]
        given += ["--metadata", self.plan.metadata] if self.closed is None else self._closed(self.closed, _name(node))
        broker = ServeProcess(self.directory / _name(node), [*given, "--bucket", self.plan.bucket, *flags], held=True)
        broker.scheme = "http" if self.closed is None else "https"
        broker.kafka, broker.http = f"{LOOPBACK}:{ports.kafka}", f"{LOOPBACK}:{ports.http}"
        return broker

    def _closed(self, closed: Secured, name: str) -> list[str]:
        peers = [_name(node) for node in range(1, len(self.plan.brokers) + 1)]
        certificate, key = closed.files(name)
        etcd = {"etcd.ca": str(closed.ca), "etcd.cert": str(certificate), "etcd.key": str(key)}
        given = {**closed.settings(name, peers), **etcd, "cluster.metadata": self.plan.metadata}
        flags = [Given(setting, value, f"--{setting}") for setting, value in given.items()]
        config = os.environ.get("TIERLOG_CONFIG")
        refuse_open(load_settings(config=config, environment=os.environ, flags=flags), closed.folder)
        return [f"--{setting}={value}" for setting, value in given.items()]

    def start(self) -> Self:
        """Starts everything. If that fails or is interrupted, kills everything."""
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
        """Stops one broker after the other, so that each can hand its partitions to another."""
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
        """Returns the addresses for a Kafka client's `bootstrap.servers`."""
        return ",".join(broker.kafka for broker in self.brokers.values())

    @property
    def url(self) -> str:
        """Returns the HTTP address of any running broker."""
        return next(broker.url for broker in self.brokers.values() if broker.process is not None)


def _name(node: int) -> str:
    return f"broker-{node}"


def rack(node: int) -> str:
    return f"rack-{node}"


class EtcdProcess:
    """Time-outs are those of one machine: a new leader within half a second, leases as short as a second."""

    def __init__(self, directory: Path, plan: Plan, closed: Secured | None) -> None:
        """`closed`: it speaks TLS, and takes nobody without a certificate."""
        self.directory = directory / ETCD
        self.output_path = directory / "etcd.out"
        self.process: subprocess.Popen[bytes] | None = None
        self._port = plan.etcd_port
        self._closed = closed
        scheme = "http" if closed is None else "https"
        self._url = f"{scheme}://{LOOPBACK}:{plan.etcd_port}"
        self._peer_url = f"{scheme}://{LOOPBACK}:{plan.etcd_peer_port}"

    def start(self) -> None:
        binary = shutil.which("etcd")
        if binary is None:
            raise EtcdMissing(
                "there is no etcd on PATH; a cluster needs it for its metadata",
                hint="install it: `make etcd`, `apt install etcd-server` or `brew install etcd`",
            )
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, self._port)) == 0:
                raise ServeFailed(
                    "another process already listens there",
                    where=self._url,
                    hint="if this cluster is running, stop it; otherwise use another --data-dir",
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
            **self._tls_flags(),
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

    def _tls_flags(self) -> dict[str, str]:
        if self._closed is None:
            return {}
        certificate, key = self._closed.files(ETCD)
        files = {"cert-file": str(certificate), "key-file": str(key), "trusted-ca-file": str(self._closed.ca)}
        files["client-cert-auth"] = "true"
        peers = {f"peer-{flag}": value for flag, value in files.items()}
        return {**files, **peers}

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
        deadline = steady_s() + ETCD_START_S
        context = None
        if self._closed is not None:
            context = ssl.create_default_context(cafile=str(self._closed.ca))
            context.load_cert_chain(*self._closed.files(ETCD))
        while steady_s() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=1, context=context) as answer:
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


# The description for a second start


def _plan(directory: Path, brokers: int | None, bucket: str | None, usual_ports: bool) -> Plan:
    path = directory / PLAN_FILE
    ports = _Ports(usual_ports)
    plan = _read_plan(path) if path.exists() else None
    if plan is None:
        StoreSettings(bucket=bucket or "")  # Checks the bucket before it is written to the description.
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
    """Gives out each port once: the wanted one if nobody listens there, otherwise any free one.

    The latter is below the ports that outgoing connections use, so that it is still free when the cluster starts again.
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
