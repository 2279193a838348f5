"""Produce over the wire: what is acknowledged, what is refused with exactly which answer, and that nothing is lost."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handlers import produce as handler
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from hot_tier.cluster.quotas import QuotaAlteration
from hot_tier.errors import StorageFailure
from hot_tier.record import recompression
from hot_tier.record.batch import iter_headers
from hot_tier.record.compression import Codec, compress
from hot_tier.record.records import Record, decode_records, encode_records
from hot_tier.record.validate import validate_produced
from tests.gateway.kafka.batches import TIME_MS, batch, patched
from tests.gateway.kafka.node import KAFKA, running_node
from tests.gateway.kafka.test_leadership import hand_over
from tests.support.waiting import until

VERSIONS = range(3, 12)


def produce(*data, topic="t", acks=-1, timeout_ms=5000, transactional_id=None):
    parts = [PartitionProduceData(index, records) for index, records in data]
    return ProduceRequest(transactional_id, acks, timeout_ms, [TopicProduceData(name=topic, partition_data=parts)])


async def values(running, topic="t", partition=0):
    found = running.node.partitions.get(topic, partition)
    await until(lambda: found.high_watermark == found.log.log_end_offset)
    fetched = await running.node.reader.read(found, found.log.log_start_offset, 1 << 20, 0)
    return [record.value for record in decode_records(fetched.records)]


@pytest.fixture
async def topic(node):
    await node.node.admin.create_topic("t", 2)
    return node


@pytest.mark.parametrize("acks", [1, -1])
async def test_every_version_appends_and_answers(topic, acks):
    async with topic.connect() as wire:
        for number, version in enumerate(VERSIONS):
            answer = await wire.ask(produce((1, batch(b"%d" % version)), acks=acks), version)
            (part,) = answer.responses[0].partition_responses
            assert answer.responses[0].name == "t"
            assert (part.index, part.error_code, part.base_offset, part.log_append_time_ms) == (1, 0, number, -1)
            assert part.log_start_offset == (0 if version >= 5 else -1)
            assert part.error_message is None
        assert await values(topic, partition=1) == [b"%d" % version for version in VERSIONS]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_versions_are_named_but_not_served(topic, version):
    async with topic.connect() as wire:
        await wire.send_bytes(b"\0\0\0\x0a\0\0" + bytes([0, version]) + b"\0\0\0\1\xff\xff")
        assert await wire.closed() == b""


async def test_acks_0_is_not_answered_and_an_error_closes(topic):
    async with topic.connect() as wire:
        await wire.send(produce((0, batch(b"a")), acks=0), 9)
        answer = await wire.ask(produce((0, batch(b"b")), acks=1), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 1
        await wire.send(produce((7, batch(b"c")), acks=0), 9)
        assert await wire.closed() == b""
    assert await values(topic) == [b"a", b"b"]


async def test_partitions_succeed_and_fail_each_for_itself(topic):
    async with topic.connect() as wire:
        request = produce((0, batch(b"a")), (5, batch(b"b")), (1, patched(batch(b"c"), 66, "b", 1, mend_crc=False)))
        request.topic_data.append(
            TopicProduceData(name="nowhere", partition_data=[PartitionProduceData(0, batch(b"d"))])
        )
        answer = await wire.ask(request, 9)
        codes = {
            (t.name, p.index): (p.error_code, p.base_offset) for t in answer.responses for p in t.partition_responses
        }
        assert codes == {
            ("t", 0): (ErrorCode.NONE, 0),
            ("t", 5): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            ("t", 1): (ErrorCode.CORRUPT_MESSAGE, -1),
            ("nowhere", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        }
    assert await values(topic) == [b"a"]
    assert await values(topic, partition=1) == []


REFUSED = {
    "no records": (lambda: None, ErrorCode.INVALID_RECORD),
    "empty": (lambda: b"", ErrorCode.INVALID_RECORD),
    "cut": (lambda: batch(b"v")[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch(b"v") + batch(b"w"), ErrorCode.INVALID_RECORD),
    "crc": (lambda: patched(batch(b"v"), 65, "b", 7, mend_crc=False), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (lambda: patched(batch(b"v"), 16, "b", 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "codec 6": (lambda: patched(batch(b"v"), 21, "h", 6), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "control": (lambda: patched(batch(b"v"), 21, "h", 32), ErrorCode.INVALID_RECORD),
    "append time": (lambda: patched(batch(b"v"), 21, "h", 8), ErrorCode.INVALID_TIMESTAMP),
    "count": (lambda: patched(batch(b"v"), 57, "i", 2), ErrorCode.INVALID_RECORD),
    "transactional": (
        lambda: batch(b"v", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "too large": (lambda: batch(bytes(1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
    "gap in sequence": (
        lambda: batch(b"v", producer_id=77, producer_epoch=0, base_sequence=5),
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    "old epoch": (
        lambda: batch(b"v", producer_id=78, producer_epoch=1, base_sequence=0),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_batch_that_is_refused_and_why(topic, name):
    make, code = REFUSED[name]
    async with topic.connect() as wire:
        await wire.ask(produce((0, batch(b"first", producer_id=77, producer_epoch=0, base_sequence=0))), 9)
        await wire.ask(produce((0, batch(b"second", producer_id=78, producer_epoch=2, base_sequence=0))), 9)
        answer = await wire.ask(produce((0, make())), 9)
        (part,) = answer.responses[0].partition_responses
        assert (ErrorCode(part.error_code), part.base_offset) == (code, -1)
        assert part.error_message
        after = await wire.ask(produce((0, batch(b"third"))), 9)
        assert after.responses[0].partition_responses[0].base_offset == 2
    assert await values(topic) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_other_acks_are_refused_for_each_partition(topic, acks):
    async with topic.connect() as wire:
        answer = await wire.ask(produce((0, batch(b"a")), (1, batch(b"b")), acks=acks), 9)
        codes = [(p.index, p.error_code) for p in answer.responses[0].partition_responses]
        assert codes == [(0, ErrorCode.INVALID_REQUIRED_ACKS), (1, ErrorCode.INVALID_REQUIRED_ACKS)]
    assert await values(topic) == []


def mixed(keys, times=None, codec=Codec.NONE):
    times = times or [TIME_MS] * len(keys)
    return encode_records(
        [Record(0, time, 0, key, b"v", ()) for key, time in zip(keys, times, strict=True)], codec=codec
    )


@pytest.mark.parametrize("codec", Codec)
async def test_every_record_that_is_wrong_is_named_and_no_other(node, codec):
    config = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "1000"}
    await node.node.admin.create_topic("t", 1, config=config)
    now_ms = node.node.clock()
    keys = [None if n % 10 == 3 else b"k" for n in range(100)]
    times = [now_ms] * 100
    async with node.connect() as wire:
        answer = await wire.ask(produce((0, mixed(keys, times, codec))), 9)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in part.record_errors] == list(range(3, 100, 10))
        assert {each.batch_index_error_message for each in part.record_errors} == {
            "no key, on a topic that is compacted by key"
        }
        times[50] = now_ms - 60_000
        answer = await wire.ask(produce((0, mixed(keys, times, codec))), 9)
        (part,) = answer.responses[0].partition_responses
        assert part.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [each.batch_index for each in part.record_errors] == sorted([50, *range(3, 100, 10)])
        assert "timestamp" in part.record_errors[5].batch_index_error_message


async def test_an_answer_names_so_many_records_and_no_more(node):
    await node.node.admin.create_topic("t", 3, config={"cleanup.policy": "compact"})
    wrong = mixed([None] * 6000, codec=Codec.ZSTD)
    async with node.connect() as wire:
        answer = await wire.ask(produce((0, wrong), (1, wrong), (2, wrong)), 9)
    parts = answer.responses[0].partition_responses
    assert [part.error_code for part in parts] == [ErrorCode.INVALID_RECORD] * 3
    assert [len(part.record_errors) for part in parts] == [6000, 4000, 0]


async def test_a_repeated_batch_is_answered_with_its_first_offset(topic):
    async with topic.connect() as wire:
        offsets = []
        for sequence in (0, 1, 0, 1):
            data = batch(b"%d" % sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)
            answer = await wire.ask(produce((0, data)), 9)
            part = answer.responses[0].partition_responses[0]
            assert part.error_code == 0
            offsets.append(part.base_offset)
        assert offsets == [0, 1, 0, 1]
    assert await values(topic) == [b"0", b"1"]


async def test_log_append_time_is_told(node):
    await node.node.admin.create_topic("t", 1, config={"message.timestamp.type": "LogAppendTime"})
    async with node.connect() as wire:
        answer = await wire.ask(produce((0, batch(b"a"))), 9)
        stamped = answer.responses[0].partition_responses[0].log_append_time_ms
        assert stamped > TIME_MS


async def test_the_record_before_a_limit_passes(node):
    size = len(batch(bytes(1000)))
    await node.node.admin.create_topic("t", 1, config={"max.message.bytes": str(size)})
    async with node.connect() as wire:
        assert (await wire.ask(produce((0, batch(bytes(1000)))), 9)).responses[0].partition_responses[0].error_code == 0
        answer = await wire.ask(produce((0, batch(bytes(1001)))), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_ack_waits_for_the_sync_and_says_when_it_was_not_in_time(topic, acks):
    partition = topic.node.partitions.get("t", 0)
    asked = []
    flush, partition.log.request_flush = partition.log.request_flush, lambda: asked.append(1)
    async with topic.connect() as wire:
        await wire.send(produce((0, batch(b"a")), acks=acks, timeout_ms=10_000), 9)
        await wire.send(produce((0, batch(b"b")), acks=acks, timeout_ms=100), 9)
        await wire.send(produce((0, batch(b"c")), acks=acks, timeout_ms=10_000), 9)
        await until(lambda: len(asked) == 3)
        await asyncio.sleep(0.2)
        flush()
        answers = [(await wire.receive(ApiKey.PRODUCE, 9))[1] for _ in range(3)]
        parts = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [part.error_code for part in parts] == [0, ErrorCode.REQUEST_TIMED_OUT, 0]
        assert [part.base_offset for part in parts] == [0, -1, 2]
    assert await values(topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("acks", [1, -1])
async def test_what_is_acknowledged_is_in_the_next_list_offsets(node, flush, acks):
    await node.node.admin.create_topic("t", 1, config={"flush": flush})
    latest = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
    partition = node.node.partitions.get("t", 0)
    async with node.connect() as producer, node.connect() as asker:
        for number in range(100):
            answer = await producer.ask(produce((0, batch(b"%d" % number)), acks=acks), 9)
            assert answer.responses[0].partition_responses[0].base_offset == number
            assert (await asker.ask(latest, 9)).topics[0].partitions[0].offset == number + 1
            assert flush == "os" or partition.log.flushed_offset == number + 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_disk_that_fails_is_told_to_those_who_wait(topic, acks):
    partition = topic.node.partitions.get("t", 0)
    asked = []
    partition.log.request_flush = lambda: asked.append(1)
    async with topic.connect() as wire:
        await wire.send(produce((0, batch(b"a")), acks=acks), 9)
        await until(lambda: asked)
        partition.close(StorageFailure("the disk is gone"))
        answer = (await wire.receive(ApiKey.PRODUCE, 9))[1].responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


async def test_produce_is_throttled_by_its_quota(tmp_path):
    async with running_node(str(tmp_path)) as running, running.connect() as wire:
        await running.node.admin.create_topic("t", 1)
        limit = QuotaAlteration({"client-id": "test"}, {"producer_byte_rate": 1000.0})
        assert await running.node.quota_admin.alter([limit]) == [None]
        answer = await wire.ask(produce((0, batch(bytes(10_400)))), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 300 < answer.throttle_time_ms < 700


async def test_acks_0_is_throttled_by_its_quota_too(tmp_path):
    async with running_node(str(tmp_path)) as running, running.connect() as wire:
        await running.node.admin.create_topic("t", 1)
        limit = QuotaAlteration({"client-id": "test"}, {"producer_byte_rate": 1000.0})
        assert await running.node.quota_admin.alter([limit]) == [None]
        began = time.monotonic()
        await wire.send(produce((0, batch(bytes(10_400))), acks=0), 9)
        await wire.ask(produce((0, batch(b"a")), acks=1), 9)
        assert time.monotonic() - began > 0.3


def large(**fields):
    """Little to send, much to check."""
    return batch(*[bytes(1 << 20)] * 10, codec=Codec.ZSTD, **fields)


@pytest.fixture
def gate(monkeypatch):
    """Opened, batches that are checked in a thread go on."""
    opened = threading.Event()

    def checked(records, limits, now_ms):
        if threading.current_thread() is not threading.main_thread():
            assert opened.wait(10)
        return validate_produced(records, limits, now_ms)

    monkeypatch.setattr(handler, "validate_produced", checked)
    yield opened
    opened.set()


async def test_while_a_large_batch_is_checked_others_are_served_and_its_followers_wait(topic, gate):
    async with topic.connect() as wire, topic.connect() as other:
        await wire.send(produce((0, large()), (1, batch(b"small"))), 9)
        await wire.send(produce((0, batch(b"behind"))), 9)
        answer = await other.ask(produce((0, batch(b"other"))), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 0
        gate.set()
        first = (await wire.receive(ApiKey.PRODUCE, 9))[1].responses[0].partition_responses
        assert [(part.index, part.error_code, part.base_offset) for part in first] == [(0, 0, 1), (1, 0, 0)]
        second = (await wire.receive(ApiKey.PRODUCE, 9))[1].responses[0].partition_responses
        assert [(part.error_code, part.base_offset) for part in second] == [(0, 11)]
    await until(lambda: not topic.server.buffers.receiving_bytes)


async def test_a_large_batch_that_is_wrong_is_refused_as_a_small_one_is(topic, gate):
    gate.set()
    await topic.node.admin.create_topic("keyed", 1, config={"cleanup.policy": "compact"})
    async with topic.connect() as wire:
        answer = await wire.ask(produce((0, large(key=None)), topic="keyed"), 9)
        (part,) = answer.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert [each.batch_index for each in part.record_errors] == list(range(10))
        await wire.send(produce((0, large()), acks=0), 9)
        answer = await wire.ask(produce((0, batch(b"a"))), 9)
        assert answer.responses[0].partition_responses[0].base_offset == 10
        await wire.send(produce((0, large(key=None)), topic="keyed", acks=0), 9)
        assert await wire.closed() == b""


async def test_without_memory_for_it_a_large_batch_is_put_off_and_never_checked_on_the_loop(topic):
    receiving = topic.server.buffers.receiving
    receiving.hold("others", receiving.max_bytes)
    async with topic.connect() as wire:
        answer = await wire.ask(produce((0, large()), (1, batch(b"small"))), 9)
        codes = [part.error_code for part in answer.responses[0].partition_responses]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, 0]
        receiving.give_back("others", receiving.max_bytes)
        answer = await wire.ask(produce((0, large())), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


async def test_a_large_batch_beyond_what_may_be_decompressed(tmp_path):
    kafka = replace(KAFKA, max_decompressed_bytes=9 << 20)
    async with running_node(str(tmp_path), kafka) as running, running.connect() as wire:
        await running.node.admin.create_topic("t", 1)
        answer = await wire.ask(produce((0, large())), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_much_is_compressed_anew_in_a_thread(topic, monkeypatch):
    threads = []

    def compressing(*args):
        threads.append(threading.current_thread() is threading.main_thread())
        return compress(*args)

    monkeypatch.setattr(recompression, "compress", compressing)
    await topic.node.admin.create_topic("packed", 1, config={"compression.type": "gzip"})
    log = topic.node.partitions.get("packed", 0).log
    sent = [batch(b"small"), batch(*[bytes(1000)] * 500), large(), batch(b"last")]
    async with topic.connect() as wire:
        for each in sent:
            answer = await wire.ask(produce((0, each), topic="packed"), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        await topic.node.admin.create_topic("small", 1, config={"compression.type": "gzip", "max.message.bytes": "100"})
        answer = await wire.ask(produce((0, batch(bytes(200))), topic="small"), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert threads == [True, False, False, True]
    assert log.log_end_offset == 512
    fetched = await topic.node.reader.read(topic.node.partitions.get("packed", 0), 0, 1 << 20, 0)
    assert [header.codec for _, header in iter_headers(fetched.records)] == [Codec.GZIP] * 4
    assert [len(record.value) for record in decode_records(fetched.records)] == [5, *[1000] * 500, *[1 << 20] * 10, 4]


async def test_a_leadership_that_ends_while_a_large_batch_is_checked(topic, gate):
    async with topic.connect() as wire:
        log = topic.node.partitions.get("t", 0).log
        await wire.send(produce((0, large())), 9)
        await asyncio.sleep(0)
        await hand_over(topic, 5)
        gate.set()
        (part,) = (await wire.receive(ApiKey.PRODUCE, 9))[1].responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert log.log_end_offset == 0
