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
