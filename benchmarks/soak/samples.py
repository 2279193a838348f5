"""What a run looks like over time: the process at each sample, the latencies of each period."""

import threading
import time
from dataclasses import asdict, dataclass, field

import numpy as np
import psutil

from benchmarks.soak.pace import Pace

WARM_UP_SHARE = 1 / 3
"""Caches fill and kernels compile before this share of the run is over."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    rss_mb: float
    workers_rss_mb: float
    open_files: int
    threads: int


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latencies of one period, in milliseconds."""

    at_s: float
    count: int
    p50: float
    p99: float
    p999: float
    slowest: float


def take(at_s: float, broker: psutil.Process) -> Sample:
    workers = 0
    for child in broker.children(recursive=True):
        try:
            workers += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    with broker.oneshot():
        return Sample(at_s, broker.memory_info().rss / 1e6, workers / 1e6, broker.num_fds(), broker.num_threads())


class Stopwatch:
    """Latencies since they were last collected, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: list[float] = []

    def add(self, milliseconds: float) -> None:
        with self._lock:
            self._taken.append(milliseconds)

    def collect(self, at_s: float) -> Latencies | None:
        with self._lock:
            taken, self._taken = self._taken, []
        if not taken:
            return None
        p50, p99, p999 = (float(value) for value in np.percentile(taken, (50, 99, 99.9)))
        return Latencies(at_s, len(taken), p50, p99, p999, max(taken))


@dataclass(slots=True)
class Series:
    samples: list[Sample] = field(default_factory=list)
    produce: list[Latencies] = field(default_factory=list)
    consume: list[Latencies] = field(default_factory=list)

    def record(self, broker: psutil.Process, produce: Stopwatch, consume: Stopwatch, pace: Pace) -> None:
        """Takes samples until the run is over."""
        began, periods = time.monotonic(), 0
        while (now_s := time.monotonic() - began) < pace.seconds:
            self.samples.append(take(now_s, broker))
            if now_s >= (periods + 1) * pace.period_s:
                periods = int(now_s / pace.period_s)
                for watch, found in ((produce, self.produce), (consume, self.consume)):
                    found += [latencies] if (latencies := watch.collect(now_s)) else []
            time.sleep(pace.sample_s)

    def lowest(self, column: str, parts: int) -> list[float]:
        """Returns the least value in each of so many parts of the run: it leaves out memory that comes and goes."""
        rows = np.array_split([float(asdict(row)[column]) for row in self.samples], parts)
        return [float(part.min()) for part in rows if len(part)]

    def halves(self, column: str) -> list[tuple[list[float], list[float]]]:
        """Returns the two halves of the time after the warm-up. A leak grows in both, a cache less in the second."""
        hours, values = self.after_warm_up(column)
        middle = len(hours) // 2
        return [(hours[:middle], values[:middle]), (hours[middle:], values[middle:])]

    def after_warm_up(self, name: str) -> tuple[list[float], list[float]]:
        """Returns hours and values of a column such as `rss_mb` or `produce.p99`."""
        kind, _, column = name.rpartition(".")
        rows: list[Sample] | list[Latencies] = getattr(self, kind or "samples")
        begin = rows[-1].at_s * WARM_UP_SHARE
        kept = [row for row in rows if row.at_s >= begin]
        return [row.at_s / 3600 for row in kept], [float(asdict(row)[column]) for row in kept]
