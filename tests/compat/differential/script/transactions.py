"""What transactional producers ask: those of both versions of transactions, and those that do it wrong."""

import time
from collections.abc import Callable
from typing import Any

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.kafka.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from gateway.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gateway.kafka.protocol.messages.end_txn import EndTxnRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.compat.differential.script.making import make_topic
from tests.compat.differential.session import Session
from tests.gateway.kafka.batches import TIME_MS, batch

BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, 15}
"""Kafka answers these while the step before is under way; clients ask again."""


class Producer:
    def __init__(self, session: Session, name: str, topic: str) -> None:
        self.session = session
        self.name = name
        self.topic = topic
        self.id = self.epoch = -1

    def _settled(self, label: str, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        answer = self.session.send(request, version)
        while code(answer) in BUSY:
            time.sleep(0.05)
            answer = self.session.send(request, version)
        self.session.note(f"{label} by {self.name}", request, version, answer)
        return answer

    def begin(self, label: str, version: int = 4, timeout_ms: int = 60_000, *, goes_on: bool = False) -> None:
        mine = (self.id, self.epoch) if goes_on else (-1, -1)
        request = InitProducerIdRequest(self.name, timeout_ms, *mine)
        answer = self._settled(label, request, version, lambda answer: answer.error_code)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, label: str, *partitions: int, topic: str = "", version: int = 3, epoch: int | None = None) -> None:
        topics = [AddPartitionsToTxnTopic(topic or self.topic, list(partitions))]
        epoch = self.epoch if epoch is None else epoch
        request = AddPartitionsToTxnRequest([], self.name, self.id, epoch, topics)
        self._settled(label, request, version, _code_of_partitions)

    def offsets(self, label: str, version: int = 3) -> None:
        request = AddOffsetsToTxnRequest(self.name, self.id, self.epoch, "a-group")
        self._settled(label, request, version, lambda answer: answer.error_code)

    def produce(
        self, label: str, sequence: int, partition: int = 0, version: int = 11, epoch: int | None = None, **also: Any
    ) -> None:
        about = {
            "producer_id": self.id,
            "producer_epoch": self.epoch if epoch is None else epoch,
            "base_sequence": sequence,
            "transactional": True,
        }
        data = PartitionProduceData(partition, batch(b"v", timestamp=TIME_MS, **(about | also)))
        request = ProduceRequest(self.name, -1, 5_000, [TopicProduceData(name=self.topic, partition_data=[data])])
        self._settled(label, request, version, lambda answer: answer.responses[0].partition_responses[0].error_code)

    def end(self, label: str, commit: bool, version: int = 4, epoch: int | None = None) -> None:
        request = EndTxnRequest(self.name, self.id, self.epoch if epoch is None else epoch, commit)
        answer = self._settled(label, request, version, lambda answer: answer.error_code)
        if version >= 5 and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch


def _code_of_partitions(answer: Any) -> int:
    (topic,) = answer.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


def _older(session: Session, topic: str) -> None:
    for version in range(5):
        one = Producer(session, f"older-{version}", topic)
        one.begin("begin", version)
        one.end("commit nothing", True, version)
        one.end("abort nothing", False, version)
        one.produce("not added", 0)
        one.add("add", 0, version=min(version, 3))
        one.add("add the same", 0, version=min(version, 3))
        one.offsets("add offsets", version)
        one.produce("first", 0)
        one.produce("sequence: first again", 0)
        one.produce("another partition", 0, 1)
        one.produce("without a transaction", 1, transactional=False)
        one.add("add in another epoch", 1, version=min(version, 3), epoch=7)
        one.end("end in another epoch", True, version, epoch=7)
        one.end("end", version % 2 == 0, version)
        one.end("end twice", version % 2 == 0, version)
        one.end("end the other way", version % 2 == 1, version)
        one.produce("a late batch", 1)
        one.begin("begin again", version)


def _newer(session: Session, topic: str) -> None:
    for commit in (True, False):
        one = Producer(session, f"newer-{commit}", topic)
        one.begin("begin", 5)
        one.end("commit nothing", True, 5)
        one.end("abort nothing", False, 5)
        one.produce("first", 0, version=12)
        one.produce("second", 1, version=12)
        before = one.epoch
        one.end("end", commit, 5)
        one.end("end again", commit, 5, epoch=before)
        if commit:
            one.end("end the other way", False, 5, epoch=before)
        one.produce("a late batch", 2, version=12, epoch=before)
        one.produce("the next transaction", 0, version=12)
        one.begin("another begins", 5)
        one.produce("of the fenced", 1, version=12, epoch=before + 1)
        one.end("end of the fenced", True, 5, epoch=before + 1)


def _wrong(session: Session, topic: str) -> None:
    find = FindCoordinatorRequest("tx", 1, ["tx"])
    while session.send(find, 4).coordinators[0].error_code:
        time.sleep(0.05)  # Kafka makes its topic first.
    for version in session.each(ApiKey.FIND_COORDINATOR):
        if version >= 1:
            session.ask("a transactional id", FindCoordinatorRequest("tx", 1, ["tx"]), version)
    one = Producer(session, "wrong", topic)
    for version in range(6):
        for timeout_ms in (0, -1, 900_001):
            one.begin(f"time-out {timeout_ms}", version, timeout_ms)
    one.begin("begin")
    one.add("no such topic", 0, topic="nobody")
    one.add("no such partition", 0, 9)
    one.add("a topic of the service", 0, topic="__transaction_state")
    one.add("add", 0)
    one.produce("a control batch", 0, control=True)
    known, one.id = one.id, one.id + 1_000_000
    one.add("another producer adds", 0)
    one.produce("another producer", 0, 1)
    one.end("another producer ends", True)
    one.id = known
    one.begin("go on", goes_on=True)
    one.epoch -= 1
    one.begin("go on, asked twice", goes_on=True)
    one.epoch -= 1
    one.begin("go on from before", goes_on=True)
    session.ask("one", DescribeTransactionsRequest(["wrong"]), 0)


def run(session: Session) -> None:
    topic = make_topic(session, "transactions", 3)
    _wrong(session, topic)
    _older(session, topic)
    _newer(session, topic)
