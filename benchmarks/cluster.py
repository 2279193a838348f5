"""`python -m benchmarks.cluster`: compares three tierlog brokers with three Apache Kafka brokers on this machine, as
ratios.

There are three replicas, two of them required, and neither side syncs before the ack. acks=1 is also measured with both
sides synced, and with each side's default. Then failover: the leader is killed (-9) and, separately, stopped (SIGSTOP).
Prints a table, writes benchmarks/results/cluster.json. `--quick` takes about four minutes, half of them for Kafka's
failovers.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks import limits
from benchmarks.client import load
from benchmarks.clusters import Cluster, KafkaCluster, TierlogCluster
from benchmarks.failover import Failovers
from benchmarks.peer.jars import CACHE, jars_dir, java
from benchmarks.plan import cluster_plan
from benchmarks.records import write_records
from benchmarks.report import RESULTS, compared
from benchmarks.results import Results, describe_machine, describe_versions
from benchmarks.run import KAFKA_SETTINGS, OthersCpu, memory, throughputs
from benchmarks.workloads import Target


def measure(quick: bool, console: Console) -> Results:
    java()
    jars_dir()
    load.build()
    RESULTS.mkdir(exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name:
        directory = Path(name)
        results = Results(describe_machine(directory), describe_versions(), limits.measure(directory), quick)
        records = {size: write_records(directory / f"records-{size}", size) for size in (100, 1000)}
        clusters: list[Cluster] = [
            TierlogCluster(directory / "tierlog"),
            KafkaCluster(directory / "kafka", settings=KAFKA_SETTINGS),
        ]
        try:
            console.print("[cyan]▸[/] starting three brokers of tierlog and three of Apache Kafka, warming them up")
            for cluster in clusters:
                cluster.start()
            plan, noise = cluster_plan(quick=quick), OthersCpu(clusters)
            targets = [Target(cluster, records) for cluster in clusters]
            for target in targets:
                target.warm_up(plan.warm_up_seconds)
            throughputs(plan, targets, results, RESULTS / "cluster.json", console)
            results.others_cpu_share = noise.share()
            memory(clusters, results)
            for cluster in clusters:
                measure_failovers(cluster, results, kills=3 if quick else 7, pauses=1 if quick else 3, console=console)
        finally:
            for cluster in clusters:
                cluster.kill()
    results.minutes = (time.monotonic() - began) / 60
    results.write(RESULTS / "cluster.json")
    return results


def measure_failovers(cluster: Cluster, results: Results, kills: int, pauses: int, console: Console) -> None:
    def sample(job: str, times: int, measure: Callable[[], float]) -> None:
        console.print(f"[cyan]▸[/] failover: {job}, {cluster.name}")
        taken = [measure() for _ in range(times)]
        getattr(results.row("failover", job, "p50 ms"), cluster.name).extend(taken)
        getattr(results.row("failover", job, "max ms"), cluster.name).append(max(taken))

    failovers = Failovers(cluster)
    sample("kill -9 of the leader", kills, failovers.kill_leader)
    sample("SIGSTOP of the leader", pauses, failovers.pause_leader)


if __name__ == "__main__":
    sys.exit(compared("cluster", __doc__ or "", "fewer jobs, fewer failovers", measure))
