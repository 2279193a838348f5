"""Carries faults out on a running cluster, and heals them.

Each fault is a pair of steps at two times of a round. Steps run in threads of their own, because a start takes as long
as it takes while the next fault is due; the round is over when every broker serves again.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.clusters import Cluster
from benchmarks.network import Namespaces
from benchmarks.process import BrokerFailed, BrokerProcess, wait_for
from tests.chaos.faulty_mount import FaultyMount
from tests.chaos.scenario import NOBODY

from .closed import Ended
from .faults import Fault, Kind, Round, Who
from .wire import View, Wire

ASK_S = 1.0
RETURN_S = 60.0
FILLER = "filler"
TRANSACTIONS = "__transaction_state"

Step = Callable[[], None]


class Injector:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        network: Namespaces | None = None,
        disks: dict[int, FaultyMount] | None = None,
        login: Mapping[str, str] = NOBODY,
    ) -> None:
        self._cluster, self._topic, self._network, self._disks = cluster, topic, network, disks or {}
        self._login = login
        self.ended: list[Ended] = []
        self._locks = {node: threading.Lock() for node in cluster.brokers}
        self._keepers_lock = threading.Lock()

    def carry_out(self, round_: Round) -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(2 * len(round_)) as pool:
            done = [pool.submit(self._carry_out_one, fault, began) for fault in round_]
        for future in done:
            future.result()

    def _carry_out_one(self, fault: Fault, began: float) -> None:
        _sleep_until(began + fault.after_s)
        with ExitStack() as healing:
            for remedy in self._break(fault):
                healing.callback(remedy)
            _sleep_until(began + fault.after_s + fault.seconds)

    # Who

    def view(self, topic: str = "") -> View | None:
        """What the first broker that answers says."""
        for broker in self._cluster.brokers.values():
            try:
                with Wire(broker.host, broker.port, ASK_S, self._login) as wire:
                    return wire.metadata(topic or self._topic)
            except OSError:
                continue
        return None

    def nodes(self, who: Who) -> list[int]:
        every, view = list(self._cluster.brokers), self.view(TRANSACTIONS if who is Who.COORDINATOR else "")
        if who is Who.ALL or view is None or 0 not in view.partitions:
            return every if who is Who.ALL else every[:1]
        leader = view.partitions[0].leader if view.partitions[0].leader in every else every[0]
        follower = next(node for node in every if node != leader)
        controller = view.controller if view.controller in every else every[0]
        return {
            Who.LEADER: [leader],
            Who.FOLLOWER: [follower],
            Who.CONTROLLER: [controller],
            Who.COORDINATOR: [leader],
            Who.PAIR: [leader, follower],
        }[who]

    # What

    def _break(self, fault: Fault) -> Iterator[Step]:
        # One fault at a time on a process: the later one waits, and may find it healed. In order, or two faults on two
        # brokers each could wait for each other.
        if fault.kind in (Kind.KEEPER_DOWN, Kind.KEEPER_PAUSE):
            self._keepers_lock.acquire()
            yield self._keepers_lock.release
            yield from self._break_keepers(fault.kind)
            return
        nodes = sorted(self.nodes(fault.who))
        for node in nodes:
            self._locks[node].acquire()
            yield self._locks[node].release
        if fault.kind is Kind.POWER:
            yield self._cut_power(nodes)
        else:
            for node in nodes:
                yield self._break_one(fault.kind, node)

    def _break_one(self, kind: Kind, node: int) -> Step:
        broker = self._cluster.brokers[node]
        if kind in (Kind.KILL, Kind.STOP):
            broker.kill() if kind is Kind.KILL else broker.stop()
            self.ended.append(Ended(node, kind, time.monotonic_ns()))
            return lambda: start(broker)
        if kind is Kind.PAUSE:
            broker.pause()
            return broker.resume
        if kind is Kind.DISK_FULL:
            return _fill(broker.data_dir)
        network = self._network
        assert network is not None, f"{kind} needs namespaces"
        peers = [host for other, host in network.hosts.items() if other != node]
        if kind is Kind.CUT_PEERS:
            network.cut(node, peers)
        elif kind is Kind.CUT_KEEPER:
            network.cut(node, [network.keeper_host])
        elif kind is Kind.ISOLATE:
            network.cut(node, [*peers, network.keeper_host, network.client_host])
        else:
            assert kind is Kind.DEAF
            network.cut(node, [*peers, network.keeper_host], to=False)
        return lambda: network.heal(node)

    def _break_keepers(self, kind: Kind) -> Iterator[Step]:
        for keeper in self._cluster.keepers:
            if kind is Kind.KEEPER_DOWN:
                keeper.kill()
                yield lambda keeper=keeper: start(keeper)
            else:
                keeper.pause()
                yield keeper.resume

    def _cut_power(self, nodes: list[int]) -> Step:
        for node in nodes:
            self._disks[node].cut_power()
        for node in nodes:
            self._cluster.brokers[node].kill()
            self._disks[node].unmount()

        def restore() -> None:
            for node in nodes:
                self._disks[node].mount()
            with ThreadPoolExecutor(len(nodes)) as pool:
                list(pool.map(start, (self._cluster.brokers[node] for node in nodes)))

        return restore

    # After it

    def wait_until_whole(self) -> None:
        """Every replica of the topic is in sync, as every broker sees it."""
        wait_for(self._whole, f"every replica of {self._topic} to be in sync", RETURN_S, interval_s=0.1)

    def _whole(self) -> bool:
        every = set(self._cluster.brokers)
        for broker in self._cluster.brokers.values():
            try:
                with Wire(broker.host, broker.port, ASK_S, self._login) as wire:
                    partitions = wire.metadata(self._topic).partitions.values()
            except OSError:
                return False
            if not partitions or any(set(p.in_sync) != every or p.leader not in every for p in partitions):
                return False
        return True


def start(broker: BrokerProcess) -> None:
    """A broker that cannot start because another fault is on tries again, as a supervisor would."""
    deadline = time.monotonic() + RETURN_S
    while True:
        try:
            broker.start()
            return
        except BrokerFailed:
            if time.monotonic() > deadline:
                raise


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tierlog-chaos", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def _fill(data_dir: Path) -> Step:
    """Takes every free byte of the disk that `data_dir` is on."""
    filler = data_dir.parent / FILLER
    with filler.open("wb", buffering=0) as file:
        block = bytes(1 << 16)
        while block:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]
    return filler.unlink


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
