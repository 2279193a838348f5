"""A frame that comes in pieces: the loop is woken seldom, and never too late."""

import asyncio
import random
import ssl
import struct

import pytest

from gateway.kafka.connection import Connection
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gateway.kafka.wake_ups import MOST_BYTES, TLS_RECORD_BYTES
from tests.gateway.kafka.test_connection import Service, authority
from tests.gateway.kafka.wire import DEADLINE_S, read_response, request_frame
from tests.support.certificates import Authority
from tests.support.waiting import until

__all__ = ["authority"]
PAUSE_S = 0.002


class Pieces:
    """A client that decides itself what is a TLS record, and what the kernel sends at once."""

    def __init__(self, service):
        self._address = service.address
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = service.authority and ssl.create_default_context(cafile=service.authority.ca).wrap_bio(
            self._incoming, self._outgoing, server_hostname="127.0.0.1"
        )

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        while self._tls:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self._outgoing.read())
                self._incoming.write(await self._reader.read(100_000))
            else:
                await self.send(self._outgoing.read())
                break
        return self

    async def __aexit__(self, *_):
        self._writer.close()

    def records(self, data, sizes):
        """Returns what goes over the wire, in records of these sizes."""
        if not self._tls:
            return data
        while data:
            size = next(sizes)
            self._tls.write(data[:size])
            data = data[size:]
        return self._outgoing.read()

    async def send(self, data):
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self):
        async with asyncio.timeout(DEADLINE_S):
            frame = b""
            while len(frame) < 4 or len(frame) < 4 + struct.unpack(">i", frame[:4])[0]:
                data = await self._reader.read(100_000)
                assert data
                if self._tls:
                    self._incoming.write(data)
                    try:
                        data = self._tls.read(100_000)
                    except ssl.SSLWantReadError:
                        data = b""
                frame += data
        return read_response(ApiKey.PRODUCE, 9, frame[4:])


def produced(request, context):
    return ProduceResponse()


def frame_of(nbytes, number):
    data = PartitionProduceData(index=0, records=b"x" * nbytes)
    return request_frame(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9, number)


async def test_a_frame_in_many_pieces_wakes_the_loop_seldom(tmp_path, monkeypatch):
    woken = []
    updated = Connection.buffer_updated
    monkeypatch.setattr(Connection, "buffer_updated", lambda self, size: (woken.append(size), updated(self, size))[1])
    async with Service(authority=Authority(tmp_path), produce=produced) as service, Pieces(service) as client:
        frame = frame_of(64 * 1024, 1)
        pieces = [frame[at : at + 500] for at in range(0, len(frame), 500)]
        for piece in pieces:
            await client.send(client.records(piece, iter([500])))
            await asyncio.sleep(PAUSE_S)
        assert (await client.receive())[0] == 1
    assert len(woken) < 10 + TLS_RECORD_BYTES / 500 < len(pieces) / 2


@pytest.mark.parametrize("seed", range(4))
async def test_no_frame_is_waited_for_when_it_is_there(authority, seed):
    rng = random.Random(seed)
    async with Service(authority=authority, produce=produced) as service, Pieces(service) as client:
        for number in range(12):
            size = rng.choice([rng.randint(1, 9_000), rng.randint(15_000, 70_000), MOST_BYTES + TLS_RECORD_BYTES])
            largest = rng.choice([100, 1_000, 16_384])
            sent = client.records(frame_of(size, number), iter(lambda: rng.randint(1, largest), 0))  # noqa: B023
            cuts = sorted({rng.randrange(1, len(sent)) for _ in range(rng.randint(0, 6))} | {len(sent)})
            for start, end in zip([0, *cuts], cuts, strict=False):
                await client.send(sent[start:end])
                await asyncio.sleep(PAUSE_S)
            assert (await client.receive())[0] == number


async def test_a_tls_record_that_is_nearly_whole_counts_as_here(tmp_path):
    async with Service(authority=Authority(tmp_path), produce=produced) as service, Pieces(service) as client:
        sent = client.records(frame_of(24_000, 7), iter([100, 16_384, 16_384]))
        await client.send(sent[:16_500])
        await asyncio.sleep(0.05)
        await client.send(sent[16_500:])
        assert (await client.receive())[0] == 7


async def test_a_client_that_leaves_in_the_middle_of_a_frame_is_noticed(authority):
    async with Service(authority=authority, produce=produced) as service:
        async with Pieces(service) as client:
            await client.send(client.records(frame_of(64 * 1024, 1)[:10_000], iter([10_000])))
            await asyncio.sleep(0.05)
            assert service.server.connections
        await until(lambda: not service.server.connections)
