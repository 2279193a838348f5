"""The demo of a cluster: kills a leader under load, then compares what was acknowledged with what is there."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from hot_tier.clock import steady_s, wall_ms
from tierlog.client import Client, path
from tierlog.cluster_process import LocalCluster, rack
from tierlog.cluster_status import cluster_status
from tierlog.demo.orders import DAY_MS, Order, orders
from tierlog.demo.report import Report
from tierlog.demo.traffic import Place, Traffic, choose_traffic, read_partition
from tierlog.secured import forget

TOPIC = "orders"
BROKERS = 3
PARTITIONS = 6
BEFORE = 20_000
LIVE = 16_000
LIVE_PER_SECOND = 2_000
KILL_AFTER = 4_000
CATCH_UP_S = 60.0
SETTINGS = {"min.insync.replicas": "2", "retention.ms": str(40 * DAY_MS)}
"""The retention is longer than the age of the oldest order."""

Watch = Callable[[int], None]
"""Called with the number of acks so far."""


def tell(directory: Path, report: Report, *, secure: bool) -> None:
    report.opening(
        "tierlog demo, three nodes",
        "Three brokers and etcd, each in its own process, and orders that are written while a broker is killed.\n"
        f"Everything is in {directory}.",
    )
    began = steady_s()
    cluster = LocalCluster(directory, BROKERS, secure=secure, usual_ports=False)
    with cluster:
        _announce(cluster)
        try:
            Story(cluster, report, steady_s() - began).tell()
        finally:
            forget(broker.http for broker in cluster.brokers.values())
    _compare_copies(cluster, report)


class Story:
    def __init__(self, cluster: LocalCluster, report: Report, start_seconds: float) -> None:
        self._cluster = cluster
        self._report = report
        self._start_seconds = start_seconds
        self._traffic: Traffic = choose_traffic(cluster, {} if cluster.closed is None else cluster.closed.librdkafka())
        self._now_ms = wall_ms()
        self._acknowledged: dict[Place, int] = {}
        """What the cluster acknowledged: by place, the number of the order."""
        self._times: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}
        """When each partition's acks came."""

    def tell(self) -> None:
        self._start()
        self._produce()
        victim = self._kill_a_leader()
        self._compare()
        self._bring_back(victim)

    def _start(self) -> None:
        self._report.act(
            "A cluster starts",
            f"One command: tierlog cluster up --brokers 3{' --secure' if self._cluster.closed else ''}",
        )
        self._report.say(f"etcd and {BROKERS} brokers, ready after {self._start_seconds:.1f} s")
        if self._cluster.closed is not None:
            self._report.say("TLS on every way in, logins by SCRAM, permissions and an audit")
            self._report.check("nobody comes in without a login", not _comes_in(self._cluster))
        self._report.figure("start_seconds", self._start_seconds)
        self._report.table(
            ("broker>", "rack", "Kafka", "HTTP"),
            [(node, rack(node), broker.kafka, broker.url) for node, broker in self._cluster.brokers.items()],
        )
        with Client(self._cluster.url) as client:
            wanted = {"name": TOPIC, "partitions": PARTITIONS, "replication_factor": BROKERS, "config": SETTINGS}
            client.post(path("topics"), wanted)

    def _produce(self) -> None:
        self._report.act(
            "Producers write to three disks",
            f"{BEFORE:,} orders through {self._traffic.name}; acked when all brokers in sync have it, at least two.",
        )
        seconds = self._send(orders(BEFORE, self._now_ms))
        self._report.say(f"{BEFORE:,} orders in {seconds:.2f} s: {BEFORE / seconds:,.0f} per second")
        self._report.figure("produce_per_second", BEFORE / seconds)
        self._show_partitions()
        self._report.check("every partition has three replicas in sync", self._becomes_whole())

    def _kill_a_leader(self) -> int:
        before = self._partitions()
        victim = int(before[0]["leader"])
        lost = [each["partition"] for each in before if each["leader"] == victim]
        self._report.act(
            "kill -9 of a leader, under load",
            f"{LIVE:,} more orders, {LIVE_PER_SECOND:,} per second; after {KILL_AFTER:,} acks broker {victim}, leader "
            f"of partitions {' and '.join(map(str, lost))}, is killed and stays dead.",
        )
        enough = len(self._acknowledged) + KILL_AFTER
        killed_at = 0.0

        def kill(done: int) -> None:
            nonlocal killed_at
            if done >= enough and not killed_at:
                killed_at = steady_s()
                self._cluster.brokers[victim].kill()

        seconds = self._send(_paced(orders(LIVE, self._now_ms, first=BEFORE)), kill)
        pause = max(_longest_gap(self._times[partition], killed_at) for partition in lost)
        self._report.say(f"the producer gave up on none; its last ack came after {seconds:.1f} s")
        self._report.say(f"longest wait for an ack in a partition that lost its leader: {pause:.2f} s")
        self._report.figure("failover_seconds", pause)
        self._show_partitions()
        after = self._partitions()
        self._report.check(
            "each of its partitions has a new leader, in a new epoch",
            all(
                after[each]["leader"] not in (victim, None)
                and after[each]["leader_epoch"] > before[each]["leader_epoch"]
                for each in lost
            ),
        )
        return victim

    def _compare(self) -> None:
        self._report.act("What is there now", "Every partition is read to its end, through a broker that is left.")
        with Client(self._cluster.url) as client:
            stored = {
                place: number
                for partition in range(PARTITIONS)
                for place, number in read_partition(client, TOPIC, partition)
            }
        missing = [place for place, number in self._acknowledged.items() if stored.get(place) != number]
        self._report.check(
            "every acknowledged order is where its ack said", not missing, f"{len(self._acknowledged):,} acks compared"
        )
        self._report.check("none is missing", set(stored.values()) == set(range(BEFORE + LIVE)))
        twice = len(stored) - len(set(stored.values()))
        if self._traffic.once:
            self._report.check("no order is there twice, although the producer had to send again", twice == 0)
        else:
            self._report.say(f"{twice} orders are there twice: sent again over HTTP because their answer was lost")

    def _bring_back(self, victim: int) -> None:
        self._report.act(
            "The broker comes back", f"Broker {victim} cuts off what nobody acknowledged, and fetches what it missed."
        )
        began = steady_s()
        self._cluster.brokers[victim].start()
        _announce(self._cluster)
        whole = self._becomes_whole()
        self._report.check("all replicas are in sync again", whole, f"{steady_s() - began:.1f} s later")
        self._show_partitions()

    def _send(self, some: Iterable[Order], watch: Watch = lambda done: None) -> float:
        def acknowledged(order: Order, place: Place) -> None:
            self._acknowledged[place] = order.number
            self._times[place[0]].append(steady_s())
            watch(len(self._acknowledged))

        began = steady_s()
        self._traffic.produce(TOPIC, some, acknowledged)
        return steady_s() - began

    def _becomes_whole(self) -> bool:
        deadline = steady_s() + CATCH_UP_S
        with Client(self._cluster.url) as client:
            while not (whole := bool(cluster_status(client)["healthy"])) and steady_s() < deadline:
                time.sleep(0.1)
        return whole

    def _partitions(self) -> list[dict[str, Any]]:
        with Client(self._cluster.url) as client:
            found: list[dict[str, Any]] = client.get(path("topics", TOPIC))["partitions"]
            return found

    def _show_partitions(self) -> None:
        self._report.table(
            ("partition>", "leader>", "epoch>", "replicas", "in sync"),
            [
                (
                    each["partition"],
                    each["leader"],
                    each["leader_epoch"],
                    ", ".join(map(str, each["replicas"])),
                    ", ".join(map(str, sorted(each["isr"]))),
                )
                for each in self._partitions()
            ],
        )


def _announce(cluster: LocalCluster) -> None:
    """Tells this user's command line how to come in. A broker that starts takes back what was told of its address."""
    if cluster.closed is not None:
        cluster.closed.announce(cluster.kafka, [broker.http for broker in cluster.brokers.values()])


def _comes_in(cluster: LocalCluster) -> bool:
    """Returns whether somebody who knows nobody's password is answered."""
    assert cluster.closed is not None
    trusting = ssl.create_default_context(cafile=str(cluster.closed.ca))
    try:
        with urllib.request.urlopen(f"{cluster.url}{path('topics')}", timeout=10, context=trusting):
            return True
    except urllib.error.HTTPError as refused:
        return refused.code != 401


def _paced(some: Iterable[Order]) -> Iterator[Order]:
    began = steady_s()
    for index, order in enumerate(some):
        ahead = began + index / LIVE_PER_SECOND - steady_s()
        if ahead > 0.002:
            time.sleep(ahead)
        yield order


def _longest_gap(times: list[float], after: float) -> float:
    """Returns the longest time between two acks in a row, of which the second came later than `after`."""
    return max((late - early for early, late in pairwise(times) if late > after), default=0.0)


def _compare_copies(cluster: LocalCluster, report: Report) -> None:
    """Compares the files, once no process writes them."""
    report.act("On three disks", "The cluster was stopped; now the logs of all brokers are compared, byte by byte.")
    sizes: list[int] = []
    equal = True
    for partition in range(PARTITIONS):
        copies = [_log_bytes(broker.data_dir, partition) for broker in cluster.brokers.values()]
        equal &= len(set(copies)) == 1
        sizes.append(len(copies[0]))
    report.say(f"{PARTITIONS} partitions, {sum(sizes) / 1e6:.1f} MB on each broker")
    report.check("the three copies of every partition are the same", equal and all(sizes))


def _log_bytes(data_dir: Path, partition: int) -> bytes:
    return b"".join(log.read_bytes() for log in sorted(data_dir.glob(f"logs/{TOPIC}.*/{partition}/*.log")))
