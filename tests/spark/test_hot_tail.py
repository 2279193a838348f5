"""The hot tail over HTTP from a service that is not always ready: every record, or an error."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from uuid import uuid4

import pyarrow as pa
import pytest

from spark import gateway
from spark.gateway import Gateway, GatewayUnavailable, hot_batches


@contextmanager
def service(committed: Callable[[], int | None], records: range) -> Iterator[str]:
    """A node that has `records`, committed as far as `committed` says at each request; None: it leads nothing."""

    class Node(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            end = committed()
            if end is None:
                self.send_error(503)
                return
            if "/messages" not in self.path:
                described = [{"partition": 0, "log_start_offset": 0, "last_stable_offset": end}]
                body = json.dumps({"id": str(uuid4()), "partitions": described}).encode()
            else:
                start = int(self.path.rpartition("=")[2])
                rows = pa.record_batch({"offset": pa.array([n for n in records if start <= n < end], pa.int64())})
                sink = io.BytesIO()
                with pa.ipc.new_stream(sink, rows.schema) as writer:
                    if rows.num_rows:
                        writer.write_batch(rows)
                body = sink.getvalue()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Node)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_PAUSE_S", 0.001)


def offsets(url: str, end: int) -> list[int]:
    return [
        offset for batch in hot_batches(Gateway(url), "orders", 0, 0, end) for offset in batch.column(0).to_pylist()
    ]


def test_a_new_leader_that_does_not_know_yet_how_much_is_committed() -> None:
    ends = iter([5, 5, None, 7, 10])
    with service(lambda: next(ends, 10), range(20)) as url:
        assert offsets(url, 10) == list(range(10))


def test_a_leader_that_lacks_what_was_committed() -> None:
    with service(lambda: 5, range(5)) as url, pytest.raises(GatewayUnavailable, match="from offset 5"):
        offsets(url, 10)


def test_offsets_without_records_at_the_end() -> None:
    with service(lambda: 20, range(7)) as url:
        assert offsets(url, 10) == list(range(7))
