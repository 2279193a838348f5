"""Transactions: ids, courses from begin to end, right and wrong, in the ways of old clients and of new ones.

What a broker answers while it is still busy with what was asked before is asked again.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from gateway.kafka.protocol.messages.describe_producers import DescribeProducersRequest
from gateway.kafka.protocol.messages.describe_producers import TopicRequest as ProducersOf
from gateway.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gateway.kafka.protocol.messages.end_txn import EndTxnRequest
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from gateway.kafka.protocol.messages.produce import ProduceRequest
from gateway.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from gateway.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from gateway.kafka.protocol.schema import message_info
from tests.compat.differential.plain import plain
from tests.compat.differential.session import Session
from tests.gateway.kafka.batches import batch

from .making import make_topic, produce_request

T0 = int(time.time()) // 3600 * 3_600_000 - 3_600_000
BUSY = re.compile(r"error_code=(14|15|16|51)\b")
"""The coordinator is loading, elsewhere, or still ends the transaction before."""
BUSY_S = 20.0
MINUTE_MS = 60_000
OLD, NEW = 4, 5
"""Versions of EndTxn: with the second the epoch rises with each transaction."""


class Producer(NamedTuple):
    name: str
    id: int
    epoch: int


def settled(session: Session, request: Any, version: int) -> Any:
    deadline = time.monotonic() + BUSY_S
    while BUSY.search(str(answer := session.send(request, version))):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer


def ask(session: Session, label: str, request: Any, version: int) -> Any:
    answer = settled(session, request, version)
    key = f"{ApiKey(message_info(type(request)).api_key).name} {label} v{version}"
    assert key not in session.answers, f"asked twice: {key}"
    session.answers[key] = plain(answer)
    return answer


def run(session: Session) -> None:
    for kind in (0, 1):
        settled(session, FindCoordinatorRequest("anybody", kind, ["anybody"]), 3)
    topic = make_topic(session, "courses", 2)
    _ids(session)
    _adding(session, topic)
    _producing(session)
    _ends(session)
    _offsets(session, topic)
    _markers(session)
    _reading(session)
    _tools(session)


def begin(session: Session, name: str) -> Producer:
    """Twice, so that there is an epoch before its own."""
    settled(session, InitProducerIdRequest(name, MINUTE_MS), 4)
    given = settled(session, InitProducerIdRequest(name, MINUTE_MS), 4)
    assert given.error_code == 0, given
    return Producer(name, given.producer_id, given.producer_epoch)


def add(session: Session, producer: Producer, topic: str, partition: int = 0) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [partition])],
    )
    answer = settled(session, request, 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, answer


def records(producer: Producer, sequence: int, *values: bytes, **fields: Any) -> bytearray:
    known = {"producer_id": producer.id, "producer_epoch": producer.epoch, "base_sequence": sequence}
    return batch(*values, timestamp=T0, **{"transactional": True, **known, **fields})


def sending(producer: Producer, topic: str, sequence: int, *values: bytes, **fields: Any) -> ProduceRequest:
    request = produce_request(topic, records(producer, sequence, *values, **fields))
    request.transactional_id = producer.name
    return request


def produced(
    session: Session, producer: Producer, topic: str, sequence: int, *values: bytes, version: int = 12
) -> None:
    answer = settled(session, sending(producer, topic, sequence, *values), version)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def ended(session: Session, producer: Producer, committed: bool, version: int = NEW) -> Producer:
    answer = settled(session, EndTxnRequest(producer.name, producer.id, producer.epoch, committed), version)
    assert answer.error_code == 0, answer
    wait_until_over(session, producer.name)
    return producer._replace(epoch=answer.producer_epoch) if version >= NEW else producer


def wait_until_over(session: Session, name: str) -> None:
    """EndTxn is answered before the markers are written."""
    deadline = time.monotonic() + BUSY_S
    while "Prepare" in str(answer := session.send(DescribeTransactionsRequest([name]), 0)):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


def _ids(session: Session) -> None:
    for v in session.each(ApiKey.INIT_PRODUCER_ID):
        if v > 5:
            continue
        name = f"ids-{v}"

        def init(label: str, request: InitProducerIdRequest, version: int = v) -> Any:
            return ask(session, f"transactional: {label}", request, version)

        first = init("first", InitProducerIdRequest(name, MINUTE_MS))
        init("again", InitProducerIdRequest(name, MINUTE_MS))
        init("no time", InitProducerIdRequest(f"{name}-none", 0))
        init("less than no time", InitProducerIdRequest(f"{name}-none", -1))
        init("a millisecond", InitProducerIdRequest(f"{name}-short", 1))
        init("16 minutes", InitProducerIdRequest(f"{name}-long", 16 * MINUTE_MS))
        if v >= 3:
            pid = first.producer_id
            init("with the epoch", InitProducerIdRequest(name, MINUTE_MS, pid, 1))
            init("with the epoch before", InitProducerIdRequest(name, MINUTE_MS, pid, 1))
            init("with an old epoch", InitProducerIdRequest(name, MINUTE_MS, pid, 0))
            init("with a coming epoch", InitProducerIdRequest(name, MINUTE_MS, pid, 9))
            init("with another id", InitProducerIdRequest(name, MINUTE_MS, pid + 5000, 1))
            init("an unknown one with an id", InitProducerIdRequest(f"{name}-new", MINUTE_MS, pid + 5000, 1))
            init("an id without an epoch", InitProducerIdRequest(name, MINUTE_MS, pid, -1))


def _adding(session: Session, topic: str) -> None:
    for v in session.each(ApiKey.ADD_PARTITIONS_TO_TXN):
        producer = begin(session, f"adding-{v}")

        def put(
            label: str,
            known: Producer,
            *topics: AddPartitionsToTxnTopic,
            verify: bool = False,
            version: int = v,
        ) -> None:
            one = AddPartitionsToTxnTransaction(known.name, known.id, known.epoch, verify, list(topics))
            old = {
                "v3_and_below_transactional_id": known.name,
                "v3_and_below_producer_id": known.id,
                "v3_and_below_producer_epoch": known.epoch,
                "v3_and_below_topics": list(topics),
            }
            ask(
                session, label, AddPartitionsToTxnRequest(**({"transactions": [one]} if version >= 4 else old)), version
            )

        if v >= 4:
            put("only asked, nothing is open", producer, AddPartitionsToTxnTopic(topic, [0]), verify=True)
        put("one", producer, AddPartitionsToTxnTopic(topic, [0]))
        put("one again", producer, AddPartitionsToTxnTopic(topic, [0]))
        put("another", producer, AddPartitionsToTxnTopic(topic, [1]))
        put("no such partition", producer, AddPartitionsToTxnTopic(topic, [9]))
        put(
            "no such topic and one",
            producer,
            AddPartitionsToTxnTopic("nobody", [0]),
            AddPartitionsToTxnTopic(topic, [0]),
        )
        put("nothing", producer)
        put("an old epoch", producer._replace(epoch=producer.epoch - 1), AddPartitionsToTxnTopic(topic, [0]))
        put("a coming epoch", producer._replace(epoch=producer.epoch + 1), AddPartitionsToTxnTopic(topic, [0]))
        put("another id", producer._replace(id=producer.id + 5000), AddPartitionsToTxnTopic(topic, [0]))
        put("an unknown one", producer._replace(name=f"nobody-{v}"), AddPartitionsToTxnTopic(topic, [0]))
        put("without a name", producer._replace(name=""), AddPartitionsToTxnTopic(topic, [0]))
        if v >= 4:
            put("only asked, it is there", producer, AddPartitionsToTxnTopic(topic, [0, 1]), verify=True)
            fresh = begin(session, f"verified-{v}")
            put("one of a fresh one", fresh, AddPartitionsToTxnTopic(topic, [0]))
            put("only asked, one of two", fresh, AddPartitionsToTxnTopic(topic, [0, 1]), verify=True)
            ended(session, fresh, committed=False, version=OLD)
        ended(session, producer, committed=False, version=OLD)


def _producing(session: Session) -> None:
    for v in session.each(ApiKey.PRODUCE):
        if v < 3 or v > 12:
            continue
        topic = make_topic(session, f"produced-{v}", 2)
        producer = begin(session, f"producing-{v}")

        def put(label: str, request: ProduceRequest, version: int = v) -> Any:
            return ask(session, f"transaction: {label}", request, version)

        if v < 12:
            put("not added", sending(producer, topic, 0, b"x"))
            add(session, producer, topic)
        put("the first", sending(producer, topic, 0, b"a", b"b"))
        put("the same again", sending(producer, topic, 0, b"a", b"b"))
        put("a gap", sending(producer, topic, 9, b"x"))
        put("the second", sending(producer, topic, 2, b"c"))
        put("not transactional amid it", sending(producer, topic, 3, b"x", transactional=False))
        without = sending(producer, topic, 3, b"x")
        without.transactional_id = None
        put("without a name", without)
        put("by another name", sending(producer._replace(name=f"nobody-{v}"), topic, 3, b"x"))
        put("an old epoch", sending(producer._replace(epoch=producer.epoch - 1), topic, 3, b"x"))
        put("a coming epoch", sending(producer._replace(epoch=producer.epoch + 1), topic, 0, b"x"))
        put("another id", sending(producer._replace(id=producer.id + 5000), topic, 0, b"x"))
        put("a control batch", sending(producer, topic, 3, b"x", control=True))
        put("acks=1", _with_acks(sending(producer, topic, 3, b"x"), 1))
        plain_batch = produce_request(topic, batch(b"behind", timestamp=T0))
        put("another's record behind it", plain_batch)
        producer = ended(session, producer, committed=True, version=NEW if v >= 12 else OLD)
        put("after the end", sending(producer._replace(epoch=1), topic, 4, b"x"))
        _look(session, f"produced with v{v}", topic)


def _with_acks(request: ProduceRequest, acks: int) -> ProduceRequest:
    request.acks = acks
    return request


def _look(session: Session, label: str, topic: str) -> None:
    """How the partition ends for both kinds of readers, and what they get."""
    for isolation in (0, 1):
        wanted = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, -1)])]
        ask(session, f"{label}, isolation {isolation}", ListOffsetsRequest(-1, isolation, wanted, 1000), 7)
        part = FetchPartition(0, -1, 0, -1, -1, 1 << 20)
        request = FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        ask(session, f"{label}, isolation {isolation}", request, 12)


def _ends(session: Session) -> None:
    """Every state of a transaction, ended either way, by its producer, by one that repeats itself, and by others."""
    topic = make_topic(session, "ends")

    def empty(name: str, version: int) -> Producer:
        return begin(session, name)

    def ongoing(name: str, version: int) -> Producer:
        producer = empty(name, version)
        if version >= NEW:
            produced(session, producer, topic, 0, b"x")
        else:
            add(session, producer, topic)
            produced(session, producer, topic, 0, b"x", version=11)
        return producer

    def committed(name: str, version: int) -> Producer:
        return ended(session, ongoing(name, version), True, version)

    def aborted(name: str, version: int) -> Producer:
        return ended(session, ongoing(name, version), False, version)

    states: dict[str, Callable[[str, int], Producer]] = {
        "empty": empty,
        "ongoing": ongoing,
        "committed": committed,
        "aborted": aborted,
    }
    for v in session.each(ApiKey.END_TXN):
        for state, make in states.items():
            for result in (True, False):
                for who, change in {"current": 0, "before": -1, "coming": 1}.items():
                    name = f"ends-{v}-{state}-{result}-{who}"
                    producer = make(name, v)
                    request = EndTxnRequest(name, producer.id, producer.epoch + change, result)
                    label = f"{state}, {'commit' if result else 'abort'}, epoch {who}"
                    ask(session, label, request, v)
                    ask(session, f"{label}, again", request, v)
        name = f"ends-{v}-others"
        producer = make_one = ongoing(name, v)
        ask(session, "another id", EndTxnRequest(name, make_one.id + 5000, producer.epoch, True), v)
        ask(session, "an unknown one", EndTxnRequest("nobody", producer.id, producer.epoch, True), v)
        ask(session, "without a name", EndTxnRequest("", producer.id, producer.epoch, True), v)
        fencing = begin(session, name)
        ask(session, "fenced", EndTxnRequest(name, producer.id, producer.epoch, True), v)
        ask(session, "who fenced it", EndTxnRequest(name, fencing.id, fencing.epoch, False), v)


def _offsets(session: Session, topic: str) -> None:
    for v in session.each(ApiKey.ADD_OFFSETS_TO_TXN):
        producer = begin(session, f"adding-offsets-{v}")

        def put(label: str, known: Producer, group: str, version: int = v) -> None:
            ask(session, label, AddOffsetsToTxnRequest(known.name, known.id, known.epoch, group), version)

        put("a group", producer, f"group-{v}")
        put("the group again", producer, f"group-{v}")
        put("no group", producer, "")
        put("an old epoch", producer._replace(epoch=producer.epoch - 1), f"group-{v}")
        put("another id", producer._replace(id=producer.id + 5000), f"group-{v}")
        put("an unknown one", producer._replace(name=f"nobody-{v}"), f"group-{v}")
        ended(session, producer, committed=True, version=OLD)
    for v in session.each(ApiKey.TXN_OFFSET_COMMIT):
        group = f"txn-group-{v}"
        producer = begin(session, f"offsets-{v}")

        def commit(
            label: str,
            known: Producer,
            offset: int,
            partition: int = 0,
            version: int = v,
            name: str = topic,
            **member: Any,
        ) -> None:
            parts = [TxnOffsetCommitRequestPartition(partition, offset, -1, "m")]
            wanted = [TxnOffsetCommitRequestTopic(name, parts)]
            request = TxnOffsetCommitRequest(known.name, group, known.id, known.epoch, topics=wanted, **member)  # noqa: B023
            ask(session, label, request, version)

        def committed(label: str, stable: bool, version: int = v) -> None:
            asked = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
            groups = [OffsetFetchRequestGroup(group_id=group, topics=[asked])]  # noqa: B023
            ask(session, f"{label}, of v{version}", OffsetFetchRequest(groups=groups, require_stable=stable), 8)

        if v < 5:
            commit("not added", producer, 1)
            settled(session, AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, group), 3)
        commit("an offset", producer, 3)
        committed("pending", False)
        committed("pending, stable wanted", True)
        commit("an old epoch", producer._replace(epoch=producer.epoch - 1), 9)
        commit("another id", producer._replace(id=producer.id + 5000), 9)
        commit("an unknown one", producer._replace(name=f"nobody-{v}"), 9)
        commit("no such topic", producer, 9, name="nobody")
        if v >= 3:
            commit("an unknown member", producer, 9, member_id="nobody", generation_id=3)
        producer = ended(session, producer, True, NEW if v >= 5 else OLD)
        committed("committed", True)
        if v < 5:
            settled(session, AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, group), 3)
        commit("one to abort", producer, 7)
        ended(session, producer, False, NEW if v >= 5 else OLD)
        committed("aborted", True)


def _markers(session: Session) -> None:
    """What a broker asks another one; here somebody who takes liberties."""
    for v in session.each(ApiKey.WRITE_TXN_MARKERS):
        topic = make_topic(session, f"markers-{v}")
        producer = begin(session, f"markers-{v}")
        produced(session, producer, topic, 0, b"a")

        def mark(
            label: str, epoch: int, partition: int = 0, coordinator: int = 0, version: int = v, name: str = topic
        ) -> None:
            places = [WritableTxnMarkerTopic(name, [partition])]
            marker = WritableTxnMarker(producer.id, epoch, False, places, coordinator, 2 if version >= 2 else 0)  # noqa: B023
            ask(session, label, WriteTxnMarkersRequest([marker]), version)

        mark("no such partition", producer.epoch, 9)
        mark("no such topic", producer.epoch, name="nobody")
        mark("an old epoch", producer.epoch - 1)
        if v >= 2:
            mark("the same epoch", producer.epoch)
        mark("the next epoch", producer.epoch + 1)
        mark("the next epoch again", producer.epoch + 1)
        mark("an old coordinator", producer.epoch + 1, coordinator=-1)
        _look(session, f"marked with v{v}", topic)
    session.ask("nothing", WriteTxnMarkersRequest([]), 1)


def _reading(session: Session) -> None:
    """Committed, aborted, open and none, one after the other and into each other."""
    topic = make_topic(session, "reading")
    one, other = begin(session, "reading-1"), begin(session, "reading-2")
    produced(session, one, topic, 0, b"1a")
    produced(session, other, topic, 0, b"2a", b"2b")
    produced(session, one, topic, 1, b"1b")
    _look(session, "two open", topic)
    other = ended(session, other, False)
    _look(session, "the second aborted", topic)
    one = ended(session, one, True)
    _look(session, "the first committed", topic)
    produced(session, other, topic, 0, b"2c")
    produced(session, one, topic, 0, b"1c")
    one = ended(session, one, False)
    other = ended(session, other, False)
    _look(session, "both aborted", topic)
    produced(session, one, topic, 0, b"1d")
    begin(session, "reading-1")
    wait_until_over(session, "reading-1")
    _look(session, "one more aborted by a successor", topic)


def _tools(session: Session) -> None:
    topic = make_topic(session, "looked-at", 2)
    producer = begin(session, "looked-at")

    def look(label: str) -> None:
        for v in session.each(ApiKey.DESCRIBE_TRANSACTIONS):
            ask(session, label, DescribeTransactionsRequest([producer.name]), v)
        for v in session.each(ApiKey.DESCRIBE_PRODUCERS):
            ask(session, label, DescribeProducersRequest([ProducersOf(topic, [0, 1])]), v)
        for v in session.each(ApiKey.LIST_TRANSACTIONS):
            ask(session, f"{label}, by id", ListTransactionsRequest([], [producer.id]), v)
            if v >= 1:
                ask(session, f"{label}, for an hour", ListTransactionsRequest([], [producer.id], 3_600_000), v)
            if v >= 2:
                wanted = ListTransactionsRequest([], [], -1, "looked-.*")
                ask(session, f"{label}, by pattern", wanted, v)

    look("empty")
    produced(session, producer, topic, 0, b"x")
    look("open")
    for v in session.each(ApiKey.LIST_TRANSACTIONS):
        ask(session, "open, by state", ListTransactionsRequest(["Ongoing"], [producer.id]), v)
        ask(session, "open, by another state", ListTransactionsRequest(["CompleteCommit"], [producer.id]), v)
    ended(session, producer, True)
    look("committed")
    for v in session.each(ApiKey.DESCRIBE_TRANSACTIONS):
        ask(session, "one, and an unknown one", DescribeTransactionsRequest([producer.name, "nobody"]), v)
        ask(session, "without a name", DescribeTransactionsRequest([""]), v)
