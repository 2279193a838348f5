"""The results of a run: samples per row, with the machine, versions and limits."""

import json
import os
import platform
import statistics
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from benchmarks.limits import Limits
from benchmarks.peer.jars import kafka_version

TARGET_RATIO = {"MB/s": 1.5, "records/s": 1.5, "k requests/s": 1.5}
LESS_IS_BETTER = ("ms", "µs", "s/GB", "start s", "MB RSS")


@dataclass(slots=True)
class Row:
    """One figure of one job, measured on both brokers in turns."""

    group: str
    job: str
    unit: str
    tierlog: list[float] = field(default_factory=list)
    kafka: list[float] = field(default_factory=list)

    @property
    def medians(self) -> tuple[float, float]:
        return statistics.median(self.tierlog), statistics.median(self.kafka)

    @property
    def less_is_better(self) -> bool:
        return self.unit.endswith(LESS_IS_BETTER)

    @property
    def ratio(self) -> float:
        """Returns how many times better tierlog is. Above 1 is better, also for units where less is better."""
        ours, theirs = self.medians
        return theirs / ours if self.less_is_better else ours / theirs

    @property
    def verdict(self) -> str:
        if self.ratio < 1.0:
            return "falls short"
        return "target met" if self.ratio >= TARGET_RATIO.get(self.unit, 1.0) else "no worse"


@dataclass(slots=True)
class Results:
    machine: dict[str, Any]
    versions: dict[str, str]
    limits: Limits
    quick: bool
    rows: list[Row] = field(default_factory=list)
    others_cpu_share: float = 0.0
    minutes: float = 0.0

    def row(self, group: str, job: str, unit: str) -> Row:
        for row in self.rows:
            if (row.group, row.job, row.unit) == (group, job, unit):
                return row
        self.rows.append(Row(group, job, unit))
        return self.rows[-1]

    def best(self, group: str) -> float:
        return max((row.medians[0] for row in self.rows if row.group == group and row.unit == "MB/s"), default=0.0)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> "Results":
        raw = json.loads(path.read_text())
        return cls(**{**raw, "limits": Limits(**raw["limits"]), "rows": [Row(**row) for row in raw["rows"]]})


def describe_machine(directory: Path) -> dict[str, Any]:
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "unknown")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "file_system": _file_system(directory),
    }


def describe_versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "tierlog": tierlog_commit(),
        "kafka": kafka_version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "java": java[0] if java else "none",
        "python": platform.python_version(),
    }


def tierlog_commit() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return commit.stdout.strip() or "unknown"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _file_system(directory: Path) -> str:
    mounts = [part for part in psutil.disk_partitions(all=True) if str(directory).startswith(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"
