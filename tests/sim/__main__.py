"""Runs seeds until one fails: `python -m tests.sim --seeds 5000`, `--seed 17` for one with its trace."""

import argparse
import sys
import time

from tests.sim.rules import MUTANTS, RULES
from tests.sim.simulation import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many to run")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this mistake in the rules")
    asked = parser.parse_args()
    rules = MUTANTS[asked.mutant] if asked.mutant else RULES
    if asked.seed is not None:
        report = run(asked.seed, rules, tracing=True)
        print("\n".join(report.trace))
        print(report.violation or f"no violation: {report.acks} acks, {report.reads} reads")
        return int(report.violation is not None)
    began = time.monotonic()
    acks = elections = abandoned = 0
    for seed in range(asked.start, asked.start + asked.seeds):
        report = run(seed, rules)
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
