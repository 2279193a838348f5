"""Measures the limits of this machine, which hold for both brokers."""

import os
import socket
import statistics
import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

BLOCK = bytes(64 << 10)


@dataclass(frozen=True, slots=True)
class Limits:
    page_cache_write_mb_per_s: float
    synced_write_mb_per_s: float
    small_sync_ms: float
    loopback_mb_per_s: float


def measure(directory: Path) -> Limits:
    return Limits(
        page_cache_write_mb_per_s=_best(lambda: _write(directory / "limit", 512 << 20, sync=False)),
        synced_write_mb_per_s=_write(directory / "limit", 512 << 20, sync=True),
        small_sync_ms=_small_sync(directory / "limit"),
        loopback_mb_per_s=_best(_loopback),
    )


def _best(run, times: int = 3) -> float:
    """Returns the best value that was seen: other work on the machine can only lower it."""
    return max(run() for _ in range(times))


def _write(path: Path, size: int, *, sync: bool) -> float:
    """Returns MB/s of write(2) in 64 KB blocks to a new file. With `sync` there is one fdatasync at the end."""
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        began = time.perf_counter()
        for _ in range(size // len(BLOCK)):
            os.write(descriptor, BLOCK)
        if sync:
            os.fdatasync(descriptor)
        return size / 1e6 / (time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()


def _small_sync(path: Path, times: int = 200) -> float:
    """Returns the median milliseconds for appending 16 KB and syncing it."""
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    taken = []
    try:
        for _ in range(times):
            began = time.perf_counter()
            os.write(descriptor, BLOCK[: 16 << 10])
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(taken) * 1000


def _receive(ready: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ready.send(server.getsockname()[1])
        connection, _ = server.accept()
        with connection:
            buffer = bytearray(1 << 20)
            while connection.recv_into(buffer):
                pass


def _loopback(seconds: float = 1.0) -> float:
    """Returns MB/s through one TCP connection between two processes, 1 MB at a time."""
    context = get_context("spawn")
    here, there = context.Pipe()
    receiver = context.Process(target=_receive, args=(there,), daemon=True)
    receiver.start()
    block, sent = bytes(1 << 20), 0
    with socket.create_connection(("127.0.0.1", here.recv())) as connection:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            connection.sendall(block)
            sent += len(block)
        took = time.perf_counter() - began
    receiver.join(10)
    return sent / 1e6 / took
