"""Fetch over the wire: limits, waiting, sessions, epochs, and the exact answer to what cannot be fetched."""

import asyncio
import time
from pathlib import Path
from uuid import UUID

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from hot_tier.cluster.quotas import QuotaAlteration
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.records import decode_records
from hot_tier.record.validate import validate_produced
from tests.gateway.kafka.batches import batch
from tests.gateway.kafka.node import running_node
from tests.support.waiting import until

VERSIONS = range(4, 18)
BIG = 1 << 20


@pytest.fixture
async def topic(node):
    await node.node.admin.create_topic("t", 3, config={"retention.ms": "-1"})  # its records are of 2023
    return node


async def write(running, *values, topic="t", partition=0, commit=True):
    """One batch per value. The sizes of the batches."""
    found = running.node.partitions.get(topic, partition)
    sizes = []
    for value in values:
        data = memoryview(batch(value))
        now_ms = running.node.clock()
        found.append(data, validate_produced(data, running.node.batch_limits(found), now_ms), now_ms)
        sizes.append(len(data))
    if commit:
        await until(lambda: found.high_watermark == found.log.log_end_offset)
    return sizes


def fetch(running, version, *wanted, topic="t", max_wait_ms=0, min_bytes=1, max_bytes=BIG, session=(0, -1), **fields):
    """`wanted` are (partition, offset, max bytes)."""
    parts = [FetchPartition(index, fetch_offset=offset, partition_max_bytes=limit) for index, offset, limit in wanted]
    for part in parts:
        part.current_leader_epoch = fields.get("leader_epoch", -1)
        part.last_fetched_epoch = fields.get("last_fetched_epoch", -1)
    asked = []
    if parts:
        found = running.node.image.find_topic(topic)
        asked = [FetchTopic(found.id if found else UUID(int=99), topic, parts)]
        if version < 13:
            asked[0].topic_id = UUID(int=0)
        else:
            asked[0].topic = ""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=fields.get("isolation_level", 0),
        session_id=session[0],
        session_epoch=session[1],
        topics=asked,
        forgotten_topics_data=fields.get("forgotten", []),
    )


def parts(answer):
    return [part for topic in answer.responses for part in topic.partitions]


def values(part):
    return [record.value for record in decode_records(bytes(part.records))]


async def test_every_version_reads_what_was_written(topic):
    await write(topic, b"a", b"b")
    async with topic.connect() as wire:
        for version in VERSIONS:
            answer = await wire.ask(fetch(topic, version, (0, 0, BIG), (1, 0, BIG)), version)
            first, second = parts(answer)
            assert (first.partition_index, first.error_code, values(first)) == (0, 0, [b"a", b"b"])
            assert (first.high_watermark, first.last_stable_offset) == (2, 2)
            assert (second.partition_index, second.error_code, bytes(second.records)) == (1, 0, b"")
            assert answer.session_id == 0
            if version >= 5:
                assert first.log_start_offset == 0
            if version >= 13:
                assert answer.responses[0].topic_id == topic.node.image.topic("t").id
            else:
                assert answer.responses[0].topic == "t"


async def test_read_committed_gets_an_empty_list_of_aborted_transactions(topic):
    await write(topic, b"a")
    async with topic.connect() as wire:
        for isolation, aborted in ((0, None), (1, [])):
            answer = await wire.ask(fetch(topic, 11, (0, 0, BIG), isolation_level=isolation), 11)
            assert parts(answer)[0].aborted_transactions == aborted
            assert values(parts(answer)[0]) == [b"a"]


async def test_from_the_middle_of_a_batch_the_whole_batch_comes(topic):
    data = memoryview(batch(b"a", b"b", b"c"))
    partition = topic.node.partitions.get("t", 0)
    partition.append(data, read_header(data), topic.node.clock())
    await until(lambda: partition.high_watermark == 3)
    async with topic.connect() as wire:
        answer = await wire.ask(fetch(topic, 11, (0, 2, BIG)), 11)
        assert values(parts(answer)[0]) == [b"a", b"b", b"c"]


async def test_limits_and_the_one_batch_that_is_always_given(topic):
    sizes = await write(topic, *(bytes(1000) for _ in range(10)))
    await write(topic, bytes(3000), partition=1)
    async with topic.connect() as wire:

        async def lengths(*wanted, **limits):
            answer = await wire.ask(fetch(topic, 11, *wanted, **limits), 11)
            return [len(part.records) for part in parts(answer)]

        one = sizes[0]
        assert await lengths((0, 0, 1)) == [one]
        assert await lengths((0, 0, 3 * one + 10)) == [3 * one]
        assert await lengths((0, 0, BIG), max_bytes=2 * one) == [2 * one]
        assert await lengths((0, 0, BIG), (1, 0, BIG), max_bytes=1) == [one, 0]
        assert await lengths((2, 0, BIG), (1, 0, 1), (0, 0, 1)) == [0, len(batch(bytes(3000))), 0]
        assert await lengths((0, 0, 2 * one), (1, 0, BIG)) == [2 * one, len(batch(bytes(3000)))]
        assert await lengths((0, 0, 0)) == [one]
        assert await lengths((0, 0, -5), max_bytes=-5) == [one]


async def test_what_cannot_be_fetched_and_why(topic):
    await write(topic, b"a", b"b")
    epoch = topic.node.partitions.get("t", 0).leader_epoch
    async with topic.connect() as wire:

        async def code(version, *wanted, **fields):
            started = time.monotonic()
            answer = await wire.ask(fetch(topic, version, *wanted, max_wait_ms=5000, **fields), version)
            assert time.monotonic() - started < 2, "an error is not kept waiting"
            (part,) = parts(answer)
            assert bytes(part.records) == b""
            return ErrorCode(part.error_code)

        assert await code(11, (0, 3, BIG)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await code(11, (0, -1, BIG)) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await code(11, (9, 0, BIG)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(11, (-1, 0, BIG)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(11, (0, 0, BIG), topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(13, (0, 0, BIG), topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_ID
        assert await code(11, (0, 0, BIG), leader_epoch=epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert topic.server.unexpected_errors == 0


def change_byte(path: Path, at: int, value: int) -> None:
    """In place: a file that is cut and written anew is short for a moment, and a thread of the broker may look then."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value]))


async def test_every_wrong_bit_of_a_batch_is_an_error(topic):
    """Of one that this broker wrote, too: many clients check no CRC."""
    await write(topic, b"a", b"b", b"c")
    log = topic.node.partitions.get("t", 0).log
    path = Path(log.segments()[0].path)
    content = path.read_bytes()
    second, header = list(iter_headers(content))[1]
    async with topic.connect() as wire:
        for bit in range(8 * header.size):
            at = second + bit // 8
            change_byte(path, at, content[at] ^ 1 << bit % 8)
            for offset, code, expected in ((1, ErrorCode.CORRUPT_MESSAGE, []), (0, ErrorCode.NONE, [b"a"])):
                (part,) = parts(await wire.ask(fetch(topic, 11, (0, offset, BIG)), 11))
                assert (ErrorCode(part.error_code), values(part)) == (code, expected), bit
            change_byte(path, at, content[at])
            # As if the whole file had lain there for a second.
            segment = log._segments[0]
            segment.damage._seen = (0.0, ())
            segment.look_again()
        (part,) = parts(await wire.ask(fetch(topic, 11, (0, 0, BIG)), 11))
        assert values(part) == [b"a", b"b", b"c"]


async def test_an_old_leader_epoch_is_fenced_and_told_the_leader(tmp_path):
    async with running_node(str(tmp_path)) as running:
        await running.node.admin.create_topic("t", 1)
        await write(running, b"a")
    async with running_node(str(tmp_path)) as running, running.connect() as wire:
        epoch = running.node.partitions.get("t", 0).leader_epoch
        assert epoch == 1
        answer = await wire.ask(fetch(running, 16, (0, 0, BIG), leader_epoch=0), 16)
        (part,) = parts(answer)
        assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (0, 1)
        assert [(e.node_id, e.host, e.port) for e in answer.node_endpoints] == [(0, running.host, running.port)]
        answer = await wire.ask(fetch(running, 16, (0, 0, BIG), leader_epoch=1), 16)
        assert values(parts(answer)[0]) == [b"a"]


async def test_a_reader_whose_epoch_ended_earlier_is_told_where(tmp_path):
    async with running_node(str(tmp_path)) as running:
        await running.node.admin.create_topic("t", 1)
        await write(running, b"a", b"b")
    async with running_node(str(tmp_path)) as running, running.connect() as wire:
        await write(running, b"c", b"d")
        answer = await wire.ask(fetch(running, 12, (0, 3, BIG), last_fetched_epoch=0), 12)
        (part,) = parts(answer)
        assert (part.error_code, bytes(part.records)) == (0, b"")
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 2)
        answer = await wire.ask(fetch(running, 12, (0, 2, BIG), last_fetched_epoch=0), 12)
        assert parts(answer)[0].diverging_epoch is None
        assert values(parts(answer)[0]) == [b"c", b"d"]


async def test_a_fetch_waits_until_enough_is_committed(topic):
    async with topic.connect() as wire:
        started = time.monotonic()
        await wire.send(fetch(topic, 11, (0, 0, BIG), (1, 0, BIG), max_wait_ms=10_000, min_bytes=150), 11)
        await asyncio.sleep(0.1)
        await write(topic, b"a", partition=1)
        await asyncio.sleep(0.1)
        await write(topic, bytes(100), partition=0)
        _, answer = await wire.receive(ApiKey.FETCH, 11)
        assert 0.2 <= time.monotonic() - started < 5
        first, second = parts(answer)
        assert (values(first), values(second)) == ([bytes(100)], [b"a"])
    partition = topic.node.partitions.get("t", 0)
    assert not partition._waiters


async def test_a_fetch_gives_what_there_is_when_the_time_is_over(topic):
    await write(topic, b"a")
    async with topic.connect() as wire:
        started = time.monotonic()
        answer = await wire.ask(fetch(topic, 11, (0, 0, BIG), max_wait_ms=200, min_bytes=BIG), 11)
        assert 0.19 <= time.monotonic() - started < 5
        assert values(parts(answer)[0]) == [b"a"]
        started = time.monotonic()
        answer = await wire.ask(fetch(topic, 11, (0, 1, BIG), max_wait_ms=200), 11)
        assert 0.19 <= time.monotonic() - started < 5
        assert bytes(parts(answer)[0].records) == b""


async def test_what_is_appended_but_not_committed_is_not_seen(topic):
    partition = topic.node.partitions.get("t", 0)
    await write(topic, b"a")
    partition.log.request_flush = lambda: None
    await write(topic, b"b", commit=False)
    async with topic.connect() as wire:
        (part,) = parts(await wire.ask(fetch(topic, 11, (0, 0, BIG)), 11))
        assert (part.high_watermark, values(part)) == (1, [b"a"])
        for offset in (1, 2):
            (part,) = parts(await wire.ask(fetch(topic, 11, (0, offset, BIG)), 11))
            assert (part.error_code, bytes(part.records)) == (0, b"")


async def test_a_waiting_fetch_hears_that_its_topic_is_gone(topic):
    async with topic.connect() as wire:
        await wire.send(fetch(topic, 11, (0, 0, BIG), max_wait_ms=20_000), 11)
        await until(lambda: topic.node.partitions.get("t", 0)._waiters)
        await topic.node.admin.delete_topic("t")
        _, answer = await wire.receive(ApiKey.FETCH, 11)
        assert parts(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_that_leaves_stops_waiting(topic):
    async with topic.connect() as wire:
        await wire.send(fetch(topic, 11, (0, 0, BIG), max_wait_ms=60_000), 11)
        partition = topic.node.partitions.get("t", 0)
        await until(lambda: partition._waiters)
    await until(lambda: not partition._waiters)


async def test_bytes_that_are_not_in_memory_are_read_in_a_thread(topic):
    await write(topic, b"a")
    partition = topic.node.partitions.get("t", 0)
    partition.log.read_now = lambda found: None
    await write(topic, b"b", partition=1)
    async with topic.connect() as wire:
        first, second = parts(await wire.ask(fetch(topic, 11, (0, 0, BIG), (1, 0, BIG)), 11))
        assert (values(first), values(second)) == ([b"a"], [b"b"])
        await wire.send(fetch(topic, 11, (0, 1, BIG), max_wait_ms=20_000), 11)
        await until(lambda: partition._waiters)
        await write(topic, b"c")
        _, answer = await wire.receive(ApiKey.FETCH, 11)
        assert values(parts(answer)[0]) == [b"c"]


async def test_a_session_is_told_only_what_is_new(topic):
    await write(topic, b"a")
    version = 13
    async with topic.connect() as wire:
        answer = await wire.ask(fetch(topic, version, (0, 0, BIG), (1, 0, BIG), (2, 0, BIG), session=(0, 0)), version)
        session = answer.session_id
        assert session > 0
        assert [part.partition_index for part in parts(answer)] == [0, 1, 2]
        # The position of partition 0 moves; nothing else is said, nothing else is heard.
        answer = await wire.ask(fetch(topic, version, (0, 1, BIG), session=(session, 1)), version)
        assert parts(answer) == []
        await write(topic, b"b", partition=1)
        answer = await wire.ask(fetch(topic, version, session=(session, 2), max_wait_ms=5000), version)
        assert [(part.partition_index, values(part)) for part in parts(answer)] == [(1, [b"b"])]
        topic_id = topic.node.image.topic("t").id
        forgotten = [ForgottenTopic(topic_id=topic_id, partitions=[1])]
        answer = await wire.ask(fetch(topic, version, session=(session, 3), forgotten=forgotten), version)
        assert parts(answer) == []
        wrong = await wire.ask(fetch(topic, version, session=(session, 3)), version)
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = await wire.ask(fetch(topic, version, session=(session + 1, 1)), version)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_many_partitions_share_a_small_response_fairly(topic):
    for partition in range(3):
        await write(topic, bytes(1000), bytes(1000), partition=partition)
    seen = set()
    async with topic.connect() as wire:
        session = 0
        for epoch in range(3):
            wanted = [(0, 0, BIG), (1, 0, BIG), (2, 0, BIG)] if epoch == 0 else []
            answer = await wire.ask(fetch(topic, 11, *wanted, max_bytes=1100, session=(session, epoch)), 11)
            session = answer.session_id
            seen |= {part.partition_index for part in parts(answer) if part.records}
    assert seen == {0, 1, 2}


async def test_batches_are_whole_and_offsets_continue(topic):
    await write(topic, *(b"%d" % number * 50 for number in range(100)))
    async with topic.connect() as wire:
        offset, seen = 0, []
        while offset < 100:
            (part,) = parts(await wire.ask(fetch(topic, 17, (0, offset, 700)), 17))
            records = bytes(part.records)
            headers = list(iter_headers(records))
            assert sum(header.size for _, header in headers) == len(records)
            assert headers[0][1].base_offset == offset
            seen += values(part)
            offset = headers[-1][1].end_offset
        assert seen == [b"%d" % number * 50 for number in range(100)]


async def test_fetch_is_throttled_by_its_quota(topic):
    await write(topic, bytes(10_400))
    limit = QuotaAlteration({"client-id": "test"}, {"consumer_byte_rate": 1000.0})
    assert await topic.node.quota_admin.alter([limit]) == [None]
    async with topic.connect() as wire:
        answer = await wire.ask(fetch(topic, 11, (0, 0, BIG)), 11)
        assert len(parts(answer)[0].records) > 10_400
        assert 300 < answer.throttle_time_ms < 700


@pytest.mark.parametrize(("max_bytes", "partition_max_bytes"), [(6000, BIG), (BIG, 6000)])
async def test_no_more_is_waited_for_than_may_be_sent(topic, max_bytes, partition_max_bytes):
    """Batches are given whole, so that what is sent is a little less."""
    await write(topic, bytes(5000), bytes(5000))
    async with topic.connect() as wire:
        limits = {"min_bytes": min(BIG, partition_max_bytes), "max_bytes": max_bytes}
        answer = await wire.ask(fetch(topic, 11, (0, 0, partition_max_bytes), max_wait_ms=60_000, **limits), 11)
        assert 5000 < len(parts(answer)[0].records) < 6000


async def test_the_end_of_a_segment_is_not_waited_at(node):
    await node.node.admin.create_topic("t", 1, config={"segment.bytes": "8000"})
    await write(node, bytes(5000), bytes(5000))
    async with node.connect() as wire:
        answer = await wire.ask(fetch(node, 11, (0, 0, 9000), max_wait_ms=60_000, min_bytes=9000), 11)
        assert 5000 < len(parts(answer)[0].records) < 6000
