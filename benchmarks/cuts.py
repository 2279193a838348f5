"""`python -m benchmarks.cuts`: measures how long a topic takes no records when the network around a leader is cut.

Three brokers of tierlog, then three of Apache Kafka, each in its own network namespace (needs root, iproute2 and nft),
a producer with acks=all, three replicas, two of them required. Prints a table; `--write-docs` puts it into
docs/PERFORMANCE.md. Takes five minutes.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.clusters import Cluster, KafkaCluster, TierlogCluster
from benchmarks.failover import GIVE_UP_S, Failovers
from benchmarks.network import Namespaces, namespaces, why_not
from benchmarks.peer.jars import CACHE, PeerUnavailable, jars_dir, java
from benchmarks.process import BrokerFailed
from benchmarks.report import DOCS, replace_block
from benchmarks.results import describe_machine, describe_versions

BROKERS = 3
FIGURES = "<!-- figures: written by python -m benchmarks.cuts --write-docs -->"


class Cut(NamedTuple):
    what: str
    first: str
    """What has to happen in tierlog before records are taken again."""
    make: Callable[[Namespaces, int], None]


def _others(network: Namespaces, leader: int) -> list[str]:
    return [host for node, host in network.hosts.items() if node != leader]


CUTS = [
    Cut(
        "follower from its leader",
        "silent for 1.5 s, it leaves the in-sync set",
        lambda network, leader: network.cut(leader, _others(network, leader)[:1]),
    ),
    Cut(
        "leader from the other brokers",
        "it has heard of too few followers for 1.5 s, and hands over",
        lambda network, leader: network.cut(leader, _others(network, leader)),
    ),
    Cut(
        "leader from everybody",
        "its lease runs out",
        lambda network, leader: network.cut(
            leader, [*_others(network, leader), network.keeper_host, network.client_host]
        ),
    ),
    Cut(
        "leader from all but its clients",
        "likewise; it has sent its clients away by then",
        lambda network, leader: network.cut(leader, [*_others(network, leader), network.keeper_host]),
    ),
    Cut(
        "leader hears nobody but its clients, and is heard",
        "likewise, and one more renewal reaches etcd",
        lambda network, leader: network.cut(leader, [*_others(network, leader), network.keeper_host], to=False),
    ),
    Cut(
        "leader is heard by nobody but its clients, and hears",
        "its lease runs out",
        lambda network, leader: network.cut(leader, [*_others(network, leader), network.keeper_host], from_=False),
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuts", description=__doc__)
    parser.add_argument("--samples", type=int, default=5, help="cuts of each kind; of Kafka one")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/PERFORMANCE.md")
    choice = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    reason = why_not()
    if reason is not None:
        console.print(f"[bold red]Nothing can be cut here:[/] {reason}")
        return 1
    try:
        java()
        jars_dir()
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name, namespaces(BROKERS) as network:
            directory = Path(name)
            place = {"places": network.places, "keeper_host": network.keeper_host}
            machine, versions = describe_machine(directory), describe_versions()
            ours = measure(TierlogCluster(directory / "tierlog", **place), network, choice.samples, console)
            theirs = measure(KafkaCluster(directory / "kafka", **place), network, 1, console)
    except (PeerUnavailable, BrokerFailed, TimeoutError) as error:
        console.print(f"[bold red]The benchmark cannot go on:[/] {error}")
        return 1
    table = ["| cut | tierlog, s | Kafka, s | what has to happen first |", "|---|---|---|---|"]
    table += [f"| {cut.what} | {_shown(ours[cut.what])} | {_shown(theirs[cut.what])} | {cut.first} |" for cut in CUTS]
    facts = (
        f"{machine['cores']} cores of {machine['cpu']}; tierlog {versions['tierlog']}, {choice.samples} cuts each; "
        f"Apache Kafka {versions['kafka']}, one."
    )
    console.print("\n".join(table))
    if choice.write_docs:
        replace_block(DOCS, FIGURES, "\n".join([facts, "", *table]))
        console.print(f"figures in {DOCS}")
    return 0


def measure(cluster: Cluster, network: Namespaces, samples: int, console: Console) -> dict[str, list[float]]:
    """Returns the seconds without records, by kind of cut."""
    found: dict[str, list[float]] = {}
    try:
        cluster.start()
        failovers = Failovers(cluster)
        for cut in CUTS:
            console.print(f"[cyan]▸[/] {cut.what}, {cluster.name}")
            fault = partial(cut.make, network)
            found[cut.what] = [failovers.measure(fault, network.heal) / 1000 for _ in range(samples)]
    finally:
        cluster.kill()
    return found


def _shown(seconds: list[float]) -> str:
    low, high = (
        f"{each:.1f}" if each < GIVE_UP_S else f"not in {GIVE_UP_S:.0f}" for each in (min(seconds), max(seconds))
    )
    return low if low == high else f"{low} to {high}"


if __name__ == "__main__":
    sys.exit(main())
