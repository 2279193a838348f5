"""Damaged files in a cluster: what is wrong on one disk never gets to another, and is mended from one that is whole.

Every harm, at every moment, is tried in `tests/damage`."""

import asyncio
import os
from pathlib import Path

import pytest

from gateway.kafka.segment_client import copy_batches
from hot_tier.errors import CorruptLog
from hot_tier.log.proof import prove_segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.mender import PAUSE_S, Mender
from tests.damage.harms import flip, flip_head
from tests.gateway.kafka.members import Member, Members, members
from tests.gateway.kafka.node import now_ms
from tests.support.waiting import until

BASE_OFFSET_AT = 7
BASE_OFFSET_BIT = 61
BODY_BIT = 900


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
        await leader.logs.compactor.compact(leader.log())
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


# Mending


HARMED = 1
"""Which of the sealed segments."""


@pytest.fixture
async def three(tmp_path: Path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3, **{"min.insync.replicas": "3"})
        leader = cluster[1]
        for number in range(25):
            for each in (1, 2, 3):
                if number and number % 5 == 0:
                    cluster[each].log().roll(now_ms())
            end = leader.append(b"%d" % number * 50, b"x" * 100)
            await leader.partition().when_committed(end)
        await until(lambda: all(cluster[each].log().committed_offset == 50 for each in (1, 2, 3)))
        for each in (1, 2, 3):
            cluster[each].log().flush()
        yield cluster


def mender(member: Member, clock_s=lambda: 0.0) -> Mender:
    return Mender(member.table, member.image, member.node_id, copy_batches, clock_s)


def sealed(cluster: Members, node: int) -> SegmentInfo:
    return cluster[node].log().sealed_segments()[HARMED]


def known_as_damaged(cluster: Members, node: int) -> bool:
    """As whoever proves a segment finds it."""
    for info in cluster[node].log().sealed_segments():
        try:
            prove_segment(info.path, info.contents)
        except CorruptLog as error:
            cluster[node].log().note_damage(info, str(error))
    return bool(cluster[node].log().damaged_segments())


async def test_a_copy_that_is_damaged_too_is_not_taken_and_a_third_is(three: Members) -> None:
    path, good = Path(sealed(three, 2).path), Path(sealed(three, 2).path).read_bytes()
    flip_head(path, 1, BASE_OFFSET_BIT)
    flip_head(Path(sealed(three, 1).path), 1, BASE_OFFSET_BIT)
    assert known_as_damaged(three, 2)
    await mender(three[2]).round()
    assert path.read_bytes() == good


async def test_without_a_whole_copy_the_damaged_file_stays_and_is_tried_again_later(
    three: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hot_tier.log.damage._LOOK_AGAIN_SECONDS", 0.0)
    now_s = 0.0
    path, good = Path(sealed(three, 1).path), Path(sealed(three, 1).path).read_bytes()
    for node in (1, 2, 3):
        flip(Path(sealed(three, node).path), BODY_BIT)
    damaged = path.read_bytes()
    assert known_as_damaged(three, 1)
    mends = mender(three[1], lambda: now_s)
    await mends.round()
    assert path.read_bytes() == damaged and three[1].log().damaged_segments()
    Path(sealed(three, 3).path).write_bytes(good)
    await mends.round()
    assert path.read_bytes() == damaged, "not read again and again"
    now_s = PAUSE_S[0]
    await mends.round()
    assert path.read_bytes() == good and not three[1].log().damaged_segments()


async def test_a_file_that_somebody_has_replaced_is_taken_up(three: Members) -> None:
    path, good = Path(sealed(three, 1).path), Path(sealed(three, 1).path).read_bytes()
    whole = await three[1].bytes()
    os.truncate(path, 0)
    assert known_as_damaged(three, 1)
    path.unlink()
    path.write_bytes(good)
    await cluster_without(three, 2, 3)
    await mender(three[1]).round()
    assert not three[1].log().damaged_segments()
    assert await three[1].bytes() == whole


async def cluster_without(cluster: Members, *nodes: int) -> None:
    for node in nodes:
        await cluster.stop(node)


async def test_a_segment_that_went_while_it_was_copied_does_not_come_back(three: Members) -> None:
    log, path = three[1].log(), Path(sealed(three, 1).path)
    os.truncate(path, 0)
    assert known_as_damaged(three, 1)

    async def dropped_meanwhile(*asked):
        async for batches in copy_batches(*asked):
            log.drop_local_before(sealed(three, 1).end_offset, now_ms())
            yield batches

    await Mender(three[1].table, three[1].image, three[1].node_id, dropped_meanwhile).round()
    assert not path.exists() and not list(path.parent.glob("*.tmp"))
