"""Carries out a plan on both brokers in turns (A B, B A, A B, …), so that changes on the machine affect both alike."""

import itertools
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks import bare, limits
from benchmarks.clusters import Cluster
from benchmarks.peer.kafka import KafkaServer
from benchmarks.plan import Plan
from benchmarks.process import BrokerProcess
from benchmarks.records import write_records
from benchmarks.results import Results, describe_machine, describe_versions
from benchmarks.service import TierlogServer
from benchmarks.workloads import GROUPS, Figures, Produce, Target, measure_start

# Kafka then deletes a topic from the disk at once and not after a minute. Otherwise jobs would disturb each other.
KAFKA_SETTINGS = {"log.segment.delete.delay.ms": "100"}


def carry_out(plan: Plan, directory: Path, saved: Path, *, quick: bool, console: Console) -> Results:
    """`saved` gets the results so far, in case the run does not finish."""
    began = time.monotonic()
    console.print("[cyan]▸[/] limits of this machine: write(2), fdatasync, loopback")
    results = Results(describe_machine(directory), describe_versions(), limits.measure(directory), quick)
    records = {size: write_records(directory / f"records-{size}", size) for size in (100, 1000)}
    homes = [directory / name for name in ("tierlog", "kafka")]
    for home in homes:
        home.mkdir()
    brokers: list[BrokerProcess] = [TierlogServer(homes[0]), KafkaServer(homes[1], KAFKA_SETTINGS)]
    try:
        console.print("[cyan]▸[/] starting tierlog and Apache Kafka, warming both up")
        for broker in brokers:
            broker.start()
        noise = OthersCpu(brokers)
        targets = [Target(broker, records) for broker in brokers]
        for target in targets:
            target.warm_up(plan.warm_up_seconds)
        throughputs(plan, targets, results, saved, console)
        if plan.bare is not None:
            bare.measure(plan.bare, targets, directory, sampler(targets, results, saved, console))
        results.others_cpu_share = noise.share()
        memory(brokers, results)
        _starts(plan, brokers, results, console)
    finally:
        for broker in brokers:
            broker.kill()
    results.minutes = (time.monotonic() - began) / 60
    return results


def _turns(targets: list[Target], repeats: int) -> Iterator[Target]:
    for turn in range(repeats):
        yield from targets if turn % 2 == 0 else reversed(targets)


def sampler(
    targets: list[Target], results: Results, saved: Path, console: Console, suffix: str = "", repeats: int = 1
) -> Callable[..., None]:
    """Returns the function that notes figures of all targets in turns. `suffix` is put after the names of groups."""

    def sample(group: str, job: str, measure: Callable[[Target], Figures], repeats: int = repeats) -> None:
        group += suffix
        console.print(f"[cyan]▸[/] {group}: {job}")
        for target in _turns(targets, repeats):
            for unit, value in measure(target).items():
                getattr(results.row(group, job, unit), target.name).append(value)
        results.write(saved)

    return sample


def throughputs(
    plan: Plan, targets: list[Target], results: Results, saved: Path, console: Console, suffix: str = ""
) -> None:
    sample = sampler(targets, results, saved, console, suffix, plan.repeats)
    for job in plan.produce:
        sample(
            GROUPS[job.flush], job_name(job), lambda target, job=job: target.measure_produce(job, plan.produce_seconds)
        )
    for filling, count in plan.consume:
        topics = {target: target.make_topic("os") for target in targets}
        for target, topic in topics.items():
            target.produce(topic, filling, count=count)
        name = f"{filling.record_bytes} B, {filling.codec}"
        sample("consume", name, lambda target: target.measure_consume(topics[target], count))  # noqa: B023
        for target, topic in topics.items():
            target.remove_topic(topic)
    for flush in plan.latency:
        group = "latency" if flush == "os" else "latency, synced"
        name = f"1000 B, acks=all, {plan.latency_rate}/s"
        sample(group, name, lambda t, flush=flush: t.measure_latency(flush, plan.latency_rate, plan.latency_seconds))
    for job, count in plan.java:
        name = job_name(job)
        sample("produce, Java client", name, lambda t, job=job, count=count: t.measure_java_produce(job, count), 2)


def job_name(job: Produce) -> str:
    return f"{job.record_bytes} B, {job.codec}, acks={job.acks}, {job.batch_bytes >> 10} KB batches"


def memory(brokers: Sequence[BrokerProcess | Cluster], results: Results) -> None:
    for broker in brokers:
        row = results.row("memory", "after all of the above", "MB RSS")
        getattr(row, broker.name).append(broker.rss_bytes() / 1e6)


def _starts(plan: Plan, brokers: list[BrokerProcess], results: Results, console: Console) -> None:
    console.print("[cyan]▸[/] start")
    for _, broker in itertools.product(range(plan.starts), brokers):
        for unit, value in measure_start(broker).items():
            getattr(results.row("start", "after a clean stop", unit), broker.name).append(value)


class OthersCpu:
    """The share of all cores that others than brokers and client used. Above a few per cent, figures are doubtful."""

    def __init__(self, brokers: Sequence[BrokerProcess | Cluster]) -> None:
        self._brokers = brokers
        self._began, self._busy, self._ours = time.monotonic(), self._all_cores(), self._our_own()

    @staticmethod
    def _all_cores() -> float:
        times = psutil.cpu_times()
        return sum(times) - times.idle - times.iowait

    def _our_own(self) -> float:
        own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(use.ru_utime + use.ru_stime for use in own) + sum(b.cpu_seconds() for b in self._brokers)

    def share(self) -> float:
        others = (self._all_cores() - self._busy) - (self._our_own() - self._ours)
        return max(0.0, others / ((time.monotonic() - self._began) * psutil.cpu_count()))
