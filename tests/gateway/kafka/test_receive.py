"""Frames cut out of a stream that arrives in any pieces."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.kafka.buffers import Buffers
from gateway.kafka.errors import DecodeError
from gateway.kafka.receive import FIRST_BYTES, KEEP_BYTES, MAX_OTHER_BYTES, SCRATCH_BYTES, ReceiveBuffer

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
    bodies = [random.Random(index).randbytes(size) for index, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    buffers = Buffers(100 * MIB, 100 * MIB)
    one, other = ReceiveBuffer(MIB, buffers), ReceiveBuffer(MIB, buffers)
    noise = framed(b"\xff" * 300)
    found, at, turn = [], 0, 0
    while at < len(stream):
        at += feed(one, stream[at : at + pieces[turn % len(pieces)]])
        found += drain(one)
        # The loop asks for room, and nothing comes; then another connection receives into the scratch that both share.
        one.room()
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
    feed(buffer, produce_of(100 * MIB, 100))
    drain(buffer)
    assert buffers.receiving_bytes <= FIRST_BYTES
    sent = 100
    while sent < 10 * MIB:
        sent += feed(buffer, b"x" * 100_000)
        drain(buffer)
        assert buffers.receiving_bytes <= max(FIRST_BYTES, 2 * (sent + 6))


def test_seventeen_kilobytes_of_a_large_frame_cost_twice_that():
    buffers = Buffers(1024 * MIB, 100 * MIB)
    buffer = ReceiveBuffer(100 * MIB, buffers)
    feed(buffer, produce_of(100 * MIB, 17_000))
    drain(buffer)
    assert buffers.receiving_bytes <= 2 * 17_010


def produce_of(announced, sent):
    return struct.pack(">ih", announced, 0) + b"x" * sent


def hoard(buffers, address, connections):
    for _ in range(connections):
        buffer = ReceiveBuffer(100 * MIB, buffers)
        buffer.address = address
        feed(buffer, produce_of(100 * MIB, SCRATCH_BYTES - 6))
        drain(buffer)


def test_all_connections_together_are_bounded_and_one_address_leaves_half_to_others():
    buffers = Buffers(4 * MIB, MIB)
    with pytest.raises(DecodeError, match="this address"):
        hoard(buffers, "greedy", 100)
    assert buffers.receiving_bytes == 2 * MIB
    hoard(buffers, "other", 3)
    with pytest.raises(DecodeError, match="all clients"):
        for number in range(100):
            hoard(buffers, f"address-{number}", 1)
    assert buffers.receiving_bytes <= 4 * MIB


def test_only_a_produce_request_may_be_huge():
    buffer = ReceiveBuffer(100 * MIB, Buffers(1024 * MIB, 100 * MIB))
    feed(buffer, struct.pack(">ihh", MAX_OTHER_BYTES + 1, 3, 9))
    with pytest.raises(DecodeError, match="bytes"):
        drain(buffer)


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


def test_a_read_takes_all_there_is_behind_the_rest_of_a_frame():
    buffer = ReceiveBuffer(MIB, Buffers(100 * MIB, 100 * MIB))
    for sent in (10, 1000, FIRST_BYTES, 60_000):
        frame = produce_of(70_000, 69_998)
        feed(buffer, frame[:sent])
        drain(buffer)
        assert len(buffer.room()) == SCRATCH_BYTES - sent
        assert feed(buffer, frame[sent:] + frame + b"xx") == 2 * len(frame) - sent + 2
        assert drain(buffer) == [frame[4:], frame[4:]]
        buffer.release()
