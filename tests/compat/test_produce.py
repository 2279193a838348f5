"""Every way of producing that clients have: codecs, acknowledgements, what a record may hold, what is refused."""

import time

import pytest

from .clients.face import Message, Partition, ProducerOptions, ServerError

NOW = int(time.time()) // 3600 * 3_600_000 - 3_600_000
"""An hour ago: retention takes what is older than a week, on either broker."""


def numbered(count: int, size: int = 40) -> list[Message]:
    return [Message(b"value-%06d-" % n + b"x" * size, key=b"key-%d" % (n % 7)) for n in range(count)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_it_was_sent(client, new_topic, codec):
    partition = Partition(new_topic(), 0)
    messages = numbered(300)
    offsets = client.produce(partition, messages, ProducerOptions(codec=codec))
    assert offsets == list(range(300))
    records = client.read(partition, "beginning", 300)
    assert [record.offset for record in records] == offsets
    assert [(record.key, record.value) for record in records] == [(m.key, m.value) for m in messages]


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", False), ("all", True)])
def test_acknowledgements(client, new_topic, acks, idempotent):
    partition = Partition(new_topic(), 0)
    offsets = client.produce(partition, numbered(100), ProducerOptions(acks=acks, idempotent=idempotent))
    assert offsets == ([-1] * 100 if acks == 0 else list(range(100)))
    assert [record.value for record in client.read(partition, 0, 100)] == [m.value for m in numbered(100)]
    assert client.bounds(partition) == (0, 100)


def test_what_a_record_may_hold(client, new_topic):
    partition = Partition(new_topic(), 0)
    messages = [
        Message(b"value", None, timestamp=NOW),
        Message(None, b"only a key", timestamp=NOW + 5),
        Message(b"", b"", timestamp=NOW + 3),
        Message(bytes(range(256)), b"\x00\xff", timestamp=NOW + 10),
        Message(b"v", b"k", (("a", b"1"), ("a", b"2"), ("empty", b""), ("ключ", b"\x00")), NOW + 11),
    ]
    client.produce(partition, messages)
    records = client.read(partition, "beginning", len(messages))
    came_back = [Message(record.value, record.key, record.headers, record.timestamp) for record in records]
    assert came_back == messages


def test_a_header_without_a_value(client, new_topic):
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"v", b"k", (("nothing", None),), NOW)])
    (record,) = client.read(partition, 0, 1)
    assert record.headers == (("nothing", None),)


def test_log_append_time_is_the_brokers_clock(client, new_topic):
    partition = Partition(new_topic(1, {"message.timestamp.type": "LogAppendTime"}), 0)
    before = int(time.time() * 1000)
    client.produce(partition, [Message(b"v", timestamp=NOW - 86_400_000)])
    (record,) = client.read(partition, 0, 1)
    assert before - 1000 <= record.timestamp <= int(time.time() * 1000) + 1000


def test_a_record_over_the_topics_limit_is_refused_and_the_next_one_taken(client, new_topic):
    partition = Partition(new_topic(1, {"max.message.bytes": "10000"}), 0)
    with pytest.raises(ServerError) as refused:
        client.produce(partition, [Message(b"x" * 50_000)])
    assert refused.value.code == 10  # MESSAGE_TOO_LARGE
    assert client.produce(partition, [Message(b"small")]) == [0]


def test_large_records_within_the_limit(client, new_topic):
    partition = Partition(new_topic(1, {"max.message.bytes": str(6 << 20)}), 0)
    messages = [Message(bytes([n]) * (1_500_000 * (n + 1))) for n in range(3)]
    assert client.produce(partition, messages) == [0, 1, 2]
    records = client.read(partition, 0, 3, max_partition_bytes=100_000)
    assert [record.value for record in records] == [message.value for message in messages]


def test_a_compacted_topic_wants_keys(client, new_topic):
    partition = Partition(new_topic(1, {"cleanup.policy": "compact"}), 0)
    with pytest.raises(ServerError) as refused:
        client.produce(partition, [Message(b"no key")])
    assert refused.value.code == (-1 if client.name == "aiokafka" else 87)  # INVALID_RECORD, unknown to aiokafka
    assert client.produce(partition, [Message(b"v", b"k")]) == [0]
