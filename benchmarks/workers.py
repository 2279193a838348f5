"""`python -m benchmarks.workers`: what a second worker brings, in throughput and in CPU.

The same load goes to a service of one worker and to one of two, in turns. The client sends one encoded batch again and
again, so it costs next to nothing but the copy. On a small machine it still takes a core from the workers. So each
worker may use a share of a core only, by a quota of the kernel (`--share`): as long as all shares and the client fit on
the machine, the workers are the limit, and twice the throughput is twice the work done. Where no quota can be set, only
the CPU for a gigabyte is compared. Nothing waits for the disk (`flush=os`); every topic is new.

Prints a table, writes benchmarks/results/workers.json, `--write-docs` puts it into docs/WORKERS.md. Two minutes.
"""

import argparse
import json
import os
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from awscrt.checksums import crc32c
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.peer.jars import CACHE
from benchmarks.report import RESULTS, replace_block
from benchmarks.results import describe_machine, tierlog_commit
from benchmarks.service import TierlogServer

DOCS: Final = Path(__file__).parents[1] / "docs" / "WORKERS.md"
FIGURES: Final = "<!-- figures: written by python -m benchmarks.workers --write-docs -->"
COUNTS: Final = (1, 2)
PARTITIONS: Final = 4
RECORD_BYTES: Final = (1000, 100)
BATCH_BYTES: Final = 64 << 10
IN_FLIGHT: Final = 4
WARM_UP_S: Final = 3.0
REACHED: Final = 0.85
"""The share of their CPU that workers must reach. With less, other work was the limit, and throughputs say nothing."""
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
PERIOD_US: Final = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--share", type=float, default=0.3, help="of a core, for each worker")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/WORKERS.md")
    parser.add_argument("--from", dest="given", type=Path, help="show the results of an earlier run instead")
    choice = parser.parse_args()
    if choice.given is None:
        found = measure(choice.share, choice.seconds, choice.repeats)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "workers.json").write_text(json.dumps(found, indent=1))
    else:
        found = json.loads(choice.given.read_text())
    show(found)
    if choice.write_docs:
        replace_block(DOCS, FIGURES, markdown(found))


# The load


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def record_batch(record_bytes: int) -> bytes:
    count = max(1, BATCH_BYTES // record_bytes)
    records = bytearray()
    for index in range(count):
        value = (b"%08d" % index) * (record_bytes // 8 + 1)
        body = b"\0" + varint(0) + varint(index) + varint(-1) + varint(record_bytes) + value[:record_bytes] + varint(0)
        records += varint(len(body)) + body
    now_ms = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    head = struct.pack(">ibI", -1, 2, crc32c(checked))
    return struct.pack(">qi", 0, len(head) + len(checked)) + head + checked


def produce_request(topic: str, partition: int, batch: bytes) -> bytes:
    """Returns a request of version 7, for one partition, to be acknowledged by the leader."""
    name = topic.encode()
    head = struct.pack(">hhih", 0, 7, 0, 5) + b"bench"
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return struct.pack(">i", len(head) + len(body)) + head + body


class Sender(threading.Thread):
    """Keeps requests for one partition on their way; `acknowledged` counts them."""

    def __init__(self, host: str, port: int, topic: str, partition: int, batch: bytes) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.error = ""
        self._request = produce_request(topic, partition, batch)
        self._error_at = 4 + 4 + 2 + len(topic) + 4 + 4
        self._ending = threading.Event()
        self._connection = socket.create_connection((host, port), timeout=60)

    def run(self) -> None:
        try:
            with self._connection:
                for _ in range(IN_FLIGHT):
                    self._connection.sendall(self._request)
                while not self._ending.is_set():
                    self._take_answer()
                    self._connection.sendall(self._request)
        except (OSError, struct.error) as error:
            self.error = str(error)

    def _take_answer(self) -> None:
        (length,) = struct.unpack(">i", self._connection.recv(4, socket.MSG_WAITALL))
        answer = self._connection.recv(length, socket.MSG_WAITALL)
        (code,) = struct.unpack_from(">h", answer, self._error_at)
        if code:
            raise OSError(f"error {code}")
        self.acknowledged += 1

    def end(self) -> None:
        self._ending.set()
        self.join()
        if self.error:
            raise SystemExit(f"the load failed: {self.error}")


# The shares


class Shares:
    """A control group for each worker, gone at the end. Linux may offer none; then `possible` is false."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._groups: list[Path] = []
        self.possible = True

    def give(self, pids: Sequence[int]) -> None:
        for core, pid in enumerate(pids):
            os.sched_setaffinity(pid, {core % (os.cpu_count() or 1)})
        with self._unless_refused():
            for pid in pids:
                self._groups.append(self._group(pid))
                (self._groups[-1] / "cgroup.procs").write_text(str(pid))

    def _group(self, pid: int) -> Path:
        quota = int(self._share * PERIOD_US)
        if V1.exists():
            (group := V1 / f"tierlog-bench-{pid}").mkdir()
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group := V2 / f"tierlog-bench-{pid}").mkdir()
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        return group

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.possible = False

    def remove(self) -> None:
        """Call it when the workers are gone."""
        for group in self._groups:
            with suppress(OSError):
                group.rmdir()
        self._groups.clear()


# Measuring


def workers_of(server: TierlogServer) -> list[psutil.Process]:
    found = [each for each in psutil.Process(server.pid).children() if "tierlog.workers.worker" in each.cmdline()]
    return sorted(found, key=lambda each: each.cmdline()[3])


def cpu_of(processes: Sequence[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (each.cpu_times() for each in processes))


def load(server: TierlogServer, topic: str, record_bytes: int, seconds: float) -> dict[str, float]:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"flush": "os"})])
    made[topic].result(30)
    seen = admin.list_topics(topic, timeout=30)
    batch = record_batch(record_bytes)
    senders = []
    for partition, state in seen.topics[topic].partitions.items():
        leader = seen.brokers[state.leader]
        senders.append(Sender(leader.host, leader.port, topic, partition, batch))
    workers, client = workers_of(server), psutil.Process()
    for each in senders:
        each.start()
    time.sleep(WARM_UP_S)
    began, cpu, client_cpu = time.monotonic(), cpu_of(workers), cpu_of([client])
    sent = sum(each.acknowledged for each in senders)
    time.sleep(seconds)
    sent = sum(each.acknowledged for each in senders) - sent
    elapsed, cpu, client_cpu = time.monotonic() - began, cpu_of(workers) - cpu, cpu_of([client]) - client_cpu
    for each in senders:
        each.end()
    admin.delete_topics([topic])[topic].result(30)
    gigabytes = sent * len(batch) / 1e9
    return {
        "mb_per_s": 1000 * gigabytes / elapsed,
        "cpu_s_per_gb": cpu / gigabytes,
        "worker_cores": cpu / elapsed,
        "client_cores": client_cpu / elapsed,
    }


def measure(share: float, seconds: float, repeats: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    memory: dict[str, Any] = {}
    possible = True
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name:
        directory = Path(name)
        machine = describe_machine(directory)
        others = psutil.cpu_times()
        for turn in range(repeats):
            for count in COUNTS if turn % 2 == 0 else reversed(COUNTS):
                place = directory / f"{count}-{turn}"
                place.mkdir()
                shares = Shares(share)
                server = TierlogServer(place, arguments=["--workers", str(count)])
                try:
                    server.start()
                    memory = memory_of(workers_of(server), psutil.Process(server.pid))
                    shares.give([each.pid for each in workers_of(server)])
                    possible &= shares.possible
                    for size in RECORD_BYTES:
                        figures = load(server, f"t{size}", size, seconds)
                        rows.append({"workers": count, "record_bytes": size, "turn": turn, **figures})
                finally:
                    server.stop()
                    shares.remove()
        now = psutil.cpu_times()
    return {
        "machine": machine,
        "tierlog": tierlog_commit(),
        "share": share if possible else None,
        "rows": rows,
        "memory": memory,
        "steal_s": round(now.steal - others.steal, 1),
    }


def memory_of(workers: Sequence[psutil.Process], supervisor: psutil.Process) -> dict[str, Any]:
    """Returns megabytes: what a worker has for itself, and the supervisor."""
    own = [each.memory_full_info() for each in workers]
    return {
        "worker_rss_mb": round(statistics.mean(each.rss for each in own) / 1e6),
        "worker_own_mb": round(statistics.mean(each.uss for each in own) / 1e6),
        "supervisor_rss_mb": round(supervisor.memory_info().rss / 1e6),
    }


# Showing


def medians(found: dict[str, Any], size: int) -> dict[int, dict[str, float]]:
    return {
        count: {
            name: statistics.median(
                row[name] for row in found["rows"] if (row["workers"], row["record_bytes"]) == (count, size)
            )
            for name in ("mb_per_s", "cpu_s_per_gb", "worker_cores", "client_cores")
        }
        for count in COUNTS
    }


def reached(found: dict[str, Any], size: int) -> float:
    """Returns how much of their shares the workers used, at the least."""
    if not found["share"]:
        return 0.0
    return min(each["worker_cores"] / count / found["share"] for count, each in medians(found, size).items())


HEADS: Final = ("records", "workers", "MB/s", "times one", "worker CPU s/GB", "of one", "cores of workers", "of client")


def table_rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for size in RECORD_BYTES:
        by_count = medians(found, size)
        one = by_count[COUNTS[0]]
        for count, each in by_count.items():
            yield (
                f"{size} B",
                str(count),
                f"{each['mb_per_s']:.0f}",
                f"{each['mb_per_s'] / one['mb_per_s']:.2f}" if reached(found, size) >= REACHED else "not measured",
                f"{each['cpu_s_per_gb']:.2f}",
                f"{each['cpu_s_per_gb'] / one['cpu_s_per_gb']:.2f}",
                f"{each['worker_cores']:.2f}",
                f"{each['client_cores']:.2f}",
            )


def show(found: dict[str, Any]) -> None:
    table = Table(*HEADS, box=None)
    for row in table_rows(found):
        table.add_row(*row)
    Console(width=120).print(table)
    print(json.dumps(found["memory"]))


def markdown(found: dict[str, Any]) -> str:
    machine, memory = found["machine"], found["memory"]
    limit = f"each worker may use {found['share']:.0%} of a core" if found["share"] else "without quotas"
    used = min(reached(found, size) for size in RECORD_BYTES)
    if found["share"] and used < REACHED:
        limit += f"; other work on the machine left them {used:.0%} of that, so throughputs are not compared"
    where = f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}"
    lines = [
        f"{where}; tierlog {found['tierlog']}; {limit}. "
        f"Medians; a worker's base memory is {memory['worker_rss_mb']} MB, {memory['worker_own_mb']} MB of it its own, "
        f"the supervisor's {memory['supervisor_rss_mb']} MB.",
        "",
        "| " + " | ".join(HEADS) + " |",
        "|---" * len(HEADS) + "|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in table_rows(found))])


if __name__ == "__main__":
    main()
