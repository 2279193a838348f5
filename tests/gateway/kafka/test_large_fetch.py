"""Fetches of so many partitions that they are looked at in slices: they answer as small ones do."""

import asyncio

import pytest

from gateway.kafka.handlers import fetch as handler
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.sessions import fetch as fetch_sessions
from tests.gateway.kafka.test_fetch import (  # noqa: F401
    BIG,
    fetch,
    parts,
    test_a_fetch_gives_what_there_is_when_the_time_is_over,
    test_a_fetch_waits_until_enough_is_committed,
    test_a_waiting_fetch_hears_that_its_topic_is_gone,
    test_every_version_reads_what_was_written,
    test_from_the_middle_of_a_batch_the_whole_batch_comes,
    test_limits_and_the_one_batch_that_is_always_given,
    test_what_cannot_be_fetched_and_why,
    test_what_is_appended_but_not_committed_is_not_seen,
    topic,
    values,
    write,
)
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(handler, "MANY", 0)
    monkeypatch.setattr(handler, "PART", 1)


async def test_partitions_are_answered_once_and_together_stay_within_the_limit(topic):  # noqa: F811
    for partition in range(3):
        await write(topic, b"x" * 1000, partition=partition)
    async with topic.connect() as wire:
        asked = [(0, 0, BIG), (1, 0, BIG), (0, 0, BIG), (2, 0, BIG)]
        answer = await wire.ask(fetch(topic, 12, *asked, max_bytes=1500), 12)
        assert len(answer.responses) == 1
        assert [part.partition_index for part in parts(answer)] == [0, 1, 2]
        assert [bool(part.records) for part in parts(answer)] == [True, False, False]


async def test_who_waits_wakes_for_any_partition_and_leaves_nothing_behind(topic):  # noqa: F811
    async with topic.connect() as wire:
        await wire.send(fetch(topic, 12, (0, 0, BIG), (1, 0, BIG), (2, 0, BIG), max_wait_ms=30_000), 12)
        await until(lambda: topic.server.fetch_sessions.waiting == 3)
        await write(topic, b"late", partition=2)
        _, answer = await asyncio.wait_for(wire.receive(ApiKey.FETCH, 12), 10)
        assert values(parts(answer)[2]) == [b"late"]
        assert topic.server.fetch_sessions.waiting == 0
        assert not any(topic.node.partitions.get("t", index)._waiters for index in range(3))


async def test_when_too_many_wait_the_answer_comes_at_once(topic, monkeypatch):  # noqa: F811
    monkeypatch.setattr(handler, "MAX_PARTITIONS", 2)
    async with topic.connect() as wire:
        asked = fetch(topic, 12, (0, 0, BIG), (1, 0, BIG), (2, 0, BIG), max_wait_ms=30_000)
        answer = await asyncio.wait_for(wire.ask(asked, 12), 10)
        assert not any(part.records for part in parts(answer))


async def test_partitions_of_all_sessions_are_bounded(topic, monkeypatch):  # noqa: F811
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 4)
    async with topic.connect() as wire:
        three = [(index, 0, BIG) for index in range(3)]
        first = await wire.ask(fetch(topic, 12, *three, session=(0, 0)), 12)
        assert first.session_id
        assert not (await wire.ask(fetch(topic, 12, *three, session=(0, 0)), 12)).session_id
        ended = await wire.ask(fetch(topic, 12, session=(first.session_id, -1)), 12)
        assert ended.error_code == 0
        assert (await wire.ask(fetch(topic, 12, *three, session=(0, 0)), 12)).session_id
