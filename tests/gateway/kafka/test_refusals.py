"""A batch sent behind a refused one is refused alike, so that a pipelining producer keeps its order and its numbers."""

import asyncio

import pytest
from confluent_kafka import Producer

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.refusals import MAX_REMEMBERED, Refusals
from hot_tier.errors import InvalidRecord, NotEnoughReplicas, NotLeader
from hot_tier.ids import NodeId, TopicPartition
from hot_tier.record.batch import read_header
from hot_tier.replication.led_partition import LedPartition
from tests.gateway.kafka.batches import batch
from tests.gateway.kafka.node import node_in_thread
from tests.gateway.kafka.test_leadership import hand_over
from tests.gateway.kafka.test_produce import produce
from tests.support.waiting import until

TP = TopicPartition("t", 0)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def header(sequence, *, producer=5, epoch=0):
    return read_header(batch(b"v", producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def refused(*sequences, error=NotLeader):
    refusals = Refusals()
    for sequence in sequences:
        refusals.note(TP, header(sequence), error("not now"))
    return refusals


@pytest.mark.parametrize("sequence", [11, 500, 10 + 2**30])
def test_what_is_sent_behind_a_refused_batch_is_refused_alike(sequence):
    with pytest.raises(NotEnoughReplicas, match="not now"):
        refused(10, error=NotEnoughReplicas).check(TP, header(sequence))


def test_sequences_wrap():
    with pytest.raises(NotLeader):
        refused(2**31 - 1).check(TP, header(0))


@pytest.mark.parametrize("other", [header(10), header(9), header(11, epoch=1), header(11, producer=6)])
def test_the_batch_itself_one_before_it_another_epoch_and_another_producer_pass(other):
    refused(10).check(TP, other)
    refused(10).check(TopicPartition("t", 1), header(11))


def test_once_the_refused_batch_has_come_again_those_behind_it_pass():
    refusals = refused(10)
    refusals.check(TP, header(10))
    refusals.check(TP, header(11))


def test_a_producer_that_goes_on_without_the_refused_batch_is_judged_by_the_log_when_it_asks_again():
    refusals = refused(10)
    with pytest.raises(NotLeader) as error:
        refusals.check(TP, header(11))
    refusals.note(TP, header(11), error.value)
    refusals.check(TP, header(11))


def test_a_batch_that_is_wrong_in_itself_says_nothing_about_others():
    refused(10, error=InvalidRecord).check(TP, header(11))


def test_no_more_is_remembered_than_a_connection_needs():
    refusals = Refusals()
    for producer in range(MAX_REMEMBERED + 1):
        refusals.note(TP, header(10, producer=producer), NotLeader("not now"))
    refusals.check(TP, header(11, producer=0))
    with pytest.raises(NotLeader):
        refusals.check(TP, header(11, producer=1))


def refuse_once(monkeypatch, sequence):
    """LedPartition.append, but for the first batch of this sequence; what it was asked is in the list returned."""
    append, asked = LedPartition.append, []

    def refusing(partition, records, header, *args):
        asked.append(header.base_sequence)
        if header.base_sequence == sequence and asked.count(sequence) == 1:
            raise NotLeader("not yet", where=str(partition.tp))
        return append(partition, records, header, *args)

    monkeypatch.setattr(LedPartition, "append", refusing)
    return asked


def hand_over_and_back(partition):
    """The answer to all who wait when another broker leads; then this one leads again."""
    partition._uncommitted.refuse(NotLeader("handed over", where=str(partition.tp)))


async def ask(wire, sequences):
    for sequence in sequences:
        data = batch(b"%d" % sequence, producer_id=5, producer_epoch=0, base_sequence=sequence)
        await wire.send(produce((0, data)), 9)
    parts = [(await wire.receive(ApiKey.PRODUCE, 9))[1].responses[0].partition_responses[0] for _ in sequences]
    return [(part.error_code, part.base_offset) for part in parts]


async def test_a_new_producer_keeps_its_order_when_the_first_of_its_batches_is_refused(node, monkeypatch):
    await node.node.admin.create_topic("t", 1)
    refuse_once(monkeypatch, 0)
    async with node.connect() as wire:
        assert await ask(wire, [0, 1, 2]) == [(NOT_LEADER, -1)] * 3
        assert await ask(wire, [0, 1, 2, 3]) == [(0, 0), (0, 1), (0, 2), (0, 3)]


async def test_what_was_appended_and_could_not_be_committed_counts_as_refused(node):
    """It may be gone from the log when this broker leads again."""
    await node.node.admin.create_topic("t", 1)
    partition = node.node.partitions.get("t", 0)
    flush, asked = partition.log.request_flush, []
    async with node.connect() as wire:
        assert await ask(wire, [0]) == [(0, 0)]
        partition.log.request_flush = lambda: asked.append(1)
        asking = asyncio.create_task(ask(wire, [1, 2]))
        await until(lambda: len(asked) == 2)
        hand_over_and_back(partition)
        assert await asking == [(NOT_LEADER, -1)] * 2
        partition.log.request_flush = flush
        assert await ask(wire, [3, 4]) == [(NOT_LEADER, -1)] * 2
        assert await ask(wire, [1, 2, 3, 4]) == [(0, 1), (0, 2), (0, 3), (0, 4)]


async def test_a_leader_that_begins_between_two_batches_of_a_pipeline(node):
    await node.node.admin.create_topic("t", 1)
    async with node.connect() as wire:
        await hand_over(node, 5)
        assert await ask(wire, [0]) == [(NOT_LEADER, -1)]
        await hand_over(node, 6, leader=NodeId(0))
        assert await ask(wire, [1, 2]) == [(NOT_LEADER, -1)] * 2
        assert await ask(wire, [0, 1, 2]) == [(0, 0), (0, 1), (0, 2)]


def test_librdkafka_stores_nothing_twice_when_a_batch_in_flight_is_refused(tmp_path, monkeypatch):
    """The one before it is stored and could not be committed. Told of a gap behind the two, librdkafka would raise its
    epoch and send both again under new numbers."""
    with node_in_thread(str(tmp_path)) as served:
        offsets, failures = [], []

        def delivered(error, message):
            failures.append(error) if error else offsets.append(message.offset())

        producer = Producer(
            {
                "bootstrap.servers": served.bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "retry.backoff.ms": 50,
                "log_level": 0,
            }
        )
        producer.produce("t", b"0", on_delivery=delivered)
        assert producer.flush(20) == 0
        partition = served.node.partitions.get("t", 0)
        refuse_once(monkeypatch, 2)
        flush = partition.log.request_flush

        def flush_later():
            partition.log.request_flush = flush
            asyncio.get_running_loop().call_later(0.3, hand_over_and_back, partition)  # with five in flight by then

        partition.log.request_flush = flush_later
        for number in range(1, 20):
            producer.produce("t", b"%d" % number, on_delivery=delivered)
        assert producer.flush(30) == 0
        assert not failures
        assert offsets == list(range(20))
        assert partition.log.log_end_offset == 20
        del producer  # or it goes on looking for the broker
