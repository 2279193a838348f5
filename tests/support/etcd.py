"""Real etcd servers on free loopback ports: one, or a cluster whose members can be killed, paused and started again.

`with etcd() as url:` is for whoever only needs metadata; `with etcd_cluster(3) as cluster:` for whoever breaks it.
Members sync every write, as in production, and elect within half a second.
"""

import json
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.s3 import free_ports

START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Tls:
    """Files of a certificate authority, of the servers' certificate, and of a client's."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client_cert, self.client_key)
        return context


@dataclass
class Member:
    name: str
    directory: Path
    port: int
    command: Sequence[str]
    tls: Tls | None
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self.address}"

    def start(self) -> None:
        assert self.process is None, "it runs already"
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL; also ends a paused one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def call(self, path: str, body: object, token: str = "") -> dict[str, object]:
        """One request of the JSON gateway, for what the store under test does not do: compaction, users, status."""
        headers = {"Content-Type": "application/json", **({"Authorization": token} if token else {})}
        request = urllib.request.Request(self.endpoint + path, json.dumps(body).encode(), headers)
        context = None if self.tls is None else self.tls.context()
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            document = json.load(answer)
        assert isinstance(document, dict)
        return document

    def wait_until_ready(self) -> None:
        """It takes part in the cluster and the cluster has a leader: a linearizable read is answered."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
            try:
                self.call("/v3/kv/range", {"key": "AA=="})
                return
            except urllib.error.HTTPError as error:
                if b"user name is empty" in error.read():
                    return
                time.sleep(0.05)
            except OSError:
                time.sleep(0.05)
        log = (self.directory / f"{self.name}.log").read_text(errors="replace")
        raise RuntimeError(f"etcd {self.name} did not start:\n{log[-3000:]}")


@dataclass
class EtcdCluster:
    members: list[Member]

    @property
    def url(self) -> str:
        """As `cluster.metadata` takes it."""
        return "etcd://" + ",".join(member.address for member in self.members)

    @property
    def leader(self) -> Member:
        """As a majority sees it; waits while there is none."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            leaders: list[str] = []
            by_id: dict[str, Member] = {}
            for member in self.members:
                if member.process is None:
                    continue
                try:
                    status = member.call("/v3/maintenance/status", {})
                except OSError:
                    continue
                leaders.append(str(status.get("leader", "")))
                header = status["header"]
                assert isinstance(header, dict)
                by_id[str(header["member_id"])] = member
            for name, member in by_id.items():
                if leaders.count(name) * 2 > len(self.members):
                    return member
            time.sleep(0.02)
        raise RuntimeError("the etcd cluster has no leader")

    def compact(self, revision: int) -> None:
        self.leader.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})


def etcd_binary() -> str:
    """Skips the test where etcd is not installed."""
    binary = shutil.which("etcd")
    if binary is None:
        pytest.skip("etcd is not installed: make test-tools, or apt install etcd-server")
    return binary


@contextmanager
def etcd(tls: Tls | None = None) -> Iterator[str]:
    """One etcd; its URL as `cluster.metadata` takes it."""
    with etcd_cluster(1, tls) as cluster:
        yield cluster.url


@contextmanager
def etcd_cluster(size: int = 3, tls: Tls | None = None) -> Iterator[EtcdCluster]:
    binary = etcd_binary()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tierlog-etcd-")))
        ports = free_ports(2 * size)
        peers = {f"m{n}": f"http://127.0.0.1:{ports[size + n]}" for n in range(size)}
        scheme = "http" if tls is None else "https"
        members = []
        for n, (name, peer) in enumerate(peers.items()):
            client = f"{scheme}://127.0.0.1:{ports[n]}"
            flags = {
                "name": name,
                "data-dir": str(directory / name),
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": ",".join(f"{each}={url}" for each, url in peers.items()),
                "initial-cluster-token": directory.name,
                "heartbeat-interval": "50",
                "election-timeout": "500",
            }
            if tls is not None:
                flags |= {"cert-file": str(tls.cert), "key-file": str(tls.key), "trusted-ca-file": str(tls.ca)}
            command = [binary, *(f"--{flag}={value}" for flag, value in flags.items())]
            command += ["--client-cert-auth"] if tls is not None else []
            members.append(Member(name, directory, ports[n], command, tls))
        for member in members:
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait_until_ready()
        yield EtcdCluster(members)
