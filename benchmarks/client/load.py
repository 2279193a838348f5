"""Builds the load generators once and runs them: `client` is librdkafka, `raw` has no client library.

Each run is its own process and returns one measurement.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka

SOURCE, RAW_SOURCE = (Path(__file__).with_name(name) for name in ("client.c", "raw.c"))
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "client"
RUN_TIMEOUT_S = 180


class LoadFailed(Exception):
    """The load generator could not be built, or a run of it failed."""


@dataclass(frozen=True, slots=True)
class Throughput:
    records: int
    bytes: int
    seconds: float
    client_cpu_seconds: float

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Requests:
    requests: int
    seconds: float
    latency: Latency


def build() -> Path:
    """Returns the program on librdkafka."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (library,) = libraries.glob("librdkafka*.so*")
    linked = (str(library), f"-Wl,-rpath,{libraries}", "-lpthread")
    return _compiled(SOURCE, CACHE / f"client-{confluent_kafka.libversion()[0]}", *linked)


def _compiled(source: Path, program: Path, *linked: str) -> Path:
    """Compiles the program again if its source is newer."""
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoadFailed("no C compiler on PATH for the load generator (Debian: gcc)")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-o", str(program), str(source), *linked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise LoadFailed(f"cannot compile {source}:\n{done.stderr}")
    return program


def _run(job: str, *arguments: str, settings: Mapping[str, str]) -> dict[str, float]:
    return _answer_of([str(build()), job, *arguments, *(f"{key}={value}" for key, value in settings.items())])


def _run_raw(job: str, bootstrap: str, topic: str, *numbers: object) -> dict[str, float]:
    host, port = bootstrap.rsplit(":", 1)
    return _answer_of([str(_compiled(RAW_SOURCE, CACHE / "raw")), job, host, port, topic, *map(str, numbers)])


def _answer_of(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S)
    if done.returncode != 0:
        raise LoadFailed(f"{' '.join(command[1:])}:\n{done.stdout}{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout)
    if answer.get("failed") or answer.get("unanswered"):
        raise LoadFailed(f"{' '.join(command[1:])}: {answer}\n{done.stderr}")
    return answer


def _throughput(answer: dict[str, float]) -> Throughput:
    return Throughput(int(answer["records"]), int(answer["bytes"]), answer["seconds"], answer["client_cpu_seconds"])


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    records: Path,
    record_bytes: int,
    settings: Mapping[str, str],
    *,
    seconds: float = 0,
    count: int = 0,
) -> Throughput:
    """Sends records for `seconds`, or `count` records, and waits until the last one is acknowledged."""
    numbers = (str(partitions), str(records), str(record_bytes), str(seconds), str(count))
    return _throughput(_run("produce", bootstrap, topic, *numbers, settings=settings))


def consume(bootstrap: str, topic: str, partitions: int, count: int, settings: Mapping[str, str]) -> Throughput:
    """Reads `count` records from the beginning. The time is from the first record that arrives to the last."""
    return _throughput(_run("consume", bootstrap, topic, str(partitions), str(count), settings=settings))


def latency(
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    rate: int,
    seconds: float,
    settings: Mapping[str, str],
) -> Latency:
    """Measures the time from when each record was due to leave the producer until the consumer has it."""
    numbers = (str(partitions), str(record_bytes), str(rate), str(seconds))
    answer = _run("latency", bootstrap, topic, *numbers, settings={"consumer:enable.partition.eof": "true", **settings})
    return Latency(answer["p50_ms"], answer["p99_ms"], answer["p999_ms"], answer["max_ms"])


def transactions(
    bootstrap: str,
    topic: str,
    partitions: int,
    record_bytes: int,
    per_transaction: int,
    seconds: float,
    settings: Mapping[str, str],
) -> tuple[Throughput, Latency]:
    """Runs one transaction after the other, each with so many records. The latency is that of the commits."""
    numbers = (str(partitions), str(record_bytes), str(per_transaction), str(seconds))
    answer = _run("transactions", bootstrap, topic, *numbers, settings=settings)
    return _throughput(answer), Latency(answer["p50_ms"], answer["p99_ms"], answer["p999_ms"], answer["max_ms"])


def connect(bootstrap: str, count: int, settings: Mapping[str, str]) -> float:
    """Connects `count` times, one after the other, and reads metadata each time. Returns the seconds."""
    return _run("connect", bootstrap, str(count), settings=settings)["seconds"]


def raw_fetch(bootstrap: str, topic: str, partitions: int, readers: int, each_bytes: int) -> Throughput:
    """Each reader reads so many bytes of batches from the beginning."""
    answer = _run_raw("fetch", bootstrap, topic, partitions, readers, each_bytes)
    return _throughput(answer)


def raw_produce(bootstrap: str, topic: str, partitions: int, connections: int, batch: Path, seconds: float) -> Requests:
    """Each connection sends the batch again and again, one request at a time, with acks=1."""
    answer = _run_raw("produce", bootstrap, topic, partitions, connections, 1, batch, seconds)
    latency = Latency(answer["p50_ms"], answer["p99_ms"], answer["p999_ms"], answer["max_ms"])
    return Requests(int(answer["requests"]), answer["seconds"], latency)
