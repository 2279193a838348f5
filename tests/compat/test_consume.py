"""Reading without a group: from the beginning, from an offset, by time, past the ends."""

import time

import pytest

from .clients.face import Message, Partition, ProducerOptions, ServerError

T0 = int(time.time()) // 3600 * 3_600_000 - 86_400_000
"""Yesterday: retention takes what is older than a week, on either broker."""


def test_from_the_beginning_and_from_an_offset(client, new_topic):
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"%d" % n) for n in range(50)])
    assert [record.offset for record in client.read(partition, "beginning", 50)] == list(range(50))
    assert [record.value for record in client.read(partition, 37, 13)] == [b"%d" % n for n in range(37, 50)]


def test_partitions_are_apart(client, new_topic):
    topic = new_topic(3)
    for number in range(3):
        client.produce(Partition(topic, number), [Message(b"%d-%d" % (number, n)) for n in range(number + 1)])
    for number in range(3):
        records = client.read(Partition(topic, number), 0, number + 1)
        assert [record.value for record in records] == [b"%d-%d" % (number, n) for n in range(number + 1)]
        assert client.bounds(Partition(topic, number)) == (0, number + 1)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_many_batches_arrive_whole_and_in_order_through_small_fetches(client, new_topic, codec):
    partition = Partition(new_topic(), 0)
    for part in range(4):
        batch = [Message(b"%06d" % (part * 500 + n) + b"." * 900) for n in range(500)]
        client.produce(partition, batch, ProducerOptions(codec=codec))
    records = client.read(partition, 0, 2000, max_partition_bytes=50_000)
    assert [record.offset for record in records] == list(range(2000))
    assert [int(record.value[:6]) for record in records] == list(range(2000))


def test_seek_by_time(client, new_topic):
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"%d" % n, timestamp=T0 + n * 1000) for n in range(20)])
    assert client.offset_for_time(partition, 1) == 0
    assert client.offset_for_time(partition, T0) == 0
    assert client.offset_for_time(partition, T0 + 7000) == 7
    assert client.offset_for_time(partition, T0 + 7001) == 8
    assert client.offset_for_time(partition, T0 + 19_001) is None
    (record,) = client.read(partition, client.offset_for_time(partition, T0 + 12_345), 1)
    assert record.value == b"13"


def test_seek_by_time_when_timestamps_are_out_of_order(client, new_topic):
    partition = Partition(new_topic(), 0)
    for stamp in (5000, 1000, 9000, 2000, 9000):
        client.produce(partition, [Message(b"%d" % stamp, timestamp=T0 + stamp)])
    assert client.offset_for_time(partition, T0 + 1) == 0
    assert client.offset_for_time(partition, T0 + 5001) == 2
    assert client.offset_for_time(partition, T0 + 9000) == 2
    assert client.offset_for_time(partition, T0 + 9001) is None


def test_an_offset_beyond_the_end_is_an_error_not_an_empty_answer(client, new_topic):
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"%d" % n) for n in range(5)])
    with pytest.raises(ServerError) as refused:
        client.read(partition, 500, 1)
    assert refused.value.code == 1  # OFFSET_OUT_OF_RANGE


def test_deleted_records_are_gone_and_the_rest_stays(client, new_topic):
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"%d" % n) for n in range(30)])
    assert client.delete_records(partition, 12) == 12
    assert client.bounds(partition) == (12, 30)
    assert [record.offset for record in client.read(partition, "beginning", 18)] == list(range(12, 30))
    with pytest.raises(ServerError) as refused:
        client.read(partition, 3, 1)
    assert refused.value.code == 1
    with pytest.raises(ServerError) as refused:
        client.delete_records(partition, 31)
    assert refused.value.code == 1
