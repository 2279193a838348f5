"""Runs seeds until one fails: `python -m tests.sim --seeds 5000`, `--seed 17` for one with its trace.

With `--archive` brokers archive, on a bucket that fails. With `--transactions` it is the simulation of transactions.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.sim import archive_mutants, archive_simulation, rules, simulation
from tests.sim.transactions import rules as transaction_rules
from tests.sim.transactions import simulation as transaction_simulation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many to run")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--archive", action="store_true", help="with brokers that archive on a bucket that fails")
    parser.add_argument("--transactions", action="store_true", help="transactions, their coordinator and their markers")
    parser.add_argument("--mutant", help="with this mistake in the rules")
    asked = parser.parse_args()
    run: Any = archive_simulation.run if asked.archive else simulation.run
    mutants: Mapping[str, Any] = archive_mutants.MUTANTS if asked.archive else rules.MUTANTS
    sound: Any = rules.RULES
    if asked.transactions:
        run, mutants, sound = transaction_simulation.run, transaction_rules.MUTANTS, transaction_rules.RULES
    if asked.mutant and asked.mutant not in mutants:
        parser.error("--mutant is one of " + "; ".join(mutants))
    chosen = mutants[asked.mutant] if asked.mutant else sound
    if asked.seed is not None:
        report = run(asked.seed, chosen, tracing=True)
        print("\n".join(report.trace))
        print(report.violation or f"no violation: {report.acks} acks, {report.reads} reads")
        return int(report.violation is not None)
    began = time.monotonic()
    acks = elections = abandoned = 0
    for seed in range(asked.start, asked.start + asked.seeds):
        report = run(seed, chosen)
        acks, elections, abandoned = acks + report.acks, elections + report.elections, abandoned + report.abandoned
        if report.violation is not None:
            print(f"seed {seed}: {report.violation}")
            return 1
        if (done := seed - asked.start + 1) % 100 == 0:
            print(f"{done} of {asked.seeds} seeds, {acks} acks, {elections} elections", file=sys.stderr)
    took_s = time.monotonic() - began
    print(f"{asked.seeds} seeds in {took_s:.1f} s: {acks} acks, {elections} elections, {abandoned} partitions given up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
