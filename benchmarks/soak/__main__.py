"""`python -m benchmarks.soak --minutes 60`: one broker with an S3 server under steady load; does anything grow?

Archive, retention, compaction, rebalances, topics and groups that come and go. Prints the slopes of memory, open files,
threads and latencies after the first third, and writes benchmarks/results/soak.json. At the end every acknowledged
record that retention has kept is read again.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import psutil
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.peer.jars import CACHE
from benchmarks.report import DOCS, RESULTS, replace_block
from benchmarks.results import describe_machine, tierlog_commit
from benchmarks.service import TierlogServer
from benchmarks.soak.check import check
from benchmarks.soak.clients import Clients
from benchmarks.soak.pace import Pace
from benchmarks.soak.report import BEGIN, Soak, markdown
from benchmarks.soak.samples import Series
from tests.support.s3 import credentials, weed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long the load lasts")
    parser.add_argument("--rate", type=int, default=400, help="records of 1 KB per second")
    parser.add_argument("--results", type=Path, default=RESULTS / "soak.json", help="where the results go")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/PERFORMANCE.md")
    parser.add_argument("--from", dest="given", type=Path, help="show the results of an earlier run instead")
    choice = parser.parse_args()
    if choice.given:
        soak = Soak.of(json.loads(choice.given.read_text()))
    else:
        soak = run(Pace(choice.minutes, choice.rate))
        choice.results.parent.mkdir(exist_ok=True)
        choice.results.write_text(json.dumps(soak.document(), indent=1))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(Markdown(markdown(soak)))
    if choice.write_docs:
        replace_block(DOCS, BEGIN, markdown(soak))
    return 0


def run(pace: Pace) -> Soak:
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-", dir=CACHE.parent) as name:
        directory = Path(name)
        with weed(directory / "weed") as s3:
            bucket = ["--bucket", f"s3://{s3.new_bucket()}/soak", "--s3-endpoint", s3.endpoint]
            settings = [word for key, value in pace.settings().items() for word in ("--set", f"{key}={value}")]
            with TierlogServer(directory, settings=credentials(), arguments=[*bucket, *settings]) as broker:
                return measure(broker, pace, directory)


def measure(broker: TierlogServer, pace: Pace, directory: Path) -> Soak:
    process, commit = psutil.Process(broker.pid), tierlog_commit()
    clients, series = Clients(broker.bootstrap, pace), Series()
    busy, ours = all_cores_s(), tree_s(psutil.Process())
    broker_s = tree_s(process)
    clients.start()
    try:
        series.record(process, clients.produce_ms, clients.consume_ms, pace)
        broker_s = tree_s(process) - broker_s
        others_s = all_cores_s() - busy - (tree_s(psutil.Process()) - ours)
    finally:
        clients.stop()
    return Soak(
        minutes=pace.minutes,
        rate=pace.rate,
        machine=describe_machine(directory),
        commit=commit,
        broker_cpu_share=broker_s / pace.seconds,
        others_cpu_share=max(0.0, others_s / (pace.seconds * psutil.cpu_count())),
        rebalances=clients.rebalances,
        errors=dict(clients.errors),
        checked=check(broker.bootstrap, clients.acked, pace),
        series=series,
    )


def all_cores_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait


def tree_s(process: psutil.Process) -> float:
    """Returns CPU seconds of a process and all that it started, also of children that have ended."""
    own = process.cpu_times()
    return own.user + own.system + own.children_user + own.children_system + sum(map(tree_s, process.children()))


if __name__ == "__main__":
    sys.exit(main())
