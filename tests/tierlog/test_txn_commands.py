"""`tierlog txn` against a real node, with the transaction of a real producer."""

from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from tests.support.command import Ran, tierlog
from tierlog.client import Client, path
from tierlog.process import ServeProcess

DEADLINE_S = 30


@pytest.fixture
def run(service: ServeProcess):  # type: ignore[no-untyped-def]
    def run(*arguments: str, **more: object) -> Ran:
        return tierlog(*arguments, server=service.url, **more)  # type: ignore[arg-type]

    return run


@pytest.fixture
def hanging(service: ServeProcess) -> tuple[str, str, Producer]:
    """The transactional id of a transaction that nobody ends, its topic, and its producer."""
    name, topic = f"copier [red]-{uuid4().hex[:6]}", f"txn-{uuid4().hex[:8]}"
    with Client(service.url) as client:
        client.post(path("topics"), {"name": topic, "partitions": 2})
    producer = Producer({"bootstrap.servers": service.kafka, "transactional.id": name, "log_level": 0})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"v", partition=partition)
    assert producer.flush(DEADLINE_S) == 0
    return name, topic, producer


def test_a_transaction_that_nobody_ends_is_found_and_aborted(run, hanging) -> None:  # type: ignore[no-untyped-def]
    name, topic, producer = hanging
    (row,) = [line for line in run("txn", "list").lines if name in line]
    assert "Ongoing" in row
    (found,) = [each for each in run("txn", "list", "--open", "--json").json if each["transactional_id"] == name]
    assert found["state"] == "Ongoing" and found["started_ms"] > 0
    described = run("txn", "describe", name).out
    assert name in described and "Ongoing" in described and "time-out 60 s" in described and "open for" in described
    assert [line.split() for line in described.splitlines() if topic in line] == [[topic, "0", "1"]]
    assert {each["topic"] for each in run("txn", "describe", name, "--json").json["partitions"]} == {topic}
    assert "aborted" in run("txn", "abort", name).out
    assert name not in run("txn", "list", "--open").out
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)
    again = run("txn", "abort", name, code=4)
    assert "txn list --open" in again.err


def test_abort_as_json(run, hanging) -> None:  # type: ignore[no-untyped-def]
    name, _, _ = hanging
    assert run("txn", "abort", name, "--json").json == {"transactional_id": name, "outcome": "aborted"}


def test_an_id_that_nobody_uses(run) -> None:  # type: ignore[no-untyped-def]
    for command in ("describe", "abort"):
        refused = run("txn", command, "nobody", code=3)
        assert "txn list" in refused.err
