"""What HTTP readers see of transactions."""

import asyncio
from base64 import b64decode
from typing import Any

import orjson
import pytest

from hot_tier.record.control import MarkerKind
from hot_tier.replication.led_partition import LedPartition
from tests.gateway.http.conftest import Served
from tests.support.transactions import end, write
from tests.support.waiting import until

READ = "/api/v1/topics/orders/partitions/0/messages"
NDJSON = {"Accept": "application/x-ndjson"}


@pytest.fixture
async def partition(served: Served) -> LedPartition:
    """It has one record of each kind: rolled back, committed, without a transaction, and one of an open transaction."""
    await served.make_topic("orders")
    found = served.node.partitions.get("orders", 0)
    now_ms = served.node.clock()
    write(found, 1, b"rolled back", now_ms=now_ms)
    write(found, 2, b"committed", now_ms=now_ms)
    end(found, 1, MarkerKind.ABORT, now_ms=now_ms)
    end(found, 2, MarkerKind.COMMIT, now_ms=now_ms)
    write(found, 7, b"plain", now_ms=now_ms, transactional=False)
    write(found, 1, b"open", now_ms=now_ms)
    await until(lambda: found.high_watermark == 6)
    return found


def values(answer: Any) -> list[bytes]:
    return [b64decode(message["value"]) for message in answer["messages"]]


async def test_reads_are_of_committed_records(served: Served, partition: LedPartition) -> None:
    page = await served.messages("orders", offset=0)
    assert (values(page), page["next_offset"]) == ([b"committed", b"plain"], 5)
    streamed = await served.get(READ, headers=NDJSON)
    assert [b64decode(orjson.loads(line)["value"]) for line in streamed.body.splitlines()] == [b"committed", b"plain"]
    assert (await served.messages("orders", offset="latest"))["next_offset"] == 5


async def test_uncommitted_records_are_read_on_request(served: Served, partition: LedPartition) -> None:
    page = await served.messages("orders", offset=0, isolation="read_uncommitted")
    assert values(page) == [b"rolled back", b"committed", b"plain", b"open"]
    assert page["next_offset"] == 6
    refused = await served.get(READ + "?isolation=dirty")
    assert refused.status == 400


async def test_a_page_of_nothing_but_rolled_back_records_moves_on(served: Served, partition: LedPartition) -> None:
    end(partition, 1, MarkerKind.ABORT, now_ms=served.node.clock())
    await until(lambda: partition.last_stable_offset == 7)
    assert await served.messages("orders", offset=5) == {"messages": [], "next_offset": 7}


async def test_a_waiting_read_ends_when_the_transaction_does(served: Served, partition: LedPartition) -> None:
    waiting = asyncio.create_task(served.messages("orders", offset=5, wait_ms=20_000))
    await until(lambda: len(partition._waiters) == 1)
    end(partition, 1, MarkerKind.COMMIT, now_ms=served.node.clock())
    page = await asyncio.wait_for(waiting, 10)
    assert (values(page), page["next_offset"]) == ([b"open"], 7)
