"""Which jobs run, how long and how often: a quick plan for a first look, and the full plan for the record."""

from dataclasses import dataclass, replace

from benchmarks.bare import BarePlan
from benchmarks.workloads import Produce

KB = 1 << 10


@dataclass(frozen=True, slots=True)
class Plan:
    produce: tuple[Produce, ...]
    consume: tuple[tuple[Produce, int], ...]  # how the topic is filled, and with how many records
    latency: tuple[str, ...]  # flush policies
    java: tuple[tuple[Produce, int], ...]
    repeats: int
    produce_seconds: float
    latency_seconds: float
    latency_rate: int
    starts: int
    warm_up_seconds: float
    bare: BarePlan | None = None


def quick_plan() -> Plan:
    return Plan(
        produce=(
            Produce(100, "all", "none", 64 * KB),
            Produce(1000, "1", "none", 64 * KB),
            Produce(1000, "all", "none", 64 * KB),
            Produce(1000, "all", "lz4", 64 * KB),
            Produce(1000, "all", "none", 64 * KB, "commit"),
            Produce(1000, "1", "none", 64 * KB, "commit"),
            Produce(1000, "1", "none", 64 * KB, "default"),
        ),
        consume=((Produce(1000, "all", "none", 64 * KB), 300_000),),
        latency=("os",),
        java=(),
        repeats=2,
        produce_seconds=1.0,
        latency_seconds=4,
        latency_rate=2000,
        starts=1,
        warm_up_seconds=1.0,
        bare=BarePlan(
            connections=200,
            readers=10,
            fan_out_records=50_000,
            disk_records=200_000,
            rate_shares=(0.5,),
            flushes=("os",),
            seconds=1.0,
            repeats=1,
        ),
    )


def full_plan() -> Plan:
    sizes, codecs = (100, 1000), ("none", "lz4")
    return Plan(
        produce=(
            *(
                Produce(size, acks, codec, batch)
                for size in sizes
                for codec in codecs
                for acks in ("1", "all")
                for batch in (16 * KB, 64 * KB, 1000 * KB)
            ),
            *(
                Produce(size, acks, "none", batch, "commit")
                for acks in ("1", "all")
                for size, batch in ((100, 64 * KB), (1000, 16 * KB), (1000, 64 * KB), (1000, 1000 * KB))
            ),
            *(Produce(size, acks, "none", 64 * KB, "default") for acks in ("1", "all") for size in sizes),
        ),
        consume=tuple(
            (Produce(size, "all", codec, 64 * KB), 4_000_000 if size == 100 else 600_000)
            for size in sizes
            for codec in codecs
        ),
        latency=("os", "commit"),
        java=((Produce(1000, "all", "none", 64 * KB), 1_000_000), (Produce(100, "1", "none", 64 * KB), 5_000_000)),
        repeats=3,
        produce_seconds=2.0,
        latency_seconds=8,
        latency_rate=2000,
        starts=3,
        warm_up_seconds=20.0,
        bare=BarePlan(
            connections=1000,
            readers=50,
            fan_out_records=100_000,
            disk_records=1_000_000,
            rate_shares=(0.1, 0.5, 0.8),
            flushes=("os", "commit"),
            seconds=3.0,
            repeats=3,
        ),
    )


def cluster_plan(*, quick: bool) -> Plan:
    """Returns the plan for three brokers with three replicas, two of which have to be in sync."""
    jobs = (
        Produce(1000, "all", "none", 64 * KB),
        Produce(1000, "all", "lz4", 64 * KB),
        Produce(100, "all", "none", 64 * KB),
        *(Produce(1000, "1", "none", 64 * KB, flush) for flush in ("os", "commit", "default")),
    )
    return Plan(
        produce=jobs[:1] if quick else jobs,
        consume=(),
        latency=("os",),
        java=(),
        repeats=2 if quick else 3,
        produce_seconds=2.0,
        latency_seconds=4 if quick else 8,
        latency_rate=200,  # at 1000 a second Kafka's queue grew without end here, so that would not measure latency
        starts=0,
        # Three JVMs on two cores compile for minutes: after 35 s of produce Kafka still became faster.
        warm_up_seconds=10.0 if quick else 40.0,
    )


def tls_plan(*, quick: bool) -> Plan:
    """Returns the plan for one broker with TLS."""
    sizes, codecs = ((1000,), ("none",)) if quick else ((1000, 100), ("none", "lz4"))
    jobs = [Produce(size, "all", codec, 64 * KB) for size in sizes for codec in codecs]
    return Plan(
        produce=tuple(jobs),
        consume=tuple((job, 2_500_000 if job.record_bytes == 100 else 400_000) for job in jobs),
        latency=(),
        java=(),
        repeats=2 if quick else 3,
        produce_seconds=1.5,
        latency_seconds=0,
        latency_rate=0,
        starts=0,
        warm_up_seconds=1.0 if quick else 4.0,
    )


def plain_plan(tls: Plan) -> Plan:
    """Returns the part of the plan for TLS that is done once more without TLS, to tell what it costs."""
    return replace(tls, produce=tls.produce[:1], consume=tls.consume[:1])
