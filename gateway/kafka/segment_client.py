"""Copies batches of another broker's log, by offsets, to repair a damaged segment: one connection, plain Fetch.

Followers answer too. The caller must check the content of the batches.
"""

from collections.abc import AsyncIterator
from ssl import SSLContext
from typing import Final, cast

from gateway.kafka.client import Asker, Exchange
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import CorruptLog
from hot_tier.ids import TopicId
from hot_tier.record.batch import iter_headers

CHUNK_BYTES: Final = 1 << 20
WAIT_S: Final = 10.0
NO_SESSION: Final = -1
FETCH: Final = Exchange(FetchRequest, FetchResponse, 17)


async def copy_batches(
    broker: BrokerInfo, topic_id: TopicId, partition: int, start: int, end: int, *, tls: SSLContext | None = None
) -> AsyncIterator[memoryview]:
    """Yields whole batches from `start` on that begin before `end`. Raises CorruptLog if there are none."""
    asker = Asker(WAIT_S)
    await asker.connect(broker, "mender", tls)
    try:
        offset = start
        while offset < end:
            records = _records(await asker.ask(FETCH, _request(topic_id, partition, offset)), broker)
            found = list(iter_headers(records))
            if not found or found[-1][1].end_offset <= offset:
                raise CorruptLog(f"there is no batch at offset {offset}", where=f"broker {broker.id}")
            wanted = [each for each in found if each[1].base_offset < end]
            if not wanted:
                return  # Compaction has removed the rest.
            position, last = wanted[-1]
            yield records[: position + last.size]
            offset = last.end_offset
    finally:
        asker.close()


def _request(topic_id: TopicId, partition: int, offset: int) -> FetchRequest:
    return FetchRequest(
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


def _records(response: FetchResponse, broker: BrokerInfo) -> memoryview:
    answers = [data for topic in response.responses for data in topic.partitions]
    code = response.error_code or (answers[0].error_code if answers else 0)
    if code or not answers:
        name = ErrorCode(code).name if code in ErrorCode.__members__.values() else code
        raise CorruptLog(f"the broker answered {name}", where=f"broker {broker.id}")
    return memoryview(cast("memoryview | bytes", answers[0].records or b""))
