"""Consume, transform and produce with a real client: what is committed is there once, what is aborted never was."""

import threading
import uuid

import pytest

DEADLINE_S = 30
COUNT = 40


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def bootstrap(served) -> str:
    return served.bootstrap


def consumer(bootstrap: str, topic: str, group: str, isolation: str = "read_committed"):
    from confluent_kafka import Consumer

    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "heartbeat.interval.ms": 200,
        }
    )
    made.subscribe([topic])
    return made


def transactional(bootstrap: str, name: str):
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0})
    made.init_transactions(DEADLINE_S)
    return made


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    from confluent_kafka import KafkaError

    reader, found = consumer(bootstrap, topic, fresh("reader"), isolation), []
    try:
        while True:
            message = reader.poll(DEADLINE_S)
            assert message is not None, "the end of the partition was not reached"
            if message.error() is None:
                found.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        reader.close()


@pytest.fixture
def orders(bootstrap):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    names = fresh("orders"), fresh("bills")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for each in admin.create_topics([NewTopic(each, 1) for each in names]).values():
        each.result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(names[0], b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0
    return names


def copy(bootstrap: str, orders: str, bills: str, group: str, name: str, *, abort_every: int) -> None:
    """Bills each order in a transaction of its own. Some are aborted, and then done again from the committed offset."""
    source, producer = consumer(bootstrap, orders, group), transactional(bootstrap, name)
    attempts = 0
    try:
        while True:
            message = source.poll(DEADLINE_S)
            assert message is not None
            if message.error() is not None:
                return
            attempts += 1
            producer.begin_transaction()
            producer.produce(bills, b"bill " + message.value())
            producer.send_offsets_to_transaction(
                source.position(source.assignment()), source.consumer_group_metadata(), DEADLINE_S
            )
            if attempts % abort_every:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
                for committed in source.committed(source.assignment(), DEADLINE_S):
                    committed.offset = max(committed.offset, 0)
                    source.seek(committed)
    finally:
        source.close()


def test_each_order_is_billed_once_although_some_transactions_are_aborted(bootstrap, orders):
    source, bills = orders
    copy(bootstrap, source, bills, fresh("billing"), fresh("copier"), abort_every=4)
    assert read_all(bootstrap, bills) == [b"bill %d" % number for number in range(COUNT)]
    everything = read_all(bootstrap, bills, "read_uncommitted")
    assert len(everything) > COUNT and set(everything) == {b"bill %d" % number for number in range(COUNT)}


def test_a_copier_that_is_replaced_in_the_middle_is_fenced_and_nothing_is_billed_twice(bootstrap, orders):
    from confluent_kafka import KafkaException

    source, bills = orders
    group, name = fresh("billing"), fresh("copier")
    old_source, old = consumer(bootstrap, source, group), transactional(bootstrap, name)
    message = old_source.poll(DEADLINE_S)
    old.begin_transaction()
    old.produce(bills, b"bill " + message.value())
    old.send_offsets_to_transaction(
        old_source.position(old_source.assignment()), old_source.consumer_group_metadata(), DEADLINE_S
    )
    old.flush(DEADLINE_S)
    old_source.close()
    copying = threading.Thread(
        target=copy, args=(bootstrap, source, bills, group, name), kwargs={"abort_every": COUNT * 2}
    )
    copying.start()
    copying.join(DEADLINE_S * 2)
    assert not copying.is_alive()
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(DEADLINE_S)
    assert fenced.value.args[0].fatal() or fenced.value.args[0].txn_requires_abort()
    assert read_all(bootstrap, bills) == [b"bill %d" % number for number in range(COUNT)]
