"""A broker under fire, a producer beside it, and how long both were held up.

The broker and the producer are processes of their own, so that nothing the gunner does is measured as theirs. The guns
have a lower priority: on a machine with two cores they would take from the broker the processor that clients elsewhere
do not. The same figures are taken first while nothing is fired: what a busy machine does to an idle broker is not the
broker's fault.
"""

import multiprocessing
import os
import re
import socket
import struct
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import psutil

from gateway.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.fuzz.shots import SMALL, WIDE, Shot
from tests.gateway.kafka.batches import batch
from tests.gateway.kafka.wire import request_frame
from tierlog.process import ServeProcess

ANSWER_S = 60
WIDE_PARTITIONS = 1000
QUIET = "quiet"
"""The topic that the producer writes to."""
PAUSE_S = 0.002
"""Between two requests of the producer."""
GUNS = 3
GUNS_NICE = 10


@dataclass
class Figures:
    longest_delay_s: float
    """Rounded up to a bound of the histogram."""
    latencies_s: list[float] = field(default_factory=list)
    rss_bytes: int = 0

    @property
    def p99_s(self) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[int(len(ordered) * 0.99)]


def connect(address: str, timeout_s: float = ANSWER_S) -> socket.socket:
    host, port = address.rsplit(":", 1)
    made = socket.create_connection((host, int(port)), timeout=timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def ask(connection: socket.socket, frame: bytes) -> int:
    """Send a Kafka request and read its answer; how long that was, -1 if the other side closed."""
    try:
        connection.sendall(frame)
        head = _receive(connection, 4)
        size = struct.unpack(">i", head)[0]
        left = size
        while left:
            chunk = connection.recv(min(left, 1 << 20))
            if not chunk:
                return -1
            left -= len(chunk)
    except (ConnectionResetError, BrokenPipeError, EOFError):
        return -1
    return size


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


class Doors(Protocol):
    """Where a broker listens."""

    kafka: str
    http: str


def fire(service: Doors, shot: Shot) -> None:
    """A broker that does not answer or close within `ANSWER_S` fails here."""
    if shot.door == "kafka":
        with connect(service.kafka) as connection:
            ask(connection, shot.data)
        return
    with connect(service.http) as connection:
        try:
            connection.sendall(shot.data)
            while connection.recv(1 << 20):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass


def plant(service: Doors) -> None:
    topics = [CreatableTopic(WIDE, WIDE_PARTITIONS, 1), *(CreatableTopic(name, 1, 1) for name in (QUIET, *SMALL))]
    with connect(service.kafka) as connection:
        assert ask(connection, request_frame(CreateTopicsRequest(topics, timeout_ms=30_000), 5)) > 0


def loop_delays(service: ServeProcess) -> Counter[float]:
    """How often the loop was late, by the bound of the histogram's bucket."""
    with urllib.request.urlopen(f"http://{service.http}/metrics", timeout=ANSWER_S) as answer:
        text = answer.read().decode()
    found = re.findall(r'^tierlog_loop_delay_seconds_bucket{le="(\S+)"} (\S+)', text, re.MULTILINE)
    assert found
    counts: Counter[float] = Counter()
    below = 0.0
    for bound, count in found:
        counts[float(bound)] = int(float(count) - below)
        below = float(count)
    return counts


def _produce(address: str, stop: Any, results: Any) -> None:
    data = [TopicProduceData(name=QUIET, partition_data=[PartitionProduceData(0, bytes(batch(b"x" * 100)))])]
    frame = request_frame(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data), 9)
    latencies: list[tuple[float, float]] = []
    with connect(address) as connection:
        while not stop.is_set():
            began = time.monotonic()
            assert ask(connection, frame) > 0
            latencies.append((began, time.monotonic() - began))
            time.sleep(PAUSE_S)
    results.put(latencies)


@contextmanager
def producer(service: ServeProcess) -> Iterator[list[tuple[float, float]]]:
    """A producer process while the block runs; afterwards the list holds when each request began and what it took."""
    context = multiprocessing.get_context("fork")
    stop, results = context.Event(), context.Queue()
    process = context.Process(target=_produce, args=(service.kafka, stop, results))
    process.start()
    latencies: list[tuple[float, float]] = []
    try:
        yield latencies
        stop.set()
        latencies += results.get(timeout=ANSWER_S)
        process.join(ANSWER_S)
    finally:
        process.kill()


def at_rest(service: ServeProcess, seconds: float) -> Figures:
    before = loop_delays(service)
    with producer(service) as latencies:
        time.sleep(seconds)
    return Figures(max(loop_delays(service) - before), [each for _, each in latencies])


def under_fire(service: ServeProcess, shots: Sequence[Shot]) -> tuple[Figures, list[str]]:
    """The figures, and which shots were in the air in the worst moments of the producer."""
    waiting = list(shots)
    flights: list[tuple[float, float, str]] = []
    failures: list[BaseException] = []

    def gun() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), GUNS_NICE)
        while waiting and not failures:
            shot = waiting.pop()
            began = time.monotonic()
            try:
                fire(service, shot)
            except BaseException as error:
                failures.append(AssertionError(f"{shot.name}: {error!r}"))
            flights.append((began, time.monotonic(), shot.name))

    assert service.process is not None
    process = psutil.Process(service.process.pid)
    rss_bytes = 0
    before = loop_delays(service)
    with producer(service) as latencies:
        guns = [threading.Thread(target=gun) for _ in range(GUNS)]
        for each in guns:
            each.start()
        while any(each.is_alive() for each in guns):
            rss_bytes = max(rss_bytes, process.memory_info().rss)
            time.sleep(0.02)
    if failures:
        raise failures[0]
    figures = Figures(max(loop_delays(service) - before), [each for _, each in latencies], rss_bytes)
    worst = sorted(latencies, key=lambda each: -each[1])[:5]
    suspects = [
        f"{took * 1000:.0f} ms: " + "; ".join(name for start, end, name in flights if start < at + took and end > at)
        for at, took in worst
    ]
    return figures, suspects
