"""What HTTP writes Kafka clients read, and the other way round: the same records, the same places, the same offsets."""

from base64 import b64decode, b64encode

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.gateway.http.conftest import Served
from tests.gateway.http.test_service import figures

BATCH = "/api/v1/topics/orders/messages/batch"


async def test_http_writes_kafka_reads(served: Served) -> None:
    await served.make_topic("orders", 1)
    await served.post(
        "/api/v1/topics/orders/messages", data=b"\x00\xff", headers={"X-Partition-Key": "k", "X-Header-A": "1"}
    )
    messages = [{"value": None, "key": "k"}, {"value": "", "timestamp": 1748779200123, "headers": [{"key": "n"}]}]
    await served.post(BATCH, json={"messages": messages})
    consumer = AIOKafkaConsumer(bootstrap_servers=served.kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition("orders", 0)])
        records = [await consumer.getone() for _ in range(3)]
    finally:
        await consumer.stop()
    assert [(r.offset, r.key, r.value) for r in records] == [(0, b"k", b"\x00\xff"), (1, b"k", None), (2, None, b"")]
    assert records[0].headers == (("a", b"1"),)
    assert records[2].headers == (("n", None),)
    assert records[2].timestamp == 1748779200123


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_kafka_writes_http_reads(served: Served, codec: str | None) -> None:
    await served.make_topic("orders", 1)
    producer = AIOKafkaProducer(bootstrap_servers=served.kafka, compression_type=codec, acks="all")
    await producer.start()
    try:
        for number in range(50):
            await producer.send(
                "orders",
                b"value %d " % number * 10,
                key=b"\xff%d" % number,
                timestamp_ms=1748779200000 + number,
                headers=[("h", b"1"), ("h", b"\xfe")],
            )
        await producer.flush()
    finally:
        await producer.stop()
    read = (await served.messages("orders"))["messages"]
    assert [b64decode(m["value"]) for m in read] == [b"value %d " % number * 10 for number in range(50)]
    assert read[3] == {
        "offset": 3,
        "key": b64encode(b"\xff3").decode(),
        "key_encoding": "base64",
        "value": b64encode(b"value 3 " * 10).decode(),
        "timestamp": 1748779200003,
        "headers": [
            {"key": "h", "value": "1"},
            {"key": "h", "value": b64encode(b"\xfe").decode(), "value_encoding": "base64"},
        ],
    }


async def test_keys_go_where_kafka_clients_put_them(served: Served) -> None:
    await served.make_topic("orders", 7)
    producer = AIOKafkaProducer(bootstrap_servers=served.kafka)
    await producer.start()
    try:
        for key in ("a", "user_123", "ü", "x" * 200, "0000"):
            over_kafka = await producer.send_and_wait("orders", b"v", key=key.encode())
            over_http = await served.post("/api/v1/topics/orders/messages", data=b"v", headers={"X-Partition-Key": key})
            assert over_http.json["partition"] == over_kafka.partition
    finally:
        await producer.stop()


async def test_the_lag_of_who_has_committed_nothing_is_not_known(served: Served) -> None:
    await served.make_topic("orders", 3)
    await served.produce("orders", b"a", b"b", partition=0)
    await served.produce("orders", b"c", partition=1)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=served.kafka,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        for _ in range(3):
            await consumer.getone()
        shown = (await served.get("/api/v1/consumer-groups/billing/offsets")).json
        assert [(each["offset"], each["lag"]) for each in shown["offsets"]] == [(None, None), (None, None), (None, 0)]
        assert shown["lag"] is None
        assert await _lag_metrics(served) == {("uncommitted", "0"): 2, ("uncommitted", "1"): 1, ("lag", "2"): 0}
        await consumer.commit({TopicPartition("orders", 0): 1})
        shown = (await served.get("/api/v1/consumer-groups/billing/offsets")).json
        assert [(each["offset"], each["lag"]) for each in shown["offsets"]] == [(1, 1), (None, None), (None, 0)]
        assert shown["lag"] is None
        await consumer.commit({TopicPartition("orders", 1): 1})
        assert (await served.get("/api/v1/consumer-groups/billing/offsets")).json["lag"] == 1
        assert await _lag_metrics(served) == {("lag", "0"): 1, ("lag", "1"): 0, ("lag", "2"): 0}
    finally:
        await consumer.stop()


async def _lag_metrics(served: Served) -> dict[tuple[str, str], float]:
    found = {}
    for (name, labels), value in (await figures(served)).items():
        if name in ("tierlog_group_lag_records", "tierlog_group_uncommitted_records"):
            found[name.split("_")[2], dict(labels)["partition"]] = value
    return found


async def test_offsets_are_shared(served: Served) -> None:
    await served.make_topic("orders", 1)
    await served.produce("orders", *[b"%d" % number for number in range(10)])
    commit = {"topic": "orders", "partition": 0, "offset": 4}
    await served.post("/api/v1/consumer-groups/billing/offsets", json=commit)
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=served.kafka, group_id="billing", enable_auto_commit=False)
    await consumer.start()
    try:
        assert (await consumer.getone()).offset == 4
        await consumer.commit({TopicPartition("orders", 0): 7})
    finally:
        await consumer.stop()
    page = await served.messages("orders", headers={"X-Consumer-Group": "billing"})
    assert page["messages"][0]["offset"] == 7
    assert (await served.get("/api/v1/consumer-groups/billing/offsets")).json["lag"] == 3
