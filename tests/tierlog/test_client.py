"""What the command line's HTTP client makes of a node that breaks off."""

import socket
import threading

import pytest

from tierlog.client import Client, ServerUnreachable, path

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_answer_that_is_cut_off_within_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(HEAD + b'9\r\n{"n": 1}\n\r\n8\r\n{"n": 2,\r\n')

        threading.Thread(target=answer, daemon=True).start()
        with Client(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            lines = client.post_lines(path("archive", "verify"), {})
            assert next(lines) == {"n": 1}
            with pytest.raises(ServerUnreachable):
                next(lines)


def test_a_connection_that_was_closed_meanwhile_is_opened_anew() -> None:
    """Also for what must not be sent twice: a node closes connections that nobody used for a while."""
    asked: list[bytes] = []
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                closed.set()

        threading.Thread(target=answer, daemon=True).start()
        with Client(f"127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.get(path("session")) == {}
            assert closed.wait(10)
            assert client.post(path("topics"), {"name": "orders"}) == {}
    assert [each.split()[0] for each in asked] == [b"GET", b"POST"]
