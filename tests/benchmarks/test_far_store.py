"""The proxy adds the time and keeps to the rate that the benchmark speaks of, and changes no byte."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.far_store import BYTES_PER_S, LATENCY_S, far_store

SIZE = 30_000_000


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server that answers each byte with `SIZE` bytes, then ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    while connection.recv(1):
                        connection.sendall(bytes(range(250)) * (SIZE // 250))

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_what_passes_is_late_and_takes_its_time(endpoint: str) -> None:
    with far_store(endpoint) as far, socket.create_connection(("127.0.0.1", int(far.rpartition(":")[2]))) as client:
        for _ in range(2):
            began = time.monotonic()
            client.sendall(b"x")
            data = bytearray(client.recv(1))
            first_s = time.monotonic() - began
            while len(data) < SIZE:
                data += client.recv(1 << 20)
            assert bytes(data) == bytes(range(250)) * (SIZE // 250)
            assert first_s >= LATENCY_S
            # The last part leaves before its own time is over.
            assert time.monotonic() - began >= LATENCY_S + (SIZE - (1 << 19)) / BYTES_PER_S
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
