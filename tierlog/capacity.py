"""How many brokers a load needs and what they cost per month, compared with Apache Kafka without and with its own
tiering.

It is pure arithmetic over list prices and `measured.json`, which `python -m benchmarks.costs` writes from
docs/PERFORMANCE.md. Its assumptions:

- A broker of tierlog has one event loop, so one core for its clients and replicas on any machine. A broker of Kafka
  uses all cores. At the peak, at most `BUSY` of the CPU, of the network and of the disks is used.
- CPU is counted per GB of records before compression, per batch and per fetch. A batch is what a producer gathers
  within its linger time, for one partition. A consumer fetches each batch when it comes.
- A consumer reads at least one partition, and each record is read `groups` times. So many consumers need many
  partitions.
- Segments are closed at their size, or after an hour.
- Archiving runs in another process on another core. It has to keep up with the average, not with the peak.
- Kafka's replication takes as much CPU as tierlog's: three JVMs on two cores could not be measured fairly.
- Kafka's tiering moves log segments as they are, with as many requests as ours. The archive's indexes are left out.
- Brokers are in three zones. In two of three cases, what is produced or consumed crosses a border between zones.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from typing import Final

from cold_tier.reports import Line, TopicFacts
from offloader.cost import GB, MONTH_MS, estimate
from offloader.prices import CostSettings

BUSY: Final = 0.6
FULL: Final = 0.8
"""The share of the disks that is used."""
HOURS: Final = MONTH_MS // 3_600_000
BETWEEN_ZONES_GB: Final = 0.02
"""EC2, us-east-1: one cent for sending and one cent for receiving."""
CROSSING: Final = 2 / 3
FETCHES_PER_CONSUMER: Final = 200
"""The most per second: a consumer asks again when it has the answer, and then gets all that came meanwhile."""
ABOUT: Final = 1.02
KEEPERS: Final = 3
KEEPER_HOUR: Final = 0.096
"""The price of an m6i.large. etcd, or Kafka's controllers, need one each."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    cores: int
    disk_gb: int
    network_gbit: float
    """The network speed that it always has, without bursts."""
    hour: float


MACHINES: Final = (
    Machine("i3en.large", 2, 1_250, 2.1, 0.226),
    Machine("i3en.xlarge", 4, 2_500, 4.2, 0.452),
    Machine("i3en.2xlarge", 8, 5_000, 8.4, 0.904),
    Machine("i3en.6xlarge", 24, 15_000, 25, 2.712),
    Machine("i3en.24xlarge", 96, 60_000, 100, 10.848),
)
"""EC2 with local NVMe, on demand, us-east-1."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """Times in seconds of one core."""

    per_gb: float
    per_batch: float
    per_fetch: float
    consume_per_gb: float
    replicate_per_gb: float
    """For each copy besides the leader's."""


@dataclass(frozen=True, slots=True)
class Measured:
    tierlog: Cpu
    kafka: Cpu
    archive_per_gb: float
    lz4: float
    """Bytes of lz4 batches per byte of records; `archived` has the same for archived rows."""
    archived: float
    source: str


def measured() -> Measured:
    raw = json.loads((files("tierlog") / "measured.json").read_text("utf-8"))
    return Measured(**{**raw, "tierlog": Cpu(**raw["tierlog"]), "kafka": Cpu(**raw["kafka"])})


@dataclass(frozen=True, slots=True)
class Load:
    """Records per second over the whole cluster, on average and at the peak, and how they are produced and kept."""

    rate: float
    peak: float
    record_bytes: int
    producers: int
    consumers: int
    groups: float
    """How many times each record is read soon after it was written."""
    linger_ms: int
    batch_bytes: int
    lz4: bool
    retention_ms: int
    local_retention_ms: int
    replication: int
    partition_rate: float
    segment_bytes: int = 1 << 30
    segment_ms: int = 3_600_000

    @property
    def batches_at_peak(self) -> float:
        gathered = self.peak / self.producers * self.linger_ms / 1000
        return self.peak / min(max(1.0, gathered), max(1.0, self.batch_bytes / self.record_bytes))

    @property
    def fetches_at_peak(self) -> float:
        return min(self.batches_at_peak * self.groups, self.consumers * FETCHES_PER_CONSUMER)

    @property
    def partitions(self) -> int:
        return max(ceil(self.peak / self.partition_rate), ceil(self.consumers / self.groups) if self.groups else 0)


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    machine: Machine
    needed: Mapping[str, int]
    """By resource: the number of brokers that this resource alone requires."""
    peak_cores: float
    disk_gb: float
    peak_gbit: float
    """The sum over all brokers, in the busier direction."""
    connections: int
    """The connections at one broker, if every producer writes to all brokers."""
    lines: tuple[Line, ...]

    @property
    def brokers(self) -> int:
        return max(self.needed.values())

    @property
    def limit(self) -> str:
        return max(self.needed, key=lambda each: self.needed[each])

    @property
    def monthly(self) -> float:
        return sum(line.cost for line in self.lines)


def plan(load: Load, costs: Measured, prices: CostSettings) -> tuple[Plan, ...]:
    """Returns plans for tierlog, Kafka on its disks alone, and tiered Kafka, each on the cheapest machines."""
    stored = load.record_bytes * (costs.lz4 if load.lz4 else 1.0)
    bucket = _bucket(load, stored, load.record_bytes * costs.archived, prices)
    unchanged = _bucket(load, stored, stored, prices)
    local_ms = min(load.local_retention_ms, load.retention_ms)
    return (
        _cheapest("tierlog", load, stored, costs.tierlog, local_ms, bucket, archive=costs.archive_per_gb),
        _cheapest("Kafka, all on NVMe", load, stored, costs.kafka, load.retention_ms, ()),
        _cheapest("Kafka, tiered", load, stored, costs.kafka, local_ms, unchanged),
    )


def _bucket(load: Load, stored: float, rows: float, prices: CostSettings) -> tuple[Line, ...]:
    month = load.rate * MONTH_MS / 1000
    facts = TopicFacts(
        partitions=load.partitions,
        segments=ceil(max(month * stored / load.segment_bytes, load.partitions * MONTH_MS / load.segment_ms)),
        rows_bytes=int(month * rows),
        index_bytes=0,
        log_bytes=int(month * stored),
        span_ms=MONTH_MS,
        retention_ms=load.retention_ms,
        local_retention_ms=load.local_retention_ms,
    )
    return estimate(facts, prices, retention_ms=load.retention_ms).bucket


def _cheapest(
    name: str, load: Load, stored: float, cpu: Cpu, local_ms: int, bucket: tuple[Line, ...], *, archive: float = 0.0
) -> Plan:
    """Returns the plan with the fewest brokers among those that cost about as little as the cheapest."""
    plans = [_on(machine, name, load, stored, cpu, local_ms, bucket, archive) for machine in MACHINES]
    least = min(each.monthly for each in plans)
    return min((each for each in plans if each.monthly <= least * ABOUT), key=lambda each: each.brokers)


def _on(
    machine: Machine,
    name: str,
    load: Load,
    stored: float,
    cpu: Cpu,
    local_ms: int,
    bucket: tuple[Line, ...],
    archive: float,
) -> Plan:
    gb = load.peak * load.record_bytes / GB
    copies = load.replication
    seconds = gb * (cpu.per_gb + cpu.replicate_per_gb * (copies - 1) + cpu.consume_per_gb * load.groups)
    seconds += load.batches_at_peak * cpu.per_batch + load.fetches_at_peak * cpu.per_fetch
    archiving = load.rate * load.record_bytes / GB * archive
    disk_gb = load.rate * stored * local_ms / 1000 * copies / GB
    gbit = load.peak * stored * 8 / 1e9 * max(copies, copies - 1 + load.groups)
    one_loop = archive > 0
    needed = {
        "CPU": ceil(seconds / BUSY / (1 if one_loop else machine.cores)),
        "network": ceil(gbit / BUSY / machine.network_gbit),
        "disk": ceil(disk_gb / FULL / machine.disk_gb),
        "copies": copies,
    }
    if one_loop:
        needed["archiving"] = ceil(archiving / BUSY)
    brokers = max(needed.values())
    crossing = load.rate * stored * MONTH_MS / 1000 / GB * (copies - 1 + CROSSING * (1 + load.groups))
    return Plan(
        name=name,
        machine=machine,
        needed=needed,
        peak_cores=seconds + archiving,
        disk_gb=disk_gb,
        peak_gbit=gbit,
        connections=load.producers + ceil(2 * load.consumers / brokers),
        lines=(
            Line(f"brokers: {brokers} {machine.name}", brokers * HOURS, "hours", machine.hour),
            Line(f"{KEEPERS} machines for metadata", KEEPERS * HOURS, "hours", KEEPER_HOUR),
            Line("traffic between zones", crossing, "GB", BETWEEN_ZONES_GB),
            *bucket,
        ),
    )
