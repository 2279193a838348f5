"""Frames cut out of a stream that arrives in any pieces."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.kafka.buffers import Buffers
from gateway.kafka.errors import DecodeError
from gateway.kafka.receive import FIRST_BYTES, KEEP_BYTES, SCRATCH_BYTES, ReceiveBuffer

MIB = 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(buffer: ReceiveBuffer, data: bytes) -> int:
    """As the loop does: as much as there is room for."""
    room = buffer.room()
    assert len(room) > 0
    taken = data[: len(room)]
    room[: len(taken)] = taken
    buffer.filled(len(taken))
    return len(taken)


def drain(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while (frame := buffer.next_frame()) is not None:
        frames.append(bytes(frame))
    buffer.settle()
    return frames


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 200), st.integers(FIRST_BYTES - 10, FIRST_BYTES + 10), st.integers(0, 3 * SCRATCH_BYTES)
        ),
        max_size=8,
    ),
    pieces=st.lists(st.one_of(st.integers(1, 50), st.integers(1, 2 * SCRATCH_BYTES)), min_size=1, max_size=20),
)
def test_frames_come_out_as_they_went_in(sizes, pieces):
    bodies = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    buffers = Buffers(100 * MIB, 100 * MIB)
    one, other = ReceiveBuffer(MIB, buffers), ReceiveBuffer(MIB, buffers)
    noise = framed(b"\xff" * 300)
    found, at, turn = [], 0, 0
    while at < len(stream):
        at += feed(one, stream[at : at + pieces[turn % len(pieces)]])
        found += drain(one)
        # Another connection receives in between, into the scratch that both share.
        feed(other, noise)
        assert drain(other) == [noise[4:]]
        turn += 1
    assert found == bodies
    assert one.settle() == 0
    one.release()
    other.release()
    assert buffers.receiving_bytes == 0


@pytest.mark.parametrize("length", [-1, -(2**31), MIB + 1, 2**31 - 1])
def test_a_bad_length_is_refused_before_anything_is_made(length):
    buffers = Buffers(100 * MIB, 100 * MIB)
    buffer = ReceiveBuffer(MIB, buffers)
    feed(buffer, struct.pack(">i", length))
    with pytest.raises(DecodeError, match="bytes"):
        drain(buffer)
    assert buffers.receiving_bytes == 0


def test_memory_follows_what_has_arrived_not_what_was_announced():
    buffers = Buffers(1024 * MIB, 100 * MIB)
    buffer = ReceiveBuffer(100 * MIB, buffers)
    feed(buffer, struct.pack(">i", 100 * MIB) + b"x" * 100)
    drain(buffer)
    assert buffers.receiving_bytes <= 2 * SCRATCH_BYTES
    sent = 100
    while sent < 10 * MIB:
        sent += feed(buffer, b"x" * 100_000)
        drain(buffer)
        assert buffers.receiving_bytes <= max(2 * SCRATCH_BYTES, 2 * sent + 8)


def test_all_connections_together_are_bounded():
    buffers = Buffers(MIB, MIB)
    hoarders = [ReceiveBuffer(100 * MIB, buffers) for _ in range(3)]
    with pytest.raises(DecodeError, match="all clients"):
        for buffer in hoarders:
            feed(buffer, struct.pack(">i", 100 * MIB) + b"x" * (SCRATCH_BYTES - 4))
            drain(buffer)
    assert buffers.receiving_bytes <= MIB


def test_a_large_frames_buffer_is_kept_for_the_next_but_not_a_huge_one():
    buffers = Buffers(100 * MIB, 100 * MIB)
    buffer = ReceiveBuffer(100 * MIB, buffers)

    def send(body):
        data, found = framed(body), []
        while data:
            data = data[feed(buffer, data) :]
            found += drain(buffer)
        assert found == [body]

    send(b"x" * MIB)
    kept = buffers.receiving_bytes
    assert MIB <= kept <= 2 * MIB
    send(b"y" * MIB)
    assert buffers.receiving_bytes == kept
    send(b"z" * (KEEP_BYTES + 1))
    assert buffers.receiving_bytes == 0
    send(b"x" * MIB)
    buffer.shrink()
    assert buffers.receiving_bytes == 0
