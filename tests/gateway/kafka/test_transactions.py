"""Transactions over the wire, on one broker: what a producer may do, and Kafka's code for what it may not."""

import asyncio
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException, Producer

from gateway.coordinators.transactions.peers import End, OneMarker
from gateway.http.metrics import transaction_exposition
from gateway.kafka.errors import ErrorCode
from gateway.kafka.handlers import produce
from gateway.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from gateway.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from gateway.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gateway.kafka.protocol.messages.end_txn import EndTxnRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from gateway.kafka.transaction_peers import TransactionPeers
from hot_tier.errors import NotLeader
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from tests.gateway.kafka.batches import batch
from tests.support.waiting import until

TV1, TV2 = 11, 12
"""Versions of Produce."""


@dataclass
class Client:
    """A transactional producer that says exactly what a test wants it to say."""

    wire: object
    name: str | None = "tx"
    id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin(self, version: int = 4, timeout_ms: int = 60_000, **more) -> int:
        answer = await self.wire.ask(InitProducerIdRequest(self.name, timeout_ms, **more), version)
        if not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    async def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[int]:
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], self.name, self.id, self.epoch, topics)
        answer = await self.wire.ask(request, version)
        return [each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition]

    async def produce(self, partition: int = 0, version: int = TV1, topic: str = "t", acks: int = -1, **fields) -> int:
        fields = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequence,
            "transactional": True,
        } | fields
        data = PartitionProduceData(partition, batch(b"v", **fields))
        request = ProduceRequest(self.name, acks, 5_000, [TopicProduceData(name=topic, partition_data=[data])])
        (answer,) = (await self.wire.ask(request, version)).responses[0].partition_responses
        self.sequence += not answer.error_code
        return answer.error_code

    async def end(self, commit: bool = True, version: int = 4) -> int:
        answer = await self.wire.ask(EndTxnRequest(self.name, self.id, self.epoch, commit), version)
        if version >= 5 and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer.error_code

    async def state(self) -> str:
        answer = await self.wire.ask(DescribeTransactionsRequest([self.name]), 0)
        return answer.transaction_states[0].transaction_state


@pytest.fixture
async def wire(node):
    await node.node.admin.create_topic("t", 3)
    async with node.connect() as connected:
        yield connected


@pytest.fixture
async def producer(wire):
    made = Client(wire)
    assert await made.begin() == 0
    return made


def log_end(node, partition: int = 0, topic: str = "t") -> int:
    return node.node.partitions.get(topic, partition).log_end_offset


async def becomes(node, state: str) -> None:
    await until(lambda: node.node.transactions.describe("tx").state.title == state)


def stable(node, partition: int = 0) -> int:
    return node.node.partitions.get("t", partition).last_stable_offset


async def test_the_broker_coordinates_its_transactional_ids(node, wire):
    for version in range(1, 7):
        answer = await wire.ask(FindCoordinatorRequest("tx", 1, ["tx"]), version)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id, found.port) == (0, 0, node.port)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_of_an_older_client(node, producer, commit):
    assert await producer.add(0, 1) == [0, 0]
    assert [await producer.produce(0), await producer.produce(0)] == [0, 0]
    assert (log_end(node), stable(node)) == (2, 0)
    assert await producer.end(commit) == 0
    await until(lambda: stable(node) == 3)
    await until(lambda: log_end(node, 1) == 1)  # written to or not
    await becomes(node, "CompleteCommit" if commit else "CompleteAbort")
    assert await producer.end(commit) == 0, "EndTxn may come twice"
    assert log_end(node) == 3


@pytest.mark.parametrize("commit", [True, False])
async def test_transactions_of_a_newer_client_have_an_epoch_each(node, producer, commit):
    for number in range(3):
        before = producer.epoch
        assert await producer.produce(0, TV2) == 0, "its first batch adds the partition"
        assert await producer.state() == "Ongoing"
        assert await producer.end(commit, 5) == 0
        assert producer.epoch == before + 1
        await until(lambda end=2 * (number + 1): stable(node) == end)


async def test_the_first_batch_may_come_before_the_marker_of_the_transaction_before(node, producer, monkeypatch):
    """Markers are written after EndTxn is answered, and those of partitions led elsewhere have a way to go."""
    changes = node.node.transactions.changes
    write = changes._write_markers
    later = asyncio.get_running_loop().call_later
    monkeypatch.setattr(changes, "_write_markers", lambda entry: later(0.05, write, entry))
    for _ in range(3):
        assert await producer.produce(0, TV2) == 0
        assert await producer.end(version=5) == 0
    await until(lambda: stable(node) == 6)


async def test_a_batch_of_the_transaction_before_does_not_join_the_next(node, producer):
    """KAFKA-14402: the late batch has the epoch, with TV1 even that of the running transaction."""
    assert await producer.produce(0, TV2) == 0
    late = {"producer_epoch": producer.epoch, "base_sequence": 1}
    assert await producer.end(True, 5) == 0
    await until(lambda: stable(node) == 2)
    assert await producer.produce(0, TV2, **late) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.produce(1, TV2, **late) == ErrorCode.INVALID_PRODUCER_EPOCH, "never written to"
    assert [log_end(node, 0), log_end(node, 1)] == [2, 0]


async def test_a_late_batch_of_an_older_client_begins_no_transaction(node, producer):
    assert await producer.add(0) == [0]
    assert await producer.produce(0) == 0
    assert await producer.end() == 0
    await becomes(node, "CompleteCommit")
    assert await producer.produce(0) == ErrorCode.TRANSACTION_ABORTABLE
    assert await producer.produce(0, 10) == ErrorCode.INVALID_TXN_STATE
    assert log_end(node) == 2


async def test_a_sequence_that_an_abort_has_freed_for_the_client_alone_loses_nothing(node, producer):
    """librdkafka gives up a batch whose answer it did not get, and goes back to its sequence after the abort. Taken for
    the stored one, the next batch would be acknowledged and be nowhere."""
    assert await producer.add(0) == [0]
    assert await producer.produce(0) == 0
    assert await producer.end(False) == 0
    await becomes(node, "CompleteAbort")
    producer.sequence = 0
    assert await producer.add(0) == [0]
    assert await producer.produce(0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log_end(node) == 2
    assert await producer.begin() == 0
    assert await producer.add(0) == [0]
    assert await producer.produce(0) == 0


async def test_librdkafka_hears_of_what_is_not_stored_after_an_abort(node, monkeypatch):
    """Its batch is stored, and it is told that another broker leads, as a leader that is replaced does."""
    await node.node.admin.create_topic("t", 1)
    append, told = produce._append, []

    def _append(partition, records, header, *rest):
        answer = append(partition, records, header, *rest)
        if header.base_sequence == 1 and not told:
            told.append(True)
            produce._fill_error(answer, NotLeader("another broker leads"))
        return answer

    monkeypatch.setattr(produce, "_append", _append)
    servers = {"bootstrap.servers": f"127.0.0.1:{node.port}", "log_level": 0}
    patience = {"retry.backoff.ms": 5000, "retry.backoff.max.ms": 5000}

    def run() -> None:
        client = Producer({"transactional.id": "tx", **servers, **patience})
        client.init_transactions(30)
        for value, end in ((b"first", client.commit_transaction), (b"given up", client.abort_transaction)):
            client.begin_transaction()
            client.produce("t", value, partition=0)
            client.flush(1)  # in vain for the second: it is sent again later
            end(30)
        client.begin_transaction()
        client.produce("t", b"next", partition=0)
        with pytest.raises(KafkaException, match="OUT_OF_ORDER"):
            client.commit_transaction(30)

    await asyncio.to_thread(run)
    assert told and log_end(node) == 4


async def test_records_for_partitions_that_were_not_added(node, producer):
    assert await producer.add(0) == [0]
    assert await producer.produce(1) == ErrorCode.TRANSACTION_ABORTABLE
    for version in (3, 8, 10):
        assert await producer.produce(1, version) == ErrorCode.INVALID_TXN_STATE
    assert log_end(node, 1) == 0


async def test_a_wrong_epoch(node, producer):
    producer.epoch += 1
    assert await producer.add(0) == [ErrorCode.PRODUCER_FENCED]
    assert await producer.add(0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    for version, code in ((5, 90), (2, 90), (1, 47)):
        assert await producer.end(version=version) == code
    assert await producer.produce(0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.produce(0, TV2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log_end(node) == 0


async def test_an_unknown_producer(node, producer):
    producer.id += 1
    assert await producer.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await producer.end(version=5) == await producer.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.produce(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.name = "never used"
    assert await producer.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert log_end(node) == 0


async def test_nothing_to_end(producer):
    assert await producer.end(True) == await producer.end(False) == ErrorCode.INVALID_TXN_STATE
    assert await producer.end(True, 5) == ErrorCode.INVALID_TXN_STATE
    assert await producer.end(False, 5) == 0


async def test_transactional_batches_without_a_transactional_id(node, producer):
    assert await producer.add(0) == [0]
    for name in (None, ""):
        producer.name = name
        assert await producer.produce(0) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await producer.produce(0, TV2) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log_end(node) == 0


async def test_control_batches_and_transactions_without_a_producer_are_not_taken(node, producer):
    assert await producer.add(0) == [0]
    assert await producer.produce(0, control=True) == ErrorCode.INVALID_RECORD
    nobody = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    assert await producer.produce(0, **nobody) == ErrorCode.INVALID_RECORD
    assert log_end(node) == 0


async def test_plain_batches_of_a_producer_with_an_open_transaction(node, producer):
    assert await producer.produce(0, TV2) == 0
    assert await producer.produce(0, TV2, transactional=False) == ErrorCode.INVALID_TXN_STATE
    assert log_end(node) == 1


async def test_partitions_that_cannot_be_added_keep_the_others_out(node, producer):
    assert await producer.add(0, 9) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.add(0, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.add(0, topic="__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await producer.state() == "Empty"


async def test_a_second_producer_fences_the_first_and_aborts_its_transaction(node, wire, producer):
    assert await producer.produce(0, TV2) == 0
    second = Client(wire)
    assert await second.begin() == 0
    assert (second.id, second.epoch) == (producer.id, producer.epoch + 2), "one for the abort, one for the newcomer"
    await until(lambda: stable(node) == 2)
    assert await producer.produce(0, TV2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.end(True, 5) == ErrorCode.PRODUCER_FENCED
    assert await producer.add(0) == [ErrorCode.PRODUCER_FENCED]
    fenced = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    assert await producer.begin(**fenced) == ErrorCode.PRODUCER_FENCED
    assert await producer.begin(3, **fenced) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await second.produce(0, TV2) == 0


async def test_a_producer_raises_its_own_epoch_and_may_ask_twice(producer):
    mine = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    assert await producer.begin(**mine) == 0
    assert producer.epoch == mine["producer_epoch"] + 1
    assert await producer.begin(**mine) == 0
    assert producer.epoch == mine["producer_epoch"] + 1


@pytest.mark.parametrize("commit", [True, False])
async def test_a_stranger_that_names_the_producer_keeps_no_transaction_from_ending(node, wire, producer, commit):
    """A batch without a transaction may raise the epoch on a partition. The marker is late there, and ends nothing."""
    assert await producer.add(0, 1) == [0, 0]
    assert await producer.produce(0) == 0
    stranger = Client(wire, None, producer.id, producer.epoch + 9)
    assert await stranger.produce(1, transactional=False) == 0
    assert await producer.produce(1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.end(commit) == 0
    await becomes(node, "CompleteCommit" if commit else "CompleteAbort")
    assert [stable(node, 0), stable(node, 1)] == [log_end(node, 0), log_end(node, 1)] == [2, 1]
    assert await producer.begin() == 0


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
async def test_a_time_out_that_is_not_allowed(wire, timeout_ms):
    assert await Client(wire).begin(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("version", [4, 5])
async def test_a_commit_after_the_time_out_is_fenced(node, wire, version):
    producer = Client(wire)
    assert await producer.begin(timeout_ms=1) == 0
    assert await producer.produce(0, TV2 if version == 5 else TV1) in (0, ErrorCode.TRANSACTION_ABORTABLE)
    if version == 4:
        assert await producer.add(0) == [0]
        assert await producer.produce(0) == 0
    await asyncio.sleep(0.002)
    await node.node.transactions.abort_timed_out()
    assert await producer.end(True, version) == ErrorCode.PRODUCER_FENCED
    await until(lambda: stable(node) == 2)
    await becomes(node, "CompleteAbort")


async def test_transactions_are_listed_and_described(node, wire, producer):
    assert await producer.add(0, 2) == [0, 0]
    other = Client(wire, "other")
    assert await other.begin() == 0

    async def listed(version=2, **filters) -> list[str]:
        answer = await wire.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert await listed() == ["other", "tx"]
    assert await listed(state_filters=["Ongoing", "Nonsense"]) == ["tx"]
    assert await listed(state_filters=["Nonsense"]) == []
    assert await listed(producer_id_filters=[other.id]) == ["other"]
    assert await listed(duration_filter=3_600_000) == []
    assert await listed(transactional_id_pattern="o.*r") == ["other"]
    assert await listed(transactional_id_pattern="the") == []
    bad = await wire.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    (found,) = (await wire.ask(DescribeTransactionsRequest(["tx"]), 0)).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", producer.id, 0)
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 2])]
    (unknown,) = (await wire.ask(DescribeTransactionsRequest(["never"]), 0)).transaction_states
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_transactions_are_counted(node, producer):
    def counted() -> dict[str, float]:
        families = transaction_exposition.collect(node.node.transactions)
        return {
            "_".join([each.name, *each.labels.values()]): each.value for family in families for each in family.samples
        }

    assert await producer.produce(0, TV2) == 0
    assert counted()["tierlog_transactions_Ongoing"] == 1
    assert await producer.end(True, 5) == 0
    await becomes(node, "CompleteCommit")
    after = counted()
    assert (after["tierlog_transactions_Ongoing"], after["tierlog_transactions_CompleteCommit"]) == (0, 1)
    assert after["tierlog_transactions_markers_total"] == 1


async def test_a_partition_describes_its_producers(node, wire, producer):
    async def described():
        answer = await wire.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
        (found,) = answer.topics[0].partitions[0].active_producers
        return found.producer_epoch, found.current_txn_start_offset, found.coordinator_epoch

    assert await producer.produce(0, TV2) == 0
    assert await described() == (0, 0, -1)
    assert await producer.end(True, 5) == 0
    await until(lambda: stable(node) == 2)
    assert await described() == (1, -1, node.node.transactions.shards.find("tx").leader_epoch)


# Between brokers


async def test_markers_of_another_coordinator(node, wire, producer):
    assert await producer.produce(0, TV2) == 0

    async def write(epoch: int, coordinator_epoch: int = 1, version: int = 2, **more) -> int:
        topics = [WritableTxnMarkerTopic(more.pop("topic", "t"), [0])]
        marker = WritableTxnMarker(producer.id, epoch, True, topics, coordinator_epoch, 2, **more)
        answer = await wire.ask(WriteTxnMarkersRequest([marker]), version)
        return answer.markers[0].topics[0].partitions[0].error_code

    assert await write(producer.epoch) == ErrorCode.INVALID_PRODUCER_EPOCH, "KIP-1228: an equal epoch is too late"
    assert log_end(node) == 1
    assert await write(producer.epoch + 1) == 0
    assert await write(producer.epoch + 1) == 0, "KAFKA-19999: a marker comes again after a lost answer"
    assert await write(producer.epoch) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await write(producer.epoch + 1, 0) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await write(producer.epoch + 1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_coordinator_hears_which_markers_it_has_to_write_again(node, producer):
    assert await producer.produce(0, TV2) == 0
    peers, broker = TransactionPeers(NodeId(1), None), node.node.image.broker(NodeId(0))
    here, nowhere = TopicPartition("t", PartitionId(0)), TopicPartition("nowhere", PartitionId(0))

    def marker(epoch: int, tp: TopicPartition) -> OneMarker:
        return OneMarker(End(producer.id, epoch, True, 1, 2), tp)

    again = await peers.write_markers(broker, [marker(producer.epoch + 1, here), marker(producer.epoch + 1, nowhere)])
    assert again == {marker(producer.epoch + 1, nowhere): "UNKNOWN_TOPIC_OR_PARTITION"}
    assert (log_end(node), stable(node)) == (2, 2)
    assert await peers.write_markers(broker, [marker(producer.epoch, here)]) == {}, "it is late, and ends nothing"
    assert log_end(node) == 2
    peers.close()


async def test_brokers_ask_for_many_transactions_at_once(wire, producer):
    def about(client: Client, *partitions: int, verify_only: bool) -> AddPartitionsToTxnTransaction:
        topics = [AddPartitionsToTxnTopic("t", list(partitions))]
        return AddPartitionsToTxnTransaction(client.name, client.id, client.epoch, verify_only, topics)

    other = Client(wire, "other")
    assert await other.begin() == 0
    for version in (4, 5):
        request = AddPartitionsToTxnRequest(
            [about(producer, 0, 1, verify_only=False), about(other, 0, verify_only=True)]
        )
        answer = await wire.ask(request, version)
        codes = {
            result.transactional_id: [
                each.partition_error_code for each in result.topic_results[0].results_by_partition
            ]
            for result in answer.results_by_transaction
        }
        assert codes == {"tx": [0, 0], "other": [ErrorCode.TRANSACTION_ABORTABLE]}
    twice = AddPartitionsToTxnRequest([about(other, 0, verify_only=True)] * 2)
    assert (await wire.ask(twice, 5)).error_code == ErrorCode.INVALID_REQUEST


async def test_offsets_are_a_partition_of_the_transaction(node, wire, producer):
    for version in range(5):
        answer = await wire.ask(AddOffsetsToTxnRequest("tx", producer.id, producer.epoch, "g"), version)
        assert answer.error_code == 0
    described = node.node.transactions.describe("tx")
    assert [tp.topic for tp in described.partitions] == ["__consumer_offsets"]
    for version, code in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)):
        answer = await wire.ask(AddOffsetsToTxnRequest("tx", producer.id, 9, "g"), version)
        assert answer.error_code == code
