"""`python -m benchmarks.costs`: computes what a GB and a batch cost, for `tierlog plan`, from docs/PERFORMANCE.md.

The benchmarks write those figures; this program only reads them. CPU per GB at three sizes of batch gives a line, which
begins at the cost of a byte. The fixed cost of a batch and of a fetch is measured with small ones (`benchmarks.small`):
there each is a request of its own, like those of thousands of clients.
"""

import json
import re
from dataclasses import asdict
from pathlib import Path
from statistics import linear_regression

from benchmarks import small
from benchmarks.events import event_batches
from hot_tier.record.compression import Codec
from tierlog.capacity import Cpu, Measured

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "PERFORMANCE.md"
TARGET = ROOT / "tierlog" / "measured.json"
BATCHES_KB = (16, 64, 1000)
EVENTS_BYTES = 16 << 20


def costs(page: str) -> Measured:
    one_node, _, cluster = page.partition("## Three brokers")
    replicated = cpu(cluster, "produce: 1000 B, none, acks=all, 64 KB batches")[0]
    alone = cpu(one_node, "produce: 1000 B, none, acks=all, 64 KB batches")[0]
    each_copy = (replicated - alone) / 2
    consume = cpu(one_node, "consume: 1000 B, none")
    speed, share = figure(page, r"log bytes per core \| (\d+) MB/s"), figure(page, r"/ lz4 batches \| ([\d.]+)%")
    lz4 = compressed_share()
    batch, fetch = (cpu(page, f"{group}: {small.JOB}", "µs") for group in (small.PRODUCE, small.FETCH))
    per_gb = per_byte(one_node, "produce, synced", 0), per_byte(one_node, "produce", 1)
    return Measured(
        tierlog=Cpu(per_gb[0], batch[0] / 1e6, fetch[0] / 1e6, consume[0], each_copy),
        kafka=Cpu(per_gb[1], batch[1] / 1e6, fetch[1] / 1e6, consume[1], each_copy),
        archive_per_gb=1000 / speed,
        lz4=lz4,
        archived=lz4 * share / 100,
        source=f"docs/PERFORMANCE.md: {commit(page)}; small ones {commit(page.partition(small.FIGURES)[2])}",
    )


def per_byte(page: str, group: str, side: int) -> float:
    """Returns seconds per GB without what each batch takes, as `side` is by default: tierlog synced, Kafka not."""
    found = [cpu(page, f"{group}: 1000 B, none, acks=all, {size} KB batches")[side] for size in BATCHES_KB]
    return max(0.0, linear_regression([1 / size for size in BATCHES_KB], found).intercept)


def cpu(page: str, job: str, unit: str = "s/GB") -> tuple[float, float]:
    row = rf"^\| {re.escape(job)} \| broker CPU {unit} \| ([\d.]+) \| ([\d.]+) \|"
    found = re.search(row, page, re.MULTILINE)
    if found is None:
        raise SystemExit(
            f"docs/PERFORMANCE.md has no CPU figure of «{job}»: run make bench, or change benchmarks/costs.py"
        )
    return float(found[1]), float(found[2])


def commit(page: str) -> str:
    """Returns the commit of the first figures in the page."""
    return re.findall(r"tierlog [0-9a-f]{7}", page)[0]


def figure(page: str, pattern: str) -> float:
    found = re.search(pattern.replace(" ", r"\s+"), page)
    if found is None:
        raise SystemExit(f"docs/PERFORMANCE.md does not say {pattern!r} any more: change benchmarks/costs.py")
    return float(found[1])


def compressed_share() -> float:
    """Returns the share of bytes that lz4 leaves, for realistic events in batches of 64 KB, the same in every run."""
    raw, _ = event_batches(EVENTS_BYTES, Codec.NONE)
    lz4, _ = event_batches(EVENTS_BYTES, Codec.LZ4)
    return len(lz4) / len(raw)


def rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def text() -> str:
    return json.dumps(rounded(asdict(costs(PAGE.read_text()))), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
