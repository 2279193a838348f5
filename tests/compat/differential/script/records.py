"""Records: produced right and wrong, fetched, looked up by time and epoch, deleted; producer ids."""

import time
from typing import Any
from uuid import UUID

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from hot_tier.record.records import NewRecord, encode_records
from tests.compat.differential.session import CLOSED, Session
from tests.gateway.kafka.batches import batch, patched

from .making import fill, make_topic, produce_request

HOUR_MS = 3_600_000
# A whole hour in the past, well inside retention, and the same for both brokers.
T0 = int(time.time()) // 3600 * HOUR_MS - HOUR_MS
NOBODY = UUID("11111111-2222-3333-4444-555555555555")


def run(session: Session) -> None:
    _produce(session)
    _sequences(session)
    _fetch(session)
    _list_offsets(session)
    _epochs(session)
    _delete_records(session)
    _producer_ids(session)


def wrong_batches() -> dict[str, bytearray | bytes]:
    """Batches that no client should send, each with one thing wrong. Null is left out: Kafka never answers it."""
    good = lambda *values, **fields: batch(*values, timestamp=T0, **fields)  # noqa: E731
    return {
        "no bytes": b"",
        "half a header": bytes(good(b"x"))[:40],
        "a cut batch": bytes(good(b"x" * 50))[:-7],
        "two batches": bytes(good(b"x")) + bytes(good(b"y")),
        "a wrong CRC": patched(good(b"x"), 17, "I", 12345, mend_crc=False),
        "magic 1": patched(good(b"x"), 16, "b", 1, mend_crc=False),
        "magic 3": patched(good(b"x"), 16, "b", 3, mend_crc=False),
        "a length of 5": patched(good(b"x"), 8, "i", 5, mend_crc=False),
        "a length below 0": patched(good(b"x"), 8, "i", -5, mend_crc=False),
        "a base offset": patched(good(b"x"), 0, "q", 77, mend_crc=False),
        "a leader epoch": patched(good(b"x"), 12, "i", 9, mend_crc=False),
        "no records": patched(good(b"x"), 57, "i", 0),
        "minus one records": patched(good(b"x"), 57, "i", -1),
        "one record too few": patched(good(b"x", b"y"), 57, "i", 1),
        "one record too many": patched(good(b"x", b"y"), 57, "i", 3),
        "a last offset delta too small": patched(good(b"x", b"y"), 23, "i", 0),
        "a last offset delta too large": patched(good(b"x", b"y"), 23, "i", 5),
        "codec 5": patched(good(b"x"), 21, "h", 5),
        "codec 7": patched(good(b"x"), 21, "h", 7),
        "gzip that is none": patched(good(b"x"), 21, "h", 1),
        "zstd that is none": patched(good(b"x"), 21, "h", 4),
        "a control batch": good(b"x", control=True),
        "transactional without an id": good(b"x", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0),
        "a producer without a sequence": good(b"x", producer_id=5, producer_epoch=0),
        "a timestamp in a year": batch(b"x", timestamp=T0 + 366 * 24 * HOUR_MS),
        # Last are those that one broker takes and the other refuses, so that all other offsets agree.
        "a byte too many": bytes(good(b"x")) + b"\0",
        "append time": patched(good(b"x"), 21, "h", 8),
        "a timestamp below 0": batch(b"x", timestamp=-7),
    }


def _produce(session: Session) -> None:
    for v in session.each(ApiKey.PRODUCE):
        if v < 3:
            continue
        topic = make_topic(session, f"produce-{v}", 2)
        topic_id = session.topic_id(topic)

        def ask(label: str, request: ProduceRequest, version: int = v, known: UUID = topic_id) -> Any:
            if version >= 13 and request.topic_data and request.topic_data[0].name.startswith("produce-"):
                request.topic_data[0].topic_id = known
            return session.ask(label, request, version)

        for codec, name in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
            ask(f"codec {name}", produce_request(topic, batch(b"a", b"b", timestamp=T0, codec=codec)))
        ask("acks=1", produce_request(topic, batch(b"c", timestamp=T0), acks=1))
        ask("acks=2", produce_request(topic, batch(b"d", timestamp=T0), acks=2))
        ask("no such partition", produce_request(topic, batch(b"e", timestamp=T0), partition=9))
        ask("partition -1", produce_request(topic, batch(b"e", timestamp=T0), partition=-1))
        ask("no topics", ProduceRequest(None, -1, 10_000, []))
        if v < 13:
            ask("no such topic", produce_request(f"nobody-{v}", batch(b"e", timestamp=T0)))
            ask("a bad name", produce_request("no/slashes", batch(b"e", timestamp=T0)))
            both = (
                PartitionProduceData(0, batch(b"f", timestamp=T0)),
                PartitionProduceData(1, batch(b"g", timestamp=T0)),
            )
            ask(
                "two partitions",
                ProduceRequest(None, -1, 10_000, [TopicProduceData(name=topic, partition_data=[*both])]),
            )
        else:
            data = [TopicProduceData(NOBODY, "", [PartitionProduceData(0, batch(b"e", timestamp=T0))])]
            ask("an unknown id", ProduceRequest(None, -1, 10_000, data))
        for label, records in wrong_batches().items():
            ask(f"wrong: {label}", produce_request(topic, records))
    v = 9
    small = make_topic(session, "produce-small", 1, max_message_bytes="200")
    session.ask("too large for the topic", produce_request(small, batch(b"x" * 500, timestamp=T0)), v)
    stamped = make_topic(session, "produce-stamped", 1, message_timestamp_type="LogAppendTime")
    answer = session.send(produce_request(stamped, batch(b"x", timestamp=T0)), v)
    session.answers["PRODUCE append time is told"] = answer.responses[0].partition_responses[0].log_append_time_ms > T0
    compacted = make_topic(session, "produce-compacted", 1, cleanup_policy="compact")
    keyless = [NewRecord(T0, b"k" if at % 2 else None, b"v") for at in range(6)]
    session.ask("records without a key, compacted", produce_request(compacted, encode_records(keyless)), v)
    after = make_topic(session, "produce-after", 1, message_timestamp_after_max_ms="1000")
    session.ask("some too late", produce_request(after, batch(b"x", timestamp=T0 + 10 * HOUR_MS)), v)
    before = make_topic(session, "produce-before", 1, message_timestamp_before_max_ms="1000")
    session.ask("too early", produce_request(before, batch(b"x", b"y", timestamp=T0)), v)


def _sequences(session: Session) -> None:
    """An idempotent producer that repeats itself, skips, and comes back in another epoch."""
    v = 9
    topic = make_topic(session, "sequences")
    while (given := session.send(InitProducerIdRequest(None, 60_000), 4)).error_code:
        time.sleep(0.05)  # Kafka has no ids to give at first.
    pid = given.producer_id

    def send(label: str, sequence: int, *values: bytes, epoch: int = 0, producer: int = pid) -> None:
        records = batch(*values, timestamp=T0, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        session.ask(f"sequence: {label}", produce_request(topic, records), v)

    send("first", 0, b"a", b"b")
    send("the same again", 0, b"a", b"b")
    send("the next", 2, b"c")
    send("a gap", 9, b"x")
    send("the first again", 0, b"a", b"b")
    send("a part of the first", 1, b"b")
    send("the next after the gap", 3, b"d")
    for at in range(4, 12):
        send(f"number {at}", at, b"%d" % at)
    send("one that is long ago", 2, b"c")
    send("a new epoch", 0, b"e", epoch=1)
    send("the old epoch", 12, b"x", epoch=0)
    send("a new epoch that does not begin at 0", 5, b"x", epoch=2)
    send("an unknown producer in the middle", 40, b"y", producer=pid + 500)
    send("minus one", -1, b"z")
    send("the sequence wraps", 2**31 - 1, b"w", producer=pid + 501)
    send("after the wrap", 0, b"w", producer=pid + 501)


def _fetch(session: Session) -> None:
    topic = make_topic(session, "fetch", 2)
    fill(session, topic, *[b"%d" % at for at in range(6)], now_ms=T0)
    topic_id = session.topic_id(topic)
    for v in session.each(ApiKey.FETCH):

        def ask(label: str, *partitions: FetchPartition, version: int = v, **fields: Any) -> Any:
            known = fields.pop("topic_id", topic_id)
            topics = [FetchTopic(known, fields.pop("topic", topic), list(partitions))] if partitions else []
            request = FetchRequest(max_wait_ms=50, min_bytes=1, topics=topics, **{"max_bytes": 1 << 20} | fields)
            return session.ask(label, request, version)

        def part(number: int, offset: int, size: int = 1 << 20, epoch: int = -1, last: int = -1) -> FetchPartition:
            return FetchPartition(number, epoch, offset, last, -1, size)

        ask("from 0", part(0, 0))
        ask("from 3", part(0, 3))
        ask("at the end", part(0, 6))
        ask("beyond the end", part(0, 7))
        ask("below 0", part(0, -1))
        ask("an empty partition", part(1, 0))
        ask("one byte of each", part(0, 2, 1))
        ask("no bytes of each", part(0, 2, 0))
        ask("one byte in all", part(0, 2), max_bytes=1)
        ask("no such partition", part(9, 0))
        ask("two, one wrong", part(0, 5), part(1, 5))
        ask("nothing")
        ask("read committed", part(0, 4), isolation_level=1)
        if v >= 9:
            ask("a new epoch", part(0, 0, epoch=1000))
        if v >= 13:
            ask("an unknown id", part(0, 0), topic_id=NOBODY)
        else:
            ask("no such topic", part(0, 0), topic=f"nobody-{v}")
        if v >= 7:
            first = ask("a session", part(0, 4), session_id=0, session_epoch=0)
            if first != CLOSED and first.session_id:
                ask("the session goes on", session_id=first.session_id, session_epoch=1)
                ask("the session out of order", session_id=first.session_id, session_epoch=9)
            ask("an unknown session", session_id=123456, session_epoch=3)
            forget = [ForgottenTopic(topic_id, topic, [0])]
            ask("forgets what it does not know", part(0, 4), forgotten_topics_data=forget, session_epoch=-1)


def _list_offsets(session: Session) -> None:
    topic = make_topic(session, "offsets", 2)
    fill(session, topic, *[b"%d" % at for at in range(6)], now_ms=T0)
    for v in session.each(ApiKey.LIST_OFFSETS):

        def ask(
            label: str, timestamp: int, partition: int = 0, name: str = topic, epoch: int = -1, version: int = v
        ) -> None:
            wanted = [ListOffsetsTopic(name, [ListOffsetsPartition(partition, epoch, timestamp)])]
            session.ask(label, ListOffsetsRequest(-1, 0, wanted, 1000), version)

        for label, timestamp in {
            "latest": -1,
            "earliest": -2,
            "greatest time": -3,
            "earliest local": -4,
            "latest tiered": -5,
            "earliest not uploaded": -6,
            "minus seven": -7,
            "time 0": 0,
            "the first": T0,
            "between two": T0 + 1500,
            "the last": T0 + 5000,
            "after the last": T0 + 5001,
        }.items():
            ask(label, timestamp)
        ask("latest of an empty one", -1, 1)
        ask("greatest time of an empty one", -3, 1)
        ask("a time in an empty one", T0, 1)
        ask("no such partition", -1, 9)
        ask("no such topic", -1, 0, f"nobody-{v}")
        if v >= 4:
            ask("a new epoch", -1, epoch=1000)
        twice = [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(0, -1, -2)]
        session.ask("one partition twice", ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, twice)], 1000), v)


def _epochs(session: Session) -> None:
    topic = make_topic(session, "epochs")
    fill(session, topic, b"a", b"b", now_ms=T0)
    for v in session.each(ApiKey.OFFSET_FOR_LEADER_EPOCH):

        def ask(
            label: str, epoch: int, partition: int = 0, name: str = topic, current: int = -1, version: int = v
        ) -> None:
            wanted = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(partition, current, epoch)])]
            session.ask(label, OffsetForLeaderEpochRequest(-1, wanted), version)

        ask("a new epoch", 1000)
        ask("minus one", -1)
        ask("we are ahead", 0, current=1000)
        ask("no such partition", 0, 9)
        ask("no such topic", 0, 0, f"nobody-{v}")


def _delete_records(session: Session) -> None:
    for v in session.each(ApiKey.DELETE_RECORDS):
        topic = make_topic(session, f"delete-records-{v}")
        fill(session, topic, *[b"%d" % at for at in range(6)], now_ms=T0)

        def delete(label: str, offset: int, partition: int = 0, name: str = topic, version: int = v) -> None:
            wanted = [DeleteRecordsTopic(name, [DeleteRecordsPartition(partition, offset)])]
            session.ask(label, DeleteRecordsRequest(wanted, 10_000), version)

        delete("below 2", 2)
        delete("below 1, gone already", 1)
        delete("below minus two", -2)
        delete("beyond the end", 7)
        delete("all", -1)
        delete("no such partition", 0, 9)
        delete("no such topic", 0, 0, f"nobody-{v}")


def _producer_ids(session: Session) -> None:
    for v in session.each(ApiKey.INIT_PRODUCER_ID):

        def ask(label: str, request: InitProducerIdRequest, version: int = v) -> Any:
            return session.ask(label, request, version)

        ask("an id", InitProducerIdRequest(None, 60_000))
        ask("no time-out", InitProducerIdRequest(None, 0))
        ask("an empty transactional id", InitProducerIdRequest("", 60_000))
        if v >= 3:
            ask("a producer without an epoch", InitProducerIdRequest(None, 60_000, 5, -1))
            ask("an epoch without a producer", InitProducerIdRequest(None, 60_000, -1, 5))
            ask("again with an epoch", InitProducerIdRequest(None, 60_000, 5, 3))
