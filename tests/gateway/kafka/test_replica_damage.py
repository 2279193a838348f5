"""Damaged files in a cluster: what is wrong on one disk never gets to another, and is mended from one that is whole."""

import asyncio
from pathlib import Path

from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.records import NewRecord, encode_records
from tests.gateway.kafka.members import Member, members
from tests.gateway.kafka.node import now_ms
from tests.support.waiting import until

BASE_OFFSET_AT = 7


def put(member: Member, key: bytes, value: bytes) -> int:
    batch = encode_records([NewRecord(now_ms(), key, value)])
    return member.partition().append(batch, read_header(batch), now_ms()).end_offset


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_headers(data)]


async def test_a_compacted_log_is_copied_with_its_gaps(tmp_path: Path) -> None:
    async with members(tmp_path, 1) as cluster:
        await cluster.create(1, 2, **{"cleanup.policy": "compact", "min.insync.replicas": "1"})
        leader = cluster[1]
        for number in range(12):
            put(leader, b"key-%d" % (number % 3), b"%d" % number)
            if number % 4 == 3:
                leader.log().roll(now_ms())
        leader.log().flush()
        await until(lambda: leader.partition().high_watermark == 12)
        await leader.logs.compact_once(leader.log())
        assert offsets(await leader.bytes()) == [9, 10, 11]
        put(leader, b"key-3", b"last")
        await cluster.start(2)
        await cluster.copied(13)
        assert await cluster[2].bytes() == await leader.bytes()


async def test_an_offset_that_was_flipped_at_the_leader_is_not_copied(tmp_path: Path) -> None:
    async with members(tmp_path, 1) as cluster:
        await cluster.create(1, 2, **{"min.insync.replicas": "1"})
        leader = cluster[1]
        for number in range(5):
            leader.append(b"%d" % number)
        await until(lambda: leader.partition().high_watermark == 5)
        [info] = leader.log().segments()
        data = Path(info.path).read_bytes()
        third = [position for position, _ in iter_headers(data)][3]
        with open(info.path, "r+b") as file:
            file.seek(third + BASE_OFFSET_AT)
            file.write(bytes([data[third + BASE_OFFSET_AT] ^ 4]))
        await cluster.start(2)
        await cluster.copied(3)
        await asyncio.sleep(0.3)
        assert cluster[2].log().log_end_offset == 3
        assert leader.partition().in_sync == (1,)
        Path(info.path).write_bytes(data)
        await cluster.copied(5)
        assert await cluster[2].bytes() == data
