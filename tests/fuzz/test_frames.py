"""Any bytes sent to the Kafka port give an answer or a closed connection, and harm nothing."""

import random
import socket
import struct
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.kafka.protocol.api_keys import ApiKey, request_class
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gateway.kafka.protocol.readers import MAX_REQUEST_ELEMENTS
from tests.fuzz.target import TOPICS
from tests.gateway.kafka.samples import sample
from tests.gateway.kafka.wire import request_frame

WORDS = (*TOPICS, "group-a", "group-b", "retention.ms", "1", "0", "-1", "client-id", "consumer")
RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def served(target):
    """Every version of every API that the service says it serves."""
    apis = target.running.server.apis
    return [
        (key, version)
        for key, handler in sorted(apis.handlers.items())
        for version in range(handler.min_version, handler.max_version + 1)
    ]


def real_request(key, version, seed):
    cls = request_class(ApiKey(key))
    version = max(version, 3) if key == ApiKey.PRODUCE else version
    return bytearray(request_frame(sample(cls, version, random.Random(seed), words=WORDS), version, seed & 0xFFFF))


def mutate(frame, rng):
    """One to four small wounds; usually the length prefix is made to fit again, so that they reach the parser."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(4, len(frame))
        match rng.randrange(6):
            case 0:
                frame[at] ^= 1 << rng.randrange(8)
            case 1:
                frame[at : at + 4] = struct.pack(
                    ">i", rng.choice([-1, -2, 0, 2**31 - 1, -(2**31), rng.randrange(1000)])
                )
            case 2:
                del frame[at : at + rng.randint(1, 20)]
            case 3:
                frame[at:at] = rng.randbytes(rng.randint(1, 20))
            case 4:
                frame[at : at + 5] = b"\xff\xff\xff\xff\x7f"
            case _:
                other = rng.randrange(4, len(frame))
                frame[at : at + 8] = frame[other : other + 8]
        if len(frame) < 6:
            break
    if rng.random() < 0.9:
        frame[:4] = struct.pack(">i", len(frame) - 4)
    return bytes(frame)


@settings(max_examples=150, **RELAXED)
@given(data=st.binary(max_size=2000), framed=st.booleans())
def test_random_bytes(target, data, framed):
    target.shoot(struct.pack(">i", len(data)) + data if framed else data)


@settings(max_examples=300, **RELAXED)
@given(which=st.randoms(use_true_random=False), body=st.binary(max_size=300))
def test_random_bodies_behind_real_headers(target, which, body):
    key, version = which.choice(served(target))
    header = struct.pack(">hhih", key, version, 7, 1) + b"x"
    target.shoot(struct.pack(">i", len(header) + len(body)) + header + body)


def test_real_requests_with_any_values(target):
    """Well-formed, but for what they say: every version of every API, answered or closed, without a mistake of ours."""
    for key, version in served(target):
        for seed in range(3):
            target.shoot(bytes(real_request(key, version, seed)))
            assert target.running.server.unexpected_errors == 0, (ApiKey(key).name, version, seed)
    target.check()


@settings(max_examples=500, **RELAXED)
@given(seed=st.integers(0, 2**32))
def test_mutated_requests(target, seed):
    rng = random.Random(seed)
    key, version = rng.choice(served(target))
    target.shoot(mutate(real_request(key, version, seed), rng))
    assert target.running.server.unexpected_errors == 0


@settings(max_examples=60, **RELAXED)
@given(seed=st.integers(0, 2**32))
def test_many_requests_in_one_go_some_of_them_wounded(target, seed):
    rng = random.Random(seed)
    stream = b""
    for _ in range(rng.randint(2, 20)):
        key, version = rng.choice(served(target))
        frame = real_request(key, version, rng.randrange(2**32))
        stream += mutate(frame, rng) if rng.random() < 0.1 else bytes(frame)
    target.shoot(stream[: rng.randint(1, len(stream))])


def test_every_cut_of_a_request(target):
    frame = bytes(real_request(ApiKey.METADATA, 12, 4))
    for end in range(len(frame)):
        assert target.shoot(frame[:end]) == b""
    assert target.shoot(frame)


@pytest.mark.parametrize("length", [-(2**31), -1, 8 * 1024 * 1024 + 1, 2**31 - 1])
def test_lengths_that_no_request_has(target, length):
    assert target.shoot(struct.pack(">i", length) + bytes(100)) == b""


def test_more_elements_than_a_request_may_have(target):
    """Four million topics in eight megabytes: refused by their number, not by running out of memory."""
    count = 3_900_000
    header = struct.pack(">hhih", ApiKey.METADATA, 8, 7, -1)
    body = struct.pack(">i", count) + bytes(2 * count) + bytes(3)
    began = time.monotonic()
    assert target.shoot(struct.pack(">i", len(header) + len(body)) + header + body) == b""
    assert time.monotonic() - began < 10
    names = [MetadataRequestTopic(name="") for _ in range(MAX_REQUEST_ELEMENTS)]
    assert target.shoot(request_frame(MetadataRequest(topics=names), 8))


def test_a_crowd_that_never_finishes_its_requests(target):
    """Two hundred half requests held open: others are served meanwhile, and the crowd is closed in time."""
    frame = bytes(real_request(ApiKey.METADATA, 12, 4))
    crowd = [socket.create_connection((target.running.host, target.running.port), timeout=15) for _ in range(200)]
    try:
        for number, connection in enumerate(crowd):
            connection.sendall(struct.pack(">i", 8 * 1024 * 1024) if number % 2 else frame[: 5 + number % 10])
        target.check()
        for drip in range(5):
            for connection in crowd[1::2]:
                try:
                    connection.sendall(bytes([drip]))
                except OSError:
                    pass
        target.check()
        for connection in crowd[0::2]:
            try:
                assert connection.recv(100) == b""
            except ConnectionResetError:
                pass
    finally:
        for connection in crowd:
            connection.close()
    target.wait_until_quiet()
    assert target.running.server.buffers.receiving_bytes == 0


def test_nothing_was_left_behind(target):
    target.wait_until_quiet()
    assert target.running.server.buffers.receiving_bytes == 0
    assert target.running.server.buffers.unsent_bytes == 0
    target.check()
