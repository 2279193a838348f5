"""A connection with handlers made for the test: order, blocking, limits, failures, shutdown."""

import asyncio
import gc
import random
import ssl
import struct
import time
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gateway.authorizer import AuthorizationSettings, Authorizer
from gateway.kafka import slices
from gateway.kafka.apis import Apis
from gateway.kafka.connection import Connection
from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import CloseConnection, Handler
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from gateway.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gateway.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from gateway.kafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from gateway.kafka.server import KafkaServer
from gateway.kafka_settings import KafkaSettings
from gateway.lane import Lane
from gateway.listener import Listener
from gateway.tls import Identity
from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import UnknownTopic
from tests.gateway.kafka.wire import Wire, free_port, request_frame
from tests.support.certificates import Authority
from tests.support.waiting import until

SETTINGS = KafkaSettings(port=0)


class Service:
    """A listener whose handlers the test holds in its hand."""

    def __init__(self, settings=SETTINGS, authority=None, **functions):
        self.seen = []
        self.authority = authority
        ranges = {"produce": (3, 11), "fetch": (4, 17), "heartbeat": (0, 4), "list_offsets": (1, 9)}
        handlers = {
            ApiKey[name.upper()]: Handler(*ranges[name], self._noting(name, function))
            for name, function in functions.items()
        }
        authorizer = Authorizer(ClusterImage(None), AuthorizationSettings())
        node = SimpleNamespace(lane=Lane(), authorizer=authorizer, audit=None, image=ClusterImage(None), node_id=0)
        self.server = KafkaServer(node, settings, Apis([handlers]))

    def _noting(self, name, function):
        def noted(request, context):
            self.seen.append((name, request))
            return function(request, context)

        return noted

    async def __aenter__(self):
        listener = free_port()
        self.address = listener.getsockname()
        tls = None
        if self.authority is not None:
            files = self.authority.issue("broker")
            tls = Identity(*files, self.authority.ca, "tls").serve("none")
        await self.server.start([Listener("kafka", listener, tls=tls)])
        return self

    async def __aexit__(self, *_):
        await self.server.stop()

    def connect(self):
        return Wire(*self.address, self.authority and ssl.create_default_context(cafile=self.authority.ca))


@pytest.fixture(params=["plaintext", "tls"])
def authority(request, tmp_path):
    return Authority(tmp_path / "certificates") if request.param == "tls" else None


def beat(request, context):
    return HeartbeatResponse()


class StillSending:
    """A transport that holds bytes of the handshake, and says so as soon as it has a limit."""

    def __init__(self, owner):
        self.owner = owner

    def get_extra_info(self, name):
        return ("127.0.0.1", 7) if name == "peername" else None

    def set_write_buffer_limits(self, high):
        if high == 1:
            self.owner.pause_writing()

    def get_write_buffer_size(self):
        return 1


async def test_a_handshake_may_not_be_all_sent_when_the_connection_begins():
    async with Service() as service:
        connection = Connection(service.server, Listener("kafka", None, tls=object()))
        connection.connection_made(StillSending(connection))
        assert connection.stuck_since_s is not None and service.server.buffers.unsent_bytes == 1
        connection.resume_writing()
        assert connection.stuck_since_s is None and service.server.buffers.unsent_bytes == 0
        connection.connection_lost(None)


async def test_pipelined_answers_keep_their_order_whatever_finishes_first():
    opened = []

    def produce(request, context):
        future = asyncio.get_running_loop().create_future()
        opened.append((request.timeout_ms, future))
        return future

    async with Service(produce=produce) as service, service.connect() as wire:
        for number in range(5):
            await wire.send(ProduceRequest(acks=-1, timeout_ms=number), 9)
        await until(lambda: len(opened) == 5)
        for _, future in reversed(opened):
            future.set_result(ProduceResponse())
            await asyncio.sleep(0)
        for number in range(1, 6):
            correlation_id, _ = await wire.receive(ApiKey.PRODUCE, 9)
            assert correlation_id == number


async def test_behind_produce_the_next_request_is_handled_behind_others_it_waits():
    gate = asyncio.Event()

    async def slow_beat(request, context):
        await gate.wait()
        return HeartbeatResponse(error_code=1)

    waiting = []

    def produce(request, context):
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    async with Service(heartbeat=slow_beat, produce=produce) as service, service.connect() as wire:
        await wire.send(ProduceRequest(acks=-1), 9)
        await wire.send(HeartbeatRequest(), 0)
        await wire.send(HeartbeatRequest(), 0)
        await until(lambda: len(service.seen) == 2)
        await asyncio.sleep(0.05)
        assert [name for name, _ in service.seen] == ["produce", "heartbeat"]
        gate.set()
        await until(lambda: len(service.seen) == 3)
        waiting[0].set_result(ProduceResponse())
        assert (await wire.receive(ApiKey.PRODUCE, 9))[0] == 1
        assert (await wire.receive(ApiKey.HEARTBEAT, 0))[0] == 2
        assert (await wire.receive(ApiKey.HEARTBEAT, 0))[0] == 3


async def test_unanswered_requests_per_connection_are_bounded():
    waiting = []

    def produce(request, context):
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    settings = replace(SETTINGS, max_inflight_requests=4)
    async with Service(settings, produce=produce) as service, service.connect() as wire:
        await wire.send_bytes(request_frame(ProduceRequest(acks=-1), 9) * 20)
        await until(lambda: len(waiting) == 4)
        await asyncio.sleep(0.05)
        assert len(waiting) == 4
        for answered in range(20):
            await until(lambda answered=answered: len(waiting) > answered)
            waiting[answered].set_result(ProduceResponse())
            await wire.receive(ApiKey.PRODUCE, 9)
            assert len(waiting) <= answered + 1 + 4


async def test_answers_that_wait_for_one_before_them_are_bounded():
    waiting = []

    def produce(request, context):
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    settings = replace(SETTINGS, max_inflight_requests=4)
    service = Service(settings, produce=produce, heartbeat=beat, fetch=big_fetch)
    async with service, service.connect() as wire, service.connect() as other:
        await wire.send(ProduceRequest(acks=-1), 9)
        await wire.send_bytes(request_frame(HeartbeatRequest(), 4, correlation_id=7) * 20)
        await other.send(ProduceRequest(acks=-1), 9)
        await other.send_bytes(request_frame(FetchRequest(), 11, correlation_id=7) * 20)
        await until(lambda: len(service.seen) >= 4 + 2)
        await asyncio.sleep(0.05)
        assert [name for name, _ in service.seen].count("heartbeat") == 3, "as many as may be open"
        assert [name for name, _ in service.seen].count("fetch") == 1, "large ones are fewer"
        for future in waiting:
            future.set_result(ProduceResponse())
        for each, api, version in ((wire, ApiKey.HEARTBEAT, 4), (other, ApiKey.FETCH, 11)):
            assert (await each.receive(ApiKey.PRODUCE, 9))[0] == 1
            for _ in range(20):
                assert (await each.receive(api, version))[0] == 7


async def test_no_answer_where_there_is_none_and_a_closed_connection_where_it_failed():
    def produce(request, context):
        if request.timeout_ms == 13:
            raise CloseConnection
        return

    async with Service(produce=produce, heartbeat=beat) as service, service.connect() as wire:
        await wire.send(ProduceRequest(acks=0), 3)
        await wire.send(ProduceRequest(acks=0), 3)
        sent = await wire.send(HeartbeatRequest(), 4)
        assert (await wire.receive(ApiKey.HEARTBEAT, 4))[0] == sent
        await wire.send(ProduceRequest(acks=0, timeout_ms=13), 3)
        assert await wire.closed() == b""


async def test_a_failing_handler_is_answered_and_the_connection_lives():
    def broken(request, context):
        raise RuntimeError("secret detail")

    async def broken_later(request, context):
        raise UnknownTopic("there is no topic 't'")

    def list_offsets(request, context):
        return broken(request, context) if request.isolation_level else broken_later(request, context)

    async with Service(list_offsets=list_offsets, heartbeat=lambda *_: {}["no"]) as service, service.connect() as wire:
        topics = [ListOffsetsTopic("t", [ListOffsetsPartition(3), ListOffsetsPartition(4)])]
        for isolation, code in ((1, ErrorCode.UNKNOWN_SERVER_ERROR), (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
            answer = await wire.ask(ListOffsetsRequest(isolation_level=isolation, topics=topics), 9)
            assert [topic.name for topic in answer.topics] == ["t"]
            assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(3, code), (4, code)]
        assert (await wire.ask(HeartbeatRequest(), 4)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert service.server.unexpected_errors == 2


async def test_a_response_that_cannot_be_written_is_an_error_too():
    def unwritable(request, context):
        return HeartbeatResponse(throttle_time_ms="soon")

    async with Service(heartbeat=unwritable) as service, service.connect() as wire:
        assert (await wire.ask(HeartbeatRequest(), 4)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_error_that_the_response_has_no_place_for_closes():
    def broken(request, context):
        raise UnknownTopic("no")

    async with Service(list_offsets=broken) as service, service.connect() as wire:
        await wire.send(ListOffsetsRequest(topics=[]), 9)
        assert await wire.closed() == b""


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 12, 99, 1, -1),
        struct.pack(">ihhih", 10, 12, -1, 1, -1),
        struct.pack(">ihhih", 10, 12, 0, 1, 500),
        struct.pack(">ihhih2s", 12, 12, 0, 1, 2, b"\xff\xfe"),
        struct.pack(">ihhihB", 11, 12, 4, 1, -1, 0x80),
        struct.pack(">ihhihBBB", 13, 12, 4, 1, -1, 1, 0, 100),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_what_is_no_request_closes_the_connection(data):
    async with Service(heartbeat=beat) as service:
        async with service.connect() as wire:
            await wire.send_bytes(data)
            assert await wire.closed() == b""
        assert service.server.bad_requests == 1
        async with service.connect() as wire:
            assert (await wire.ask(HeartbeatRequest(), 4)).error_code == 0


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0():
    async with Service(heartbeat=beat) as service, service.connect() as wire:
        for version in (0, 3, 4):
            answer = await wire.ask(ApiVersionsRequest("tests", "1"), version)
            assert answer.error_code == 0
            assert [(a.api_key, a.min_version, a.max_version) for a in answer.api_keys] == [(12, 0, 4), (18, 0, 4)]
        frame = struct.pack(">hhih", 18, 77, 5, -1) + b"\0\x06future\0"
        await wire.send_bytes(struct.pack(">i", len(frame)) + frame)
        correlation_id, answer = await wire.receive(ApiKey.API_VERSIONS, 0)
        assert (correlation_id, answer.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
        assert answer.api_keys[-1].max_version == 4


async def test_a_throttled_client_is_not_read_for_so_long():
    def throttled(request, context):
        return HeartbeatResponse(throttle_time_ms=300)

    async with Service(heartbeat=throttled) as service, service.connect() as wire:
        began = time.monotonic()
        await wire.send(HeartbeatRequest(), 4)
        await wire.send(HeartbeatRequest(), 4)
        await wire.receive(ApiKey.HEARTBEAT, 4)
        assert len(service.seen) == 1 or time.monotonic() - began >= 0.29, "the first is answered at once"
        await wire.receive(ApiKey.HEARTBEAT, 4)
        assert time.monotonic() - began >= 0.29


async def test_a_throttled_client_that_has_gone_is_forgotten():
    def throttled(request, context):
        return HeartbeatResponse(throttle_time_ms=3_600_000)

    async with Service(heartbeat=throttled) as service:
        async with service.connect() as wire:
            await wire.ask(HeartbeatRequest(), 4)
            (connection,) = map(weakref.ref, service.server.connections)
            connection().abort("as when it is idle")
        await until(lambda: not service.server.connections)
        await until(lambda: gc.collect() is not None and connection() is None, 5)


BIG = random.Random(1).randbytes(4 * 1024 * 1024)


def big_fetch(request, context):
    data = PartitionData(records=memoryview(BIG))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


async def test_a_client_that_does_not_read_is_not_served_further(authority):
    async with Service(fetch=big_fetch, authority=authority) as service, service.connect() as wire:
        wire.outgoing.transport.pause_reading()
        await wire.send_bytes(request_frame(FetchRequest(), 11) * 50)
        await until(lambda: len(service.seen) >= 1)
        await asyncio.sleep(0.2)
        handled = len(service.seen)
        assert handled < 10
        assert 0 < service.server.buffers.unsent_bytes < 20 * 1024 * 1024
        wire.outgoing.transport.resume_reading()
        for _ in range(50):
            assert BIG in await wire.receive_bytes()
        assert service.server.buffers.unsent_bytes == 0


async def test_a_client_that_never_takes_its_answer_is_closed(authority):
    settings = replace(SETTINGS, io_timeout_ms=500)
    async with Service(settings, fetch=big_fetch, authority=authority) as service, service.connect() as wire:
        wire.outgoing.transport.pause_reading()
        await wire.send_bytes(request_frame(FetchRequest(), 11) * 5)
        await until(lambda: len(service.server.connections) == 1)
        await until(lambda: not service.server.connections)
        assert service.server.buffers.unsent_bytes == 0


async def test_half_sent_and_idle_connections_are_closed_and_slow_ones_served():
    settings = replace(SETTINGS, io_timeout_ms=1000, connections_max_idle_ms=4000)
    async with Service(settings, heartbeat=beat) as service:
        async with service.connect() as half, service.connect() as silent, service.connect() as slow:
            frame = request_frame(HeartbeatRequest("g"), 4)
            began = time.monotonic()
            await half.send_bytes(frame[:7])
            await slow.send_bytes(frame[:9])
            await asyncio.sleep(0.3)
            await slow.send_bytes(frame[9:])
            assert (await slow.receive(ApiKey.HEARTBEAT, 4))[1].error_code == 0
            assert await half.closed() == b""
            assert time.monotonic() - began < 3.9
            assert await silent.closed() == b""
        assert not service.server.connections


async def test_connections_are_limited_per_host_and_in_all():
    for settings in (replace(SETTINGS, max_connections=2), replace(SETTINGS, max_connections_per_ip=2)):
        async with Service(settings, heartbeat=beat) as service:
            async with service.connect() as one, service.connect() as two:
                await one.ask(HeartbeatRequest(), 4)
                await two.ask(HeartbeatRequest(), 4)
                async with service.connect() as three:
                    assert await three.closed() == b""
                assert service.server.refused == 1
            await until(lambda: not service.server.connections)
            async with service.connect() as again:
                await again.ask(HeartbeatRequest(), 4)


async def test_a_plain_future_is_cancelled_when_the_client_leaves_and_a_coroutine_is_not():
    waiting = []
    finished = asyncio.Event()
    gate = asyncio.Event()

    def fetch(request, context):
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[0]

    async def slow(request, context):
        await gate.wait()
        finished.set()
        return HeartbeatResponse()

    async with Service(fetch=fetch, heartbeat=slow) as service:
        async with service.connect() as wire, service.connect() as other:
            await wire.send(FetchRequest(), 4)
            await other.send(HeartbeatRequest(), 4)
            await until(lambda: len(service.seen) == 2)
        await until(lambda: waiting[0].cancelled())
        gate.set()
        async with asyncio.timeout(5):
            await finished.wait()


async def test_requests_behind_a_waiting_one_are_kept_however_many():
    gate = asyncio.Event()

    async def slow(request, context):
        await gate.wait()
        return HeartbeatResponse()

    async with Service(heartbeat=slow) as service, service.connect() as wire:
        frame = request_frame(HeartbeatRequest("g" * 1000), 4)
        sending = asyncio.create_task(wire.send_bytes(frame * 5000))
        await until(lambda: service.seen)
        await asyncio.sleep(0.1)
        assert len(service.seen) == 1
        assert service.server.received_bytes < 1024 * 1024
        gate.set()
        for _ in range(5000):
            await wire.receive_bytes()
        await sending
        assert {request.group_id for _, request in service.seen} == {"g" * 1000}


async def test_shutdown_answers_what_is_at_work_and_does_not_wait_for_long_polls():
    gate = asyncio.Event()

    async def slow(request, context):
        await gate.wait()
        return HeartbeatResponse(error_code=27)

    def poll(request, context):
        return asyncio.get_running_loop().create_future()

    service = Service(heartbeat=slow, fetch=poll)
    await service.__aenter__()
    async with service.connect() as wire, service.connect() as poller:
        await wire.send(HeartbeatRequest(), 4)
        await poller.send(FetchRequest(), 4)
        await until(lambda: len(service.seen) == 2)
        stopping = asyncio.create_task(service.server.stop())
        await asyncio.sleep(0.05)
        with pytest.raises(OSError):
            async with service.connect() as late:
                await late.ask(HeartbeatRequest(), 4)
        gate.set()
        assert (await wire.receive(ApiKey.HEARTBEAT, 4))[1].error_code == 27
        assert await wire.closed() == b""
        assert await poller.closed() == b""
        async with asyncio.timeout(20):
            await stopping


async def test_requests_in_the_smallest_pieces():
    async with Service(heartbeat=beat) as service, service.connect() as wire:
        frame = request_frame(HeartbeatRequest("group", 1, "member"), 4, correlation_id=9)
        for byte in frame * 3:
            wire.outgoing.write(bytes([byte]))
            await asyncio.sleep(0)
        for _ in range(3):
            assert (await wire.receive(ApiKey.HEARTBEAT, 4))[0] == 9
        assert [request.group_id for _, request in service.seen] == ["group"] * 3


def long_request(partitions=5000):
    asked = [ListOffsetsPartition(partition_index=number) for number in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])


def echo(request, context):
    answers = [ListOffsetsPartitionResponse(each.partition_index) for each in request.topics[0].partitions]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", answers)])


@pytest.mark.parametrize("partitions", [5000, 20_000])
async def test_a_long_request_is_read_and_answered_in_slices_and_keeps_its_place(partitions):
    """The smaller one fits into the scratch that all connections share, the larger one does not."""
    async with Service(list_offsets=echo, heartbeat=beat) as service, service.connect() as wire:
        for _ in range(2):
            await wire.send(HeartbeatRequest(), 0)
            await wire.send(long_request(partitions), 5)
            await wire.send(HeartbeatRequest(), 0)
        async with service.connect() as other:
            for _ in range(50):
                await other.ask(HeartbeatRequest(), 0)
        for number in (1, 4):
            assert (await wire.receive(ApiKey.HEARTBEAT, 0))[0] == number
            correlation_id, answer = await wire.receive(ApiKey.LIST_OFFSETS, 5)
            assert correlation_id == number + 1
            assert [each.partition_index for each in answer.topics[0].partitions] == list(range(partitions))
            assert (await wire.receive(ApiKey.HEARTBEAT, 0))[0] == number + 2
        assert service.server.buffers.receiving_bytes < 1 << 20


async def test_a_long_request_whose_handler_fails_is_told_so_in_every_place():
    def broken(request, context):
        raise UnknownTopic("there is no topic 't'")

    async with Service(list_offsets=broken) as service, service.connect() as wire:
        answer = await wire.ask(long_request(), 5)
        codes = {each.error_code for each in answer.topics[0].partitions}
        assert (codes, len(answer.topics[0].partitions)) == ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, 5000)


async def test_an_answer_that_is_too_large_is_an_error(monkeypatch):
    monkeypatch.setattr(slices, "MAX_ANSWER_BYTES", 10_000)

    async def large(request, context):
        return echo(long_request(), context)

    async with Service(list_offsets=large) as service, service.connect() as wire:
        answer = await wire.ask(long_request(1), 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


async def test_a_request_of_too_many_elements_ends_the_connection():
    async with Service(list_offsets=echo, heartbeat=beat) as service:
        async with service.connect() as wire:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await wire.ask(long_request(40_000), 5)
        assert service.server.bad_requests == 1
        async with service.connect() as wire:
            await wire.ask(HeartbeatRequest(), 0)


async def test_while_memory_is_scarce_slow_requests_are_given_up():
    """A hundred megabytes may take a quarter of an hour, but not while they take what others need."""
    settings = replace(SETTINGS, max_receiving_bytes=1 << 20, io_timeout_ms=500)
    async with Service(settings, heartbeat=beat) as service:
        slow = []
        for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4"):
            _, writer = await asyncio.open_connection(*service.address, local_addr=(address, 0))
            writer.write(struct.pack(">ih", 100 << 20, ApiKey.PRODUCE) + bytes(200_000))
            slow.append(writer)
        await until(lambda: service.server.buffers.scarce)
        await until(lambda: not service.server.buffers.scarce)
        assert len(service.server.connections) < 3
        for writer in slow:
            writer.close()
        await until(lambda: service.server.buffers.receiving_bytes == 0)


async def test_a_client_that_sends_no_more_still_gets_its_answers():
    async def slow_beat(request, context):
        await asyncio.sleep(0.05)
        return HeartbeatResponse()

    async with Service(heartbeat=slow_beat) as service:
        reader, writer = await asyncio.open_connection(*service.address)
        writer.write(request_frame(HeartbeatRequest(), 0))
        writer.write_eof()
        assert len(await asyncio.wait_for(reader.read(), 10)) > 4
        writer.close()
        await until(lambda: not service.server.connections)
