"""`python -m benchmarks`: compares tierlog with Apache Kafka on this machine, as ratios.

Prints a table, writes benchmarks/results/latest.json and latest.png. `--quick` takes under three minutes, the full run
under twenty. Data goes to .cache/, on the disk of the repository.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.client import load
from benchmarks.peer.jars import CACHE, PeerUnavailable, jars_dir, java
from benchmarks.plan import full_plan, quick_plan
from benchmarks.process import BrokerFailed
from benchmarks.report import BEGIN, DOCS, RESULTS, print_table, readme_block, replace_block, write_docs, write_plot
from benchmarks.results import Results
from benchmarks.run import carry_out

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
NEEDED_BYTES = 8 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a first look in under three minutes")
    parser.add_argument("--write-docs", action="store_true", help="put the figures of a full run into docs and README")
    parser.add_argument("--from", dest="given", type=Path, help="show the results of an earlier run instead")
    choice = parser.parse_args()
    if choice.quick and choice.write_docs:
        parser.error("a quick run is too noisy for the docs: leave out --quick")
    console = Console() if sys.stdout.isatty() else Console(width=120)
    if choice.given:
        results = Results.read(choice.given)
    else:
        try:
            results = measure(choice.quick, console)
        except (PeerUnavailable, load.LoadFailed, BrokerFailed) as error:
            console.print(f"[bold red]The benchmark cannot go on:[/] {error}")
            return 1
    print_table(results, console)
    if choice.write_docs:
        write_docs(results, DOCS)
        replace_block(README, BEGIN, readme_block(results))
        console.print(f"figures in {DOCS} and {README}")
    return 0


def measure(quick: bool, console: Console) -> Results:
    java()
    jars_dir()
    load.build()
    if shutil.disk_usage(CACHE).free < NEEDED_BYTES:
        raise load.LoadFailed(f"less than {NEEDED_BYTES >> 30} GB free below {CACHE}")
    RESULTS.mkdir(exist_ok=True)
    plan = quick_plan() if quick else full_plan()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as directory:
        results = carry_out(plan, Path(directory), RESULTS / "unfinished.json", quick=quick, console=console)
    (RESULTS / "unfinished.json").rename(RESULTS / "latest.json")
    results.write(RESULTS / "latest.json")
    write_plot(results, RESULTS / "latest.png")
    console.print(f"results in {RESULTS}/latest.json and latest.png")
    return results


if __name__ == "__main__":
    sys.exit(main())
