"""Transactions of real clients: what is committed is read, what is aborted is not, and an old producer is refused."""

import time
from uuid import uuid4

import pytest

from benchmarks.process import wait_for

from .clients.face import Client, Fenced, Isolation, Message, Partition, Record, ServerError

COMMITTED: Isolation = "read_committed"
ALL: Isolation = "read_uncommitted"
LAST = b"last"


@pytest.fixture
def name() -> str:
    return f"txn-{uuid4().hex[:12]}"


def values(client: Client, partition: Partition, isolation: Isolation = COMMITTED) -> list[bytes | None]:
    """All but a record that is sent for this: it comes when nothing before it is undecided."""
    client.produce(partition, [Message(LAST)])
    found: list[Record] = []
    while not found or found[-1].value != LAST:
        found += client.read(partition, found[-1].offset + 1 if found else 0, 1, isolation=isolation)
    return [record.value for record in found[:-1]]


def test_commit_and_abort(client, new_topic, name):
    first, second = Partition(new_topic(), 0), Partition(new_topic(), 0)
    producer = client.transactional(name)
    for turn, end in enumerate((producer.commit, producer.abort, producer.commit)):
        producer.begin()
        producer.send(first, [b"%d-%d" % (turn, n) for n in range(2)])
        producer.send(second, [b"%d" % turn])
        producer.flush()
        end()
    assert values(client, first) == [b"0-0", b"0-1", b"2-0", b"2-1"]
    assert values(client, second, ALL) == [b"0", b"1", b"2"]


def test_what_is_open_is_not_read(client, new_topic, name):
    """Nor is what lies behind it, though it is no part of a transaction."""
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"before")])
    producer = client.transactional(name)
    producer.begin()
    producer.send(partition, [b"inside"])
    producer.flush()
    client.produce(partition, [Message(b"behind")])
    assert [record.value for record in client.read(partition, 0, 3)] == [b"before", b"inside", b"behind"]
    assert [record.value for record in client.read(partition, 0, 1, isolation=COMMITTED)] == [b"before"]
    producer.commit()
    read = client.read(partition, 0, 3, isolation=COMMITTED)
    assert [record.value for record in read] == [b"before", b"inside", b"behind"]


def test_many_aborted_between_some_committed(client, new_topic, name):
    """Over several segments; the last one, and nothing behind it, is committed."""
    partition = Partition(new_topic(config={"segment.bytes": "1048576"}), 0)
    producer = client.transactional(name)
    wanted = []
    for turn in range(30):
        producer.begin()
        producer.send(partition, [b"%d" % turn + b"." * 60_000 for _ in range(5)])
        producer.flush()
        if turn % 10 == 9:
            producer.commit()
            wanted += [b"%d" % turn] * 5
        else:
            producer.abort()
    records = client.read(partition, 0, len(wanted), isolation=COMMITTED)
    assert [record.value.rstrip(b".") for record in records] == wanted
    assert len(client.read(partition, 0, 150)) == 150


def test_empty_transactions(client, new_topic, name):
    producer = client.transactional(name)
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        end()
    partition = Partition(new_topic(), 0)
    producer.begin()
    producer.send(partition, [b"x"])
    producer.commit()
    assert values(client, partition) == [b"x"]


def test_offsets_are_committed_with_the_transaction(client, new_topic, name):
    partition = Partition(new_topic(), 0)
    client.produce(partition, [Message(b"%d" % n) for n in range(5)])
    producer = client.transactional(name)
    for offset, end in ((2, producer.commit), (4, producer.abort)):
        producer.begin()
        producer.send(partition, [b"made"])
        producer.commit_offsets(name, partition, offset)
        end()
    wait_for(lambda: client.group_offsets(name) == {partition: 2}, "the offset of the first", 20)
    producer.begin()
    producer.commit_offsets(name, partition, 3)
    producer.commit()
    wait_for(lambda: client.group_offsets(name) == {partition: 3}, "the offset without records", 20)


def test_a_second_producer_fences_the_first(client, new_topic, name):
    partition = Partition(new_topic(), 0)
    first = client.transactional(name)
    first.begin()
    first.send(partition, [b"of the first"])
    first.flush()
    second = client.transactional(name)
    second.begin()
    second.send(partition, [b"of the second"])
    second.commit()
    with pytest.raises((Fenced, ServerError)):
        first.commit()
    assert values(client, partition) == [b"of the second"]
    assert [record.value for record in client.read(partition, 0, 2)] == [b"of the first", b"of the second"]


def test_a_fenced_producer_can_write_nothing(client, new_topic, name):
    partition = Partition(new_topic(), 0)
    first = client.transactional(name)
    first.begin()
    second = client.transactional(name)
    with pytest.raises((Fenced, ServerError)):
        first.send(partition, [b"of the first"])
        first.flush()
        first.commit()
    second.begin()
    second.send(partition, [b"of the second"])
    second.commit()
    assert values(client, partition) == [b"of the second"]


@pytest.mark.slow
def test_one_that_takes_too_long_is_aborted(client, new_topic, name):
    partition = Partition(new_topic(), 0)
    producer = client.transactional(name, timeout_ms=1000)
    producer.begin()
    producer.send(partition, [b"too late"])
    producer.flush()
    began = time.monotonic()
    client.produce(partition, [Message(b"behind")])
    (record,) = client.read(partition, 0, 1, isolation=COMMITTED)
    assert record.value == b"behind"
    assert time.monotonic() - began < 20
    with pytest.raises((Fenced, ServerError)):
        producer.commit()


def test_more_time_than_the_broker_gives_is_refused(client, name):
    with pytest.raises(Exception, match=r"(?i)timeout"):
        client.transactional(name, timeout_ms=16 * 60_000)
