"""Incremental fetch sessions: who is told what, and what happens when the two sides disagree."""

from uuid import UUID

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from gateway.kafka.sessions.fetch import EVICTABLE_AFTER_MS, LAST_EPOCH, FetchSessions, news


def topic(name, *partitions):
    return FetchTopic(
        topic=name, partitions=[FetchPartition(p, fetch_offset=o, partition_max_bytes=9) for p, o in partitions]
    )


USER = "ada"


def request(session_id=0, epoch=0, topics=(), forgotten=()):
    return FetchRequest(
        session_id=session_id, session_epoch=epoch, topics=list(topics), forgotten_topics_data=list(forgotten)
    )


def begin(sessions, now_ms=0):
    plan = sessions.plan(request(topics=[topic("a", (0, 5), (1, 6)), topic("b", (0, 7))]), 11, now_ms, USER)
    assert plan.session is not None
    return plan


def named(plan):
    return [(wanted.topic, wanted.partition, wanted.fetch_offset) for wanted in plan.wanted]


def test_nobody_goes_on_with_or_ends_a_session_of_somebody_else():
    """An id of 31 bits is found in minutes by who asks often, and a session tells the names of its topics."""
    sessions = FetchSessions(10)
    mine = begin(sessions)
    for epoch in (1, 2, 7):
        told = sessions.plan(request(mine.session_id, epoch), 11, 0, "User:eve")
        assert (told.error, told.wanted) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    for epoch in (0, -1):
        sessions.plan(request(mine.session_id, epoch, [topic("a", (0, 5))]), 11, 0, "User:eve")
    assert named(sessions.plan(request(mine.session_id, 1), 11, 0, USER)) == named(mine)


def test_without_a_session_every_request_stands_alone():
    sessions = FetchSessions(10)
    plan = sessions.plan(request(epoch=-1, topics=[topic("a", (0, 5))]), 11, 0, USER)
    assert (plan.session_id, plan.full, named(plan)) == (0, True, [("a", 0, 5)])
    assert len(sessions) == 0


def test_a_session_needs_only_changes():
    sessions = FetchSessions(10)
    first = begin(sessions)
    assert first.full
    assert first.session_id > 0
    second = sessions.plan(
        request(
            first.session_id, 1, [topic("a", (1, 60)), topic("c", (3, 8))], [ForgottenTopic(topic="b", partitions=[0])]
        ),
        11,
        0,
        USER,
    )
    assert not second.full
    assert second.session_id == first.session_id
    assert named(second) == [("a", 0, 5), ("a", 1, 60), ("c", 3, 8)]
    assert named(sessions.plan(request(first.session_id, 2), 11, 0, USER)) == named(second)


def test_a_session_with_ids():
    sessions = FetchSessions(10)
    topic_id = UUID(int=77)
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(2, fetch_offset=1)])
    plan = sessions.plan(request(topics=[asked]), 13, 0, USER)
    assert named(plan) == [(topic_id, 2, 1)]
    forgotten = ForgottenTopic(topic_id=topic_id, partitions=[2])
    assert named(sessions.plan(request(plan.session_id, 1, forgotten=[forgotten]), 13, 0, USER)) == []
    mixed = sessions.plan(request(plan.session_id, 2), 12, 0, USER)
    assert mixed.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_when_in_doubt_the_client_begins_anew():
    sessions = FetchSessions(10)
    plan = begin(sessions)
    assert sessions.plan(request(12345, 1), 11, 0, USER).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    wrong = sessions.plan(request(plan.session_id, 7), 11, 0, USER)
    assert (wrong.error, wrong.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    again = sessions.plan(request(plan.session_id, 0, [topic("a", (0, 5))]), 11, 0, USER)
    assert again.session_id not in (0, plan.session_id)
    assert len(sessions) == 1


def test_a_client_can_end_its_session():
    sessions = FetchSessions(10)
    plan = begin(sessions)
    last = sessions.plan(request(plan.session_id, -1, [topic("a", (0, 9))]), 11, 0, USER)
    assert (last.session_id, named(last)) == (0, [("a", 0, 9)])
    assert len(sessions) == 0


def test_epochs_wrap_around():
    sessions = FetchSessions(10)
    plan = begin(sessions)
    plan.session.epoch = LAST_EPOCH
    assert not sessions.plan(request(plan.session_id, LAST_EPOCH), 11, 0, USER).error
    assert not sessions.plan(request(plan.session_id, 1), 11, 0, USER).error


def test_at_the_limit_only_idle_sessions_give_way():
    sessions = FetchSessions(2)
    first = begin(sessions, 0)
    second = begin(sessions, 1000)
    declined = sessions.plan(request(topics=[topic("a", (0, 1))]), 11, 2000, USER)
    assert (declined.session_id, declined.error, len(declined.wanted)) == (0, 0, 1)
    sessions.plan(request(first.session_id, 1), 11, EVICTABLE_AFTER_MS, USER)
    third = begin(sessions, EVICTABLE_AFTER_MS + 1001)
    assert third.session_id
    assert sessions.plan(request(second.session_id, 1), 11, 0, USER).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not sessions.plan(request(first.session_id, 2), 11, 0, USER).error


def test_only_news_is_sent():
    sessions = FetchSessions(10)
    plan = begin(sessions)
    wanted = plan.wanted[0]
    answer = PartitionData(high_watermark=10, log_start_offset=0, records=b"")
    assert news(plan, wanted, answer)

    plan = sessions.plan(request(plan.session_id, 1), 11, 0, USER)
    assert not news(plan, wanted, answer)
    assert news(plan, wanted, PartitionData(high_watermark=11, log_start_offset=0, records=b""))
    assert news(plan, wanted, PartitionData(high_watermark=11, log_start_offset=3, records=b""))
    assert not news(plan, wanted, PartitionData(high_watermark=11, log_start_offset=3, records=b""))
    assert news(plan, wanted, PartitionData(high_watermark=11, log_start_offset=3, records=b"x"))
    diverging = PartitionData(high_watermark=11, log_start_offset=3, diverging_epoch=EpochEndOffset(1, 2))
    assert news(plan, wanted, diverging)
    gone = PartitionData(high_watermark=-1, error_code=3)
    assert news(plan, wanted, gone)
    assert news(plan, wanted, gone)
    back = PartitionData(high_watermark=-1, log_start_offset=-1)
    assert news(plan, wanted, back)
    assert not news(plan, wanted, back)


def test_who_got_data_goes_to_the_end():
    sessions = FetchSessions(10)
    plan = begin(sessions)
    news(plan, plan.wanted[0], PartitionData(high_watermark=9, records=b"data"))
    again = sessions.plan(request(plan.session_id, 1), 11, 0, USER)
    assert [(w.topic, w.partition) for w in again.wanted] == [("a", 1), ("b", 0), ("a", 0)]
