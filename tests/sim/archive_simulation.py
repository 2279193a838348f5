"""A run in which brokers archive what they lead, on a bucket that fails."""

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from hot_tier.ids import NodeId, PartitionId, TopicPartition
from tests.sim.archive import GRACE_MS, TOPIC_CONFIG
from tests.sim.archive_checker import PARTITION, ArchiveChecker
from tests.sim.broker import Broker
from tests.sim.bucket import BUCKET, Bucket, Health
from tests.sim.faults import Ambush, Cut, Kill, Pause, PowerLoss
from tests.sim.report import Report
from tests.sim.rules import RULES, Rules
from tests.sim.simulation import FAULTS_END_MS, Simulation, run_one
from tests.sim.store import TOPIC

TP: Final = TopicPartition(TOPIC, PartitionId(PARTITION))
LATE_READERS_MS: Final = (2_500, 4_500, 6_500)
"""Consumers that begin at the beginning, most of which is in the bucket alone by then."""
PLACES: Final = (
    "archive.before_publish",
    "archive.published",
    "archive.recorded",
    "retention.before_publish",
    "retention.published",
    "retention.local_dropped",
    "garbage.before_delete",
    "garbage.deleted",
    "drops locally",
)


@dataclass(frozen=True)
class BucketOutage:
    for_ms: float


@dataclass(frozen=True)
class BucketWeather:
    health: Health
    for_ms: float


@dataclass(frozen=True)
class BucketBack:
    """The newest manifests are gone for a while."""

    count: int
    for_ms: float


@dataclass(frozen=True)
class LaggingList:
    """Listings do not show the newest objects. No store does this that the contract allows; S3 did, until 2020."""

    lag_ms: float
    for_ms: float


BucketFault = BucketOutage | BucketWeather | BucketBack | LaggingList


def draw(chance: random.Random, kind: str, nodes: list[NodeId]) -> Any:
    for_ms = chance.choice([50, 300, 1_000, 2_500]) * (0.5 + chance.random())
    match kind:
        case "outage":
            return BucketOutage(for_ms)
        case "weather":
            share = chance.choice([0.02, 0.1, 0.3])
            lost, unanswered, late, torn = (chance.choice([0, 0, share]) for _ in range(4))
            return BucketWeather(Health(lost, unanswered, late, chance.choice([0, 0, 0.8]), torn), for_ms)
        case "back":
            return BucketBack(chance.choice([1, 1, 2, 4]), for_ms)
        case "lag":
            return LaggingList(chance.choice([5, 30, 200]), for_ms)
        case "cut":
            node = chance.choice(nodes)
            return Cut(tuple(chance.sample([(node, BUCKET), (BUCKET, node)], chance.choice([1, 1, 2]))), for_ms)
    strike = chance.choice([Kill, Kill, PowerLoss, Pause, Pause, Cut])
    return Ambush(chance.choice(PLACES), strike, for_ms, everyone=chance.random() < 0.5)


class ArchiveSimulation(Simulation):
    archives = True

    def topic_config(self) -> dict[str, str]:
        return {**super().topic_config(), **TOPIC_CONFIG}

    def _prepare(self) -> None:
        self.bucket = Bucket(self.world, self.network)
        self.archive_checker = ArchiveChecker(self.world, self.checker, self.bucket, GRACE_MS)
        self.bucket.watchers.append(self.archive_checker.changed)
        self.store.watchers.append(self.archive_checker.recorded)
        for number, at_ms in enumerate(LATE_READERS_MS, 2):
            self.world.after(at_ms, self.start_consumer, PARTITION, number)

    def _plan_faults(self, chance: random.Random) -> list[tuple[float, Any]]:
        faults = super()._plan_faults(chance)
        kinds = [*chance.sample(["outage", "weather", "weather", "back", "cut", "lag"], chance.randint(1, 3)), "ambush"]
        every_ms = chance.choice([200, 500, 1_000])
        at_ms = 800.0
        while at_ms < FAULTS_END_MS:
            faults.append((at_ms, draw(chance, chance.choice(kinds), self.nodes)))
            at_ms += every_ms * 2 * chance.random()
        return faults

    def _started(self, broker: Broker) -> None:
        broker.when_dropped = self.archive_checker.drops

    def apply(self, fault: Any) -> None:
        after, bucket = self.world.after, self.bucket
        if not isinstance(fault, BucketFault):
            super().apply(fault)
        elif not self.healed:
            self.world.note(fault)
            match fault:
                case BucketOutage(for_ms):
                    bucket.down = True
                    after(for_ms, self._bucket_up)
                case BucketWeather(health, for_ms):
                    bucket.health = health
                    after(for_ms, self._bucket_well)
                case BucketBack(count, for_ms):
                    bucket.go_back(count)
                    self._manifests_moved()
                    after(for_ms, self._bucket_forward)
                case LaggingList(lag_ms, for_ms):
                    bucket.list_lag_ms = lag_ms
                    after(for_ms, self._lists_well)

    def _bucket_forward(self) -> None:
        self.bucket.come_back()
        self._manifests_moved()

    def _manifests_moved(self) -> None:
        logs = [disk.logs[PARTITION] for disk in self.disks.values() if PARTITION in disk.logs]
        self.archive_checker.manifests_moved(self.bucket.hidden, logs)

    def _bucket_up(self) -> None:
        self.bucket.down = False

    def _lists_well(self) -> None:
        self.bucket.list_lag_ms = 0.0

    def _bucket_well(self) -> None:
        self.bucket.health = Health()

    def _check_in_sync(self) -> None:
        super()._check_in_sync()
        for node in self.state(PARTITION).isr:
            if node not in self.lost:
                self.archive_checker.in_sync(node, self.disks[node].logs.get(PARTITION))

    def _heal(self) -> None:
        super()._heal()
        self.bucket.recover()
        self._manifests_moved()

    def _restless(self) -> str | None:
        why = super()._restless()
        if why is not None or not self._kept():
            return why
        leader = self.brokers[self.state(PARTITION).leader]
        archive = None if leader.archive is None else leader.archive.offloader.archive_of(TP)
        if archive is None or archive.must_open or archive.backlog_bytes:
            return f"broker {leader.node} does not archive: {archive and (archive._step, archive.last_failure)}"
        return None

    def _check_end(self, partition: int) -> None:
        super()._check_end(partition)
        self.archive_checker.ends(self.disks[self.state(partition).leader].log(partition))

    def _did(self) -> Mapping[str, int]:
        checker = self.archive_checker
        return {
            "manifests published": checker.published,
            "takeovers": checker.taken_over,
            "local drops": checker.dropped,
            "objects deleted": checker.deleted,
            "cold reads": self.checker.cold_reads,
        }

    def run(self) -> Report:
        names = random.Random(f"names of {self.seed}")
        with (
            patch("uuid.uuid4", lambda: uuid.UUID(int=names.getrandbits(128))),
            patch("cold_tier.objects.bucket.random", names),
        ):
            return super().run()


def run(seed: int, rules: Rules = RULES, *, tracing: bool = False) -> Report:
    return run_one(ArchiveSimulation, seed, rules, tracing=tracing)
