"""A run for people: the slopes as a table, and the block of figures in docs/PERFORMANCE.md."""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.soak.samples import Latencies, Sample, Series
from benchmarks.soak.slopes import Slope, theil_sen

PARTS = 12
BEGIN = "<!-- figures: written by python -m benchmarks.soak --write-docs -->"
COLUMNS = {
    "rss_mb": "memory of the broker, MB",
    "workers_rss_mb": "memory of its archive worker, MB",
    "open_files": "open files",
    "threads": "threads",
    "produce.p50": "produce to ack, p50 ms",
    "produce.p99": "produce to ack, p99 ms",
    "consume.p50": "produce to consumer, p50 ms",
    "consume.p99": "produce to consumer, p99 ms",
}


@dataclass(slots=True)
class Soak:
    minutes: float
    rate: int
    machine: dict[str, Any]
    commit: str
    broker_cpu_share: float
    others_cpu_share: float
    rebalances: int
    errors: dict[str, int]
    checked: dict[str, int]
    series: Series

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "slopes": {name: asdict(slope) for name, slope in self.slopes().items()}}

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Soak":
        rows = document["series"]
        latencies = {name: [Latencies(**row) for row in rows[name]] for name in ("produce", "consume")}
        series = Series([Sample(**row) for row in rows["samples"]], **latencies)
        return cls(**{name: value for name, value in document.items() if name != "slopes"} | {"series": series})

    def slopes(self) -> dict[str, Slope]:
        return {name: theil_sen(*self.series.after_warm_up(name)) for name in COLUMNS}


def markdown(soak: Soak) -> str:
    produced = sum(period.count for period in soak.series.produce)
    lines = [
        f"{soak.minutes:g} minutes on {soak.machine['cores']} cores of {soak.machine['cpu']}, tierlog {soak.commit}: "
        f"{soak.rate} records of 1 KB a second to an archived topic and a quarter as many to a compacted one. The "
        f"broker and its worker used {soak.broker_cpu_share:.0%} of one core. Other work on the machine used "
        f"{soak.others_cpu_share:.0%} of all cores, which is part of the latencies.",
        "",
        f"{produced:,} records were acknowledged, and members of groups were given partitions {soak.rebalances:,} "
        f"times. At the end {soak.checked['kept']:,} records that retention had kept were read and were what was sent; "
        f"{soak.checked['removed by retention']:,} had been removed, none early; {soak.checked['keys']:,} keys had "
        f"their newest value. Errors that clients saw: {sum(soak.errors.values())}.",
        "",
        "| | median | per hour | 95 % sure between | |",
        "|---|---:|---:|---:|---|",
    ]
    for name, slope in soak.slopes().items():
        verdict = slope.verdict if slope.verdict == "flat" else f"**{slope.verdict}**"
        ends = f"{slope.low:+.2f} and {slope.high:+.2f}"
        lines.append(f"| {COLUMNS[name]} | {slope.median:.1f} | {slope.per_hour:+.2f} | {ends} | {verdict} |")
    halves = " and ".join(f"{theil_sen(*half).per_hour:+.1f}" for half in soak.series.halves("rss_mb"))
    lines += ["", f"Memory of the broker per hour, in the first and in the second half of that time, MB: {halves}."]
    lows = ", ".join(f"{low:.0f}" for low in soak.series.lowest("rss_mb", PARTS))
    lines += ["", f"Lowest memory of the broker in each of {PARTS} parts of the run, MB: {lows}."]
    return "\n".join(lines)
