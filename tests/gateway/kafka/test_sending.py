"""Answers by TLS: in pieces of the right size, and none is encrypted while the last one waits."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.kafka.sending import PIECE_BYTES, SMALL_BYTES, TlsSender, pieces


@given(
    st.lists(st.sampled_from([0, 1, 30, SMALL_BYTES, SMALL_BYTES + 1, PIECE_BYTES, 3 * PIECE_BYTES + 7]), max_size=8)
)
def test_pieces_are_the_same_bytes_and_none_is_too_large_or_needlessly_small(sizes):
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    made = list(pieces(parts))
    assert b"".join(made) == b"".join(parts)
    assert max(map(len, made), default=0) <= max(PIECE_BYTES, len(sizes) * SMALL_BYTES)
    assert len(made) <= 1 + sum(size // PIECE_BYTES + 2 for size in sizes if size > SMALL_BYTES)


class Slow:
    """A transport whose socket takes nothing: it pauses its owner as soon as it holds a byte."""

    def __init__(self) -> None:
        self.sender: Any = None
        self.held = b""
        self.high = 0
        self.closed = False

    def set_write_buffer_limits(self, high):
        self.high = high
        if len(self.held) >= high:
            self.sender.pause()

    def get_write_buffer_size(self):
        return len(self.held)

    def write(self, data):
        assert not self.closed
        self.held += bytes(data)
        if len(self.held) >= self.high:
            self.sender.pause()

    def close(self):
        self.closed = True


def test_one_piece_is_written_at_a_time_and_all_that_waits_is_counted():
    transport = Slow()
    sender = transport.sender = TlsSender(transport)  # type: ignore[arg-type]
    sender.begin()
    answer = bytes(range(256)) * (PIECE_BYTES // 64)
    sender.send([b"head", answer])
    sender.send([b"tail"])
    left = b""
    while True:
        assert len(transport.held) <= PIECE_BYTES
        assert sender.unsent_bytes == len(answer) + 8 - len(left)
        left, transport.held = left + transport.held, b""
        if sender.resume():
            break
    assert left == b"head" + answer + b"tail"
    sender.send([answer])
    sender.close()
    assert transport.held == answer
    assert transport.closed


def test_what_is_left_of_the_handshake_leaves_before_the_first_answer():
    transport = Slow()
    transport.held = b"tickets"
    sender = transport.sender = TlsSender(transport)  # type: ignore[arg-type]
    sender.begin()
    sender.send([b"answer"])
    assert transport.held == b"tickets"
    transport.held = b""
    sender.resume()
    assert transport.held == b"answer"
