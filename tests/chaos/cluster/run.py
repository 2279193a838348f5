"""One run: a cluster, load with all acks and with one, a schedule of faults, and the verdict over clients and files."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.clusters import Cluster, KafkaCluster, TierlogCluster
from benchmarks.network import Namespaces, namespaces
from tests.chaos.conftest import TARGET
from tests.chaos.faulty_mount import FaultyMount
from tests.chaos.scenario import NOBODY, Scenario, chosen_seed

from .closed import USER, Act, Administrator, Closed
from .epochs import WITH_ALL_ACKS, WITH_ONE_ACK
from .faults import CUTS, Kind, Schedule, schedule, shown
from .inject import Injector, small_disk
from .replicas import stored_partitions
from .witness import EndReader, PinnedSender

NODES = (1, 2, 3)
PARTITIONS = 3
QUICK = ("groups.initial_rebalance_delay_ms=0", "groups.offsets_topic_partitions=4")
CONFIG = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
DISK_MEGABYTES = 256


class ClusterRun:
    """`with started(…) as run:` has a cluster; `run.through(plan)` is the load, the faults and the verdict."""

    def __init__(
        self,
        cluster: Cluster,
        directory: Path,
        seed: int,
        network: Namespaces | None = None,
        disks: dict[int, FaultyMount] | None = None,
        closed: Closed | None = None,
    ) -> None:
        self.cluster, self.seed = cluster, seed
        self._closed, self._login = closed, NOBODY if closed is None else closed.login(USER)
        self._directory, self._network, self._disks = directory, network, disks

    def through(self, plan: Schedule, **load) -> list[Scenario]:
        print(f"{len(plan)} rounds:\n{shown(plan)}")
        with self.under_load(**load) as (runs, injector):
            for number, round_ in enumerate(plan):
                runs[0].wait_for_service(number)
                injector.carry_out(round_)
        return runs

    def injector(self, topic: str) -> Injector:
        """`topic` says who its leader and followers are."""
        return Injector(self.cluster, topic, network=self._network, disks=self._disks, login=self._login)

    @contextmanager
    def under_load(
        self, *, rate: int = 100, config: dict[str, str] | None = None
    ) -> Iterator[tuple[list[Scenario], Injector]]:
        """Producers and consumers, with all acks and with one. When the block ends, all is waited for and judged."""
        source = random.Random(self.seed)
        acts: list[Act] = []
        with ExitStack() as running:
            runs = [
                Scenario(
                    self.cluster.bootstrap,
                    self._directory,
                    seed=source.randrange(1, 1 << 30),
                    producers=producers,
                    partitions=PARTITIONS,
                    replicas=len(NODES),
                    config=CONFIG | (config or {}),
                    rate=rate,
                    acks=acks,
                    checks=checks,
                    login=self._login,
                )
                for acks, checks, producers in (("all", WITH_ALL_ACKS, 3), ("1", WITH_ONE_ACK, 1))
            ]
            for node, broker in self.cluster.brokers.items():
                runs[0].watch(PinnedSender(node, broker, runs[0].topic, PARTITIONS, runs[0].history, self._login))
                for run in runs:
                    run.watch(EndReader(node, broker, run.topic, PARTITIONS, run.history, self._login))
                if self._closed is not None:
                    runs[0].watch(Administrator(node, broker, self._closed, acts, runs[0].history.complaints))
            for run in runs:
                running.enter_context(run)
            runs[0].wait_for_acks()
            topic = runs[0].topic
            injector = self.injector(topic)
            yield runs, injector
            for run in runs:
                run.wait_for_acks()
                run.wait_for_reads()
            for run in runs:
                run.finish()
                self.injector(run.topic).wait_until_whole()
        if self._closed is not None:
            self._closed.judge(self.cluster, acts, injector.ended)
        self.cluster.stop()
        for run in runs:
            for node, broker in self.cluster.brokers.items():
                run.history.stored[node] = stored_partitions(broker.data_dir, run.topic)
            run.judge()


@contextmanager
def started(
    directory: Path,
    kinds: Sequence[Kind],
    *,
    seed: int | None = None,
    settings: Sequence[str] = (),
    keepers: int = 1,
    secured: bool = False,
) -> Iterator[ClusterRun]:
    """What the faults need is set up: namespaces for cuts, small disks to fill, disks that forget."""
    seed = seed or chosen_seed()
    with ExitStack() as parts:
        network = parts.enter_context(namespaces(len(NODES))) if set(kinds) & set(CUTS) else None
        data_dirs: dict[int, Path] = {}
        disks: dict[int, FaultyMount] = {}
        for node in NODES:
            home = directory / f"disk-{node}"
            if Kind.DISK_FULL in kinds:
                data_dirs[node] = parts.enter_context(small_disk(home, DISK_MEGABYTES)) / "data"
            elif Kind.POWER in kinds:
                home.mkdir()
                disks[node] = FaultyMount(home, random.Random(seed + node))
                parts.callback(disks[node].unmount)
                disks[node].mount()
                data_dirs[node] = disks[node].path / "data"
        where = {"places": network.places, "keeper_host": network.keeper_host} if network else {}
        if TARGET == "kafka":
            cluster: Cluster = KafkaCluster(directory / "cluster", heap="512M", **where)
        else:
            cluster = TierlogCluster(
                directory / "cluster", settings=(*QUICK, *settings), keepers=keepers, data_dirs=data_dirs, **where
            )
        parts.callback(cluster.kill)
        closed = Closed(directory / "closed") if secured else None
        if closed is not None:
            closed.close(cluster)
        cluster.start()
        if closed is not None:
            closed.admit(cluster)
        yield ClusterRun(cluster, directory, seed, network, disks, closed)


def run_schedule(
    directory: Path, kinds: Sequence[Kind], rounds: int, config: dict[str, str] | None = None, **options
) -> list[Scenario]:
    with started(directory, kinds, **options) as run:
        return run.through(schedule(run.seed, kinds, rounds), config=config)
