"""`python -m benchmarks.scale`: one broker at the sizes of a large cluster.

100,000 partitions of metadata, 10,000 idle connections, 1,000 consumer groups. Prints figures and writes
benchmarks/results/scale.json. Takes about four minutes.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.markdown import Markdown

from benchmarks.__main__ import HERE
from benchmarks.client import load
from benchmarks.peer.jars import CACHE
from benchmarks.report import RESULTS, replace_block
from benchmarks.results import describe_machine, tierlog_commit
from benchmarks.scale import connections, metadata
from benchmarks.scale.report import BEGIN, markdown

DOCS = HERE.parent / "docs" / "CAPACITY.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10_000, 100_000], help="sizes of the cluster")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--results", type=Path, default=RESULTS / "scale.json", help="where the results go")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/CAPACITY.md")
    parser.add_argument("--from", dest="given", type=Path, help="show the results of an earlier run instead")
    choice = parser.parse_args()
    if choice.given:
        found = json.loads(choice.given.read_text())
    else:
        found = run(choice.partitions, choice.connections, choice.groups)
        choice.results.parent.mkdir(exist_ok=True)
        choice.results.write_text(json.dumps(found, indent=1))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(Markdown(markdown(found)))
    if choice.write_docs:
        replace_block(DOCS, BEGIN, markdown(found))
    return 0


def run(partitions: list[int], idle: int, groups: int) -> dict[str, Any]:
    load.build()
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="scale-", dir=CACHE.parent) as name:
        directory = Path(name)
        began, busy = time.monotonic(), busy_s()
        found: dict[str, Any] = {"machine": describe_machine(directory), "commit": tierlog_commit()}
        found["connections"] = connections.measure(_made(directory / "connections"), idle, groups)
        found["metadata"] = [metadata.measure(_made(directory / f"metadata-{size}"), size) for size in partitions]
        found["busy_cores"] = (busy_s() - busy) / (time.monotonic() - began)
        return found


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait


if __name__ == "__main__":
    sys.exit(main())
