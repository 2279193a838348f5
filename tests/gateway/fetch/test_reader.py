"""The reader over the hot tier: how far it sees, what is out of range, and both ways to the bytes."""

import pytest

from gateway.fetch.reader import Isolation
from hot_tier.errors import OffsetOutOfRange
from hot_tier.record.batch import read_header
from hot_tier.record.records import decode_records
from tests.gateway.kafka.batches import TIME_MS, batch
from tests.support.waiting import until

BIG = 1 << 20


@pytest.fixture
async def partition(node):
    await node.node.admin.create_topic("t", 1, config={"retention.ms": "-1"})
    found = node.node.partitions.get("t", 0)
    for number in range(5):
        data = memoryview(batch(b"%d" % number, timestamp=TIME_MS + 1000 * number))
        found.append(data, read_header(data), node.node.clock())
    await until(lambda: found.high_watermark == 5)
    return found


def values(fetched):
    return [record.value for record in decode_records(fetched.records)]


async def test_reading_from_anywhere(node, partition):
    reader = node.node.reader
    for offset in range(6):
        fetched = await reader.read(partition, offset, BIG, Isolation.READ_UNCOMMITTED)
        assert values(fetched) == [b"%d" % number for number in range(offset, 5)]
        assert (fetched.log_start_offset, fetched.last_stable_offset, fetched.high_watermark) == (0, 5, 5)


async def test_both_ways_give_the_same(node, partition):
    reader = node.node.reader
    located = reader.locate(partition, 1, BIG, Isolation.READ_UNCOMMITTED)
    now = reader.take_now(located)
    assert now is not None
    later = await reader.take(reader.locate(partition, 1, BIG, Isolation.READ_UNCOMMITTED))
    assert bytes(now.records) == bytes(later.records)
    assert located.size == len(now.records)


@pytest.mark.parametrize("offset", [-1, 6, 2**62])
async def test_out_of_range_says_what_there_is(node, partition, offset):
    with pytest.raises(OffsetOutOfRange, match="0 to 4"):
        node.node.reader.locate(partition, offset, BIG, Isolation.READ_UNCOMMITTED)


async def test_below_the_log_start_is_out_of_range(node, partition):
    partition.delete_records_before(3)
    reader = node.node.reader
    with pytest.raises(OffsetOutOfRange, match="3 to 4"):
        reader.locate(partition, 2, BIG, Isolation.READ_UNCOMMITTED)
    assert values(await reader.read(partition, 3, BIG, Isolation.READ_UNCOMMITTED)) == [b"3", b"4"]


async def test_read_committed_stops_at_the_first_open_transaction(node, partition):
    partition.log.producers.transactions.begin(7, 2)
    reader = node.node.reader
    assert values(await reader.read(partition, 0, BIG, Isolation.READ_COMMITTED)) == [b"0", b"1"]
    assert values(await reader.read(partition, 2, BIG, Isolation.READ_COMMITTED)) == []
    assert len(values(await reader.read(partition, 0, BIG, Isolation.READ_UNCOMMITTED))) == 5
    found = await reader.offset_for_timestamp(partition, TIME_MS + 1500, Isolation.READ_COMMITTED)
    assert found is None


async def test_the_first_batch_comes_whole_unless_others_came_first(node, partition):
    reader = node.node.reader
    assert values(await reader.read(partition, 0, 1, Isolation.READ_UNCOMMITTED)) == [b"0"]
    located = reader.locate(partition, 0, 1, Isolation.READ_UNCOMMITTED, min_one=False)
    assert located.size == 0
    fetched = reader.take_now(located)
    assert fetched is not None
    assert len(fetched.records) == 0


async def test_times(node, partition):
    reader = node.node.reader
    found = await reader.offset_for_timestamp(partition, TIME_MS + 1001, Isolation.READ_UNCOMMITTED)
    assert (found.offset, found.timestamp) == (2, TIME_MS + 2000)
    assert await reader.offset_for_timestamp(partition, TIME_MS + 4001, Isolation.READ_UNCOMMITTED) is None
    latest = await reader.max_timestamp_offset(partition)
    assert (latest.offset, latest.timestamp) == (4, TIME_MS + 4000)
