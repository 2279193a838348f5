"""Batches of another broker's log, by offsets: what a damaged segment is mended with. One connection, plain Fetch.

A follower answers it too. What arrives is foreign bytes: a frame's length is checked before anything is made of it, and
what the batches hold is for the caller to prove.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from struct import Struct
from typing import Final, cast

from gateway.kafka.errors import DecodeError, ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gateway.kafka.protocol.readers import reader
from gateway.kafka.protocol.schema import Buffer
from gateway.kafka.protocol.writers import writer
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import CorruptLog
from hot_tier.ids import TopicId
from hot_tier.record.batch import iter_headers

VERSION: Final = 17
CHUNK_BYTES: Final = 1 << 20
MAX_FRAME_BYTES: Final = 1 << 30
WAIT_S: Final = 10.0
NO_SESSION: Final = -1
CLIENT_ID: Final = b"mender"

_LENGTH: Final = Struct(">i")
_HEADER: Final = Struct(">ihhih")
_ANSWER_HEADER_BYTES: Final = 5

_read: Final = cast(Callable[[memoryview], FetchResponse], reader(FetchResponse, VERSION))
_write: Final = writer(FetchRequest, VERSION)


async def copy_batches(
    broker: BrokerInfo, topic_id: TopicId, partition: int, start: int, end: int
) -> AsyncIterator[memoryview]:
    """Whole batches from `start` on that begin before `end`. CorruptLog where the broker has none, TimeoutError."""
    async with asyncio.timeout(WAIT_S):
        incoming, outgoing = await asyncio.open_connection(broker.host, broker.port)
    try:
        offset = start
        while offset < end:
            outgoing.write(_request(topic_id, partition, offset))
            async with asyncio.timeout(WAIT_S):
                records = _records(await _frame(incoming), broker)
            found = list(iter_headers(records))
            if not found or found[-1][1].end_offset <= offset:
                raise CorruptLog(f"has no batch at offset {offset}", where=f"broker {broker.id}")
            wanted = [each for each in found if each[1].base_offset < end]
            if not wanted:
                return  # Compaction took what is left.
            position, last = wanted[-1]
            yield records[: position + last.size]
            offset = last.end_offset
    finally:
        outgoing.close()


def _request(topic_id: TopicId, partition: int, offset: int) -> bytes:
    request = FetchRequest(
        min_bytes=1,
        max_bytes=CHUNK_BYTES,
        session_epoch=NO_SESSION,
        topics=[
            FetchTopic(
                topic_id=topic_id,
                partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=CHUNK_BYTES)],
            )
        ],
    )
    parts: list[Buffer] = [b"", CLIENT_ID, b"\0"]
    _write(request, parts.append)
    size = _HEADER.size - _LENGTH.size + sum(map(len, parts))
    parts[0] = _HEADER.pack(size, ApiKey.FETCH, VERSION, 0, len(CLIENT_ID))
    return b"".join(parts)


async def _frame(incoming: asyncio.StreamReader) -> memoryview:
    try:
        (length,) = _LENGTH.unpack(await incoming.readexactly(_LENGTH.size))
        if not _ANSWER_HEADER_BYTES <= length <= MAX_FRAME_BYTES:
            raise DecodeError(f"an answer of {length} bytes")
        return memoryview(await incoming.readexactly(length))
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("the other side closed the connection") from error


def _records(frame: memoryview, broker: BrokerInfo) -> memoryview:
    response = _read(frame[_ANSWER_HEADER_BYTES:])
    answers = [data for topic in response.responses for data in topic.partitions]
    code = response.error_code or (answers[0].error_code if answers else 0)
    if code or not answers:
        name = ErrorCode(code).name if code in ErrorCode.__members__.values() else code
        raise CorruptLog(f"answers {name}", where=f"broker {broker.id}")
    return memoryview(cast("memoryview | bytes", answers[0].records or b""))
