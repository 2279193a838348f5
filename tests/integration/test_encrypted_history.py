"""An encrypted topic through real clients: read from the bucket, without its key, with it again, and after its end."""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.integration.tiers import SOON, Sender, create_topic, local_start, read_all
from tests.support.command import tierlog
from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess

pytestmark = pytest.mark.process


def first_answer(service: ServeProcess) -> tuple[int, dict]:
    url = f"{service.url}/api/v1/topics/payments/partitions/0/messages?offset=0&limit=10"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def consumed(consumer: Consumer, seconds: float) -> tuple[int, set[str]]:
    """How many records came, and the names of the errors."""
    records, errors = 0, set()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            if message.error() is None:
                records += 1
            else:
                errors.add(message.error().name())
        if records or errors:
            break
    return records, errors


def test_a_key_that_is_away_and_one_that_is_destroyed(tmp_path: Path) -> None:
    keys, away = tmp_path / "keys.json", tmp_path / "away.json"
    bucket = f"file://{tmp_path}/bucket"
    tierlog("keys", "new", "payments", "--keys-file", str(keys))
    with services(tmp_path) as make:
        service = make(*SOON, "--bucket", bucket, "--store.keys_file", str(keys))
        create_topic(service, "payments", archive_encryption_key="payments")
        sender = Sender(service, "payments")
        sender.send(3000)
        sender.flush()
        wait_until(lambda: local_start(service, "payments") > 1000, 60)
        assert read_all(service, "payments", 3000) == list(range(3000))
        assert all(b"event " not in path.read_bytes() for path in (tmp_path / "bucket").rglob("*") if path.is_file())
        cached = list((service.data_dir).rglob("*"))
        parts = [path for path in cached if path.is_file() and "logs" not in path.parts]
        assert all(b"event " not in path.read_bytes() for path in parts)

        keys.rename(away)
        wait_until(lambda: first_answer(service)[0] == 503, 30)
        _, problem = first_answer(service)
        assert problem["type"].endswith("key-missing") and "payments/1" in problem["detail"], problem
        consumer = Consumer({"bootstrap.servers": service.kafka, "group.id": "g", "log_level": 0})
        consumer.assign([TopicPartition("payments", 0, 0)])
        assert consumed(consumer, 3) == (0, set())  # It goes on asking, from the same offset.
        assert "payments/1" in service.output()
        away.rename(keys)
        records, errors = consumed(consumer, 30)
        assert records and not errors
        consumer.close()

        done = tierlog(
            "archive", "shred", "payments", "--confirm", "payments", "--bucket", bucket,
            "--keys-file", str(keys), "--server", service.url,
        )  # fmt: skip
        assert "still on local disk" in done.out
        wait_until(lambda: first_answer(service)[0] == 410, 30)
        assert first_answer(service)[1]["type"].endswith("key-shredded")
        consumer = Consumer({"bootstrap.servers": service.kafka, "group.id": "h", "log_level": 0})
        consumer.assign([TopicPartition("payments", 0, 0)])
        records, errors = consumed(consumer, 30)
        assert not records and errors
        consumer.close()
        start = local_start(service, "payments")
        assert read_all(service, "payments", 3000 - start, start) == list(range(start, 3000))
        tierlog("archive", "verify", "--bucket", bucket)
