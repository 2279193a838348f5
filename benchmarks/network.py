"""A network namespace per broker, all on one bridge, each with a packet filter that can cut off any other host.

Clients and etcd are on the bridge itself, each with its own address, so that a broker can lose one and keep the other.
Needs root, iproute2 and nft.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from benchmarks.clusters import Place

FILTER = """
table inet chaos {
  set to { type ipv4_addr; }
  set from { type ipv4_addr; }
  chain out { type filter hook output priority 0; ip daddr @to drop; }
  chain in { type filter hook input priority 0; ip saddr @from drop; }
}
"""


def why_not() -> str | None:
    """Returns the reason why this machine cannot have namespaces with filters, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "nft", "nsenter") if shutil.which(program) is None]
    if missing:
        return f"no {', '.join(missing)} (apt install iproute2 nftables util-linux)"
    try:
        with namespaces(1):
            return None
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()[-200:]}"


class Namespaces:
    def __init__(self, count: int) -> None:
        self._name = f"tl{os.getpid()}"
        subnet = f"10.{random.SystemRandom().randrange(64, 250)}.{random.SystemRandom().randrange(1, 250)}"
        self._subnet = subnet
        self.client_host, self.keeper_host = f"{subnet}.1", f"{subnet}.2"
        self.hosts = {node: f"{subnet}.{10 + node}" for node in range(1, count + 1)}

    def open(self) -> None:
        _run("ip", "link", "add", self._name, "type", "bridge")
        # Clients on this machine use the first address.
        for host in (self.client_host, self.keeper_host):
            _run("ip", "addr", "add", f"{host}/24", "dev", self._name)
        _run("ip", "link", "set", self._name, "up")
        for node, host in self.hosts.items():
            space = self._space(node)
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", space, "master", self._name, "up")
            _run("ip", "-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run("ip", "-n", space, "link", "set", device, "up")
            _run(*self._inside(node), "nft", "-f", "-", stdin=FILTER)

    def close(self) -> None:
        for node in self.hosts:
            self._remove("link", self._space(node))
            self._remove("netns", self._space(node))
        self._remove("link", self._name)

    @staticmethod
    def _remove(kind: str, name: str) -> None:
        with suppress(subprocess.CalledProcessError):
            _run("ip", kind, "del", name)

    @property
    def places(self) -> list[Place]:
        return [Place(host, self._inside(node)) for node, host in self.hosts.items()]

    def cut(self, node: int, hosts: Sequence[str], *, to: bool = True, from_: bool = True) -> None:
        for name, wanted in (("to", to), ("from", from_)):
            if wanted:
                _run(*self._inside(node), "nft", "add", "element", "inet", "chaos", name, f"{{ {', '.join(hosts)} }}")

    def heal(self, node: int) -> None:
        for name in ("to", "from"):
            _run(*self._inside(node), "nft", "flush", "set", "inet", "chaos", name)

    def _space(self, node: int) -> str:
        return f"{self._name}n{node}"

    def _inside(self, node: int) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self._space(node)}")


@contextmanager
def namespaces(count: int) -> Iterator[Namespaces]:
    made = Namespaces(count)
    try:
        made.open()
        yield made
    finally:
        made.close()


def _run(*command: str, stdin: str = "") -> None:
    subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=30)
