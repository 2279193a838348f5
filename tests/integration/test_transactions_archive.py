"""Real transactions, archived by a real broker that is killed on the way: each isolation reads what it should, and the
bucket alone has the committed rows."""

import random
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.tiers import SOON, create_topic
from tests.support.command import tierlog
from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeProcess

TOPIC = "bank"


def consumed(service: ServeProcess, isolation: str) -> dict[int, bytes]:
    group = f"{isolation}-{time.monotonic_ns()}"
    settings = {"group.id": group, "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": service.kafka, **settings})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            if message.error():
                consumer.close()
                return found
            assert message.offset() not in found
            found[message.offset()] = message.value()
    raise AssertionError(f"the end of the partition is not reached, {len(found)} records are")


def status(service: ServeProcess) -> dict[str, Any]:
    with Client(service.url) as client:
        [found] = client.get(path("topics", TOPIC, "archive"), limit=0)["partitions"]
    return dict(found)


def idle(service: ServeProcess) -> bool:
    found = status(service)
    return found["backlog_bytes"] == 0 and bool(found["archived"]) and found["local"]["start_offset"] > 0


def test_committed_rows_alone_and_both_isolations(tmp_path: Path, make_service: MakeService) -> None:
    service = make_service(*SOON, "--bucket", f"file://{tmp_path}/bucket")
    create_topic(service, TOPIC)
    chance = random.Random(1)
    committed: list[bytes] = []
    written: list[bytes] = []
    for run in range(3):
        producer = Producer({"bootstrap.servers": service.kafka, "transactional.id": f"bank-{run}", "linger.ms": 0})
        producer.init_transactions(30)
        for number in range(30):
            producer.begin_transaction()
            values = [b"%d-%d-%d " % (run, number, n) * 20 for n in range(chance.randint(1, 60))]
            for value in values:
                producer.produce(TOPIC, value, partition=0)
            assert producer.flush(30) == 0
            written += values
            if chance.random() < 0.5:
                producer.commit_transaction(30)
                committed += values
            else:
                producer.abort_transaction(30)
        service.kill()
        service.start()
    wait_until(lambda: idle(service), "every sealed segment is archived")
    archived = status(service)["archived"]
    seen = consumed(service, "read_committed")
    assert sorted(seen.values()) == sorted(committed)
    assert sorted(consumed(service, "read_uncommitted").values()) == sorted(written)
    rows = pq.read_table(tmp_path / "bucket" / f"topic={TOPIC}")
    in_bucket = dict(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))
    assert in_bucket == {offset: value for offset, value in seen.items() if offset < archived["end_offset"]}
    assert archived["aside_bytes"] > 0 and archived["rows"] == len(in_bucket) > 0
    assert tierlog("archive", "verify", server=service.url).code == 0


def test_status_names_the_transaction_that_is_open(tmp_path: Path, make_service: MakeService) -> None:
    service = make_service(*SOON, "--bucket", f"file://{tmp_path}/bucket")
    create_topic(service, TOPIC)
    producer = Producer({"bootstrap.servers": service.kafka, "transactional.id": "bank-slow", "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(20):
        for _ in range(100):
            producer.produce(TOPIC, b"%d " % number * 200, partition=0)
        assert producer.flush(30) == 0  # A batch of its own, so that segments end in between.
    wait_until(lambda: status(service)["held_by"], "the archive waits")
    shown = tierlog("archive", "status", TOPIC, server=service.url)
    assert shown.code == 0, "nothing is wrong"
    assert "held by transactional id 'bank-slow'" in shown.err and "tierlog txn abort bank-slow" in shown.err
    assert not (tmp_path / "bucket" / f"topic={TOPIC}").exists(), "nothing undecided is archived"
    producer.commit_transaction(30)
    wait_until(lambda: status(service)["archived"]["rows"] > 0, "the archive goes on")
    assert status(service)["held_by"] is None
