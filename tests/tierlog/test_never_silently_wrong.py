"""Real brokers as an attacker finds them: a bit that turns on disk, a copied data directory, records that come too old,
an acknowledgement that means little, a group that has committed nothing. Nobody is told something wrong."""

import json
import shutil
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from hot_tier.record.batch import iter_headers
from tests.damage.harms import flip
from tests.support.command import tierlog
from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tests.tierlog.test_archive_commands import QUICK, fill, make_topic, until_archived
from tierlog.client import Client, path
from tierlog.process import ServeProcess

WRITTEN = 30
FLIPPED = 20
"""The batch in which a bit turns."""


def write(service: ServeProcess, topic: str, count: int = WRITTEN, **message: int) -> None:
    """A batch for each record."""
    with Client(service.url) as client:
        for number in range(count):
            batch = {"messages": [{"value": f"value {number}", **message}]}
            client.post(path("topics", topic, "messages", "batch"), batch)


def log_of(service: ServeProcess, topic: str) -> Path:
    """Its first log file."""
    return min((service.data_dir / "logs").glob(f"{topic}.*/0/*.log"))


def make(service: ServeProcess, topic: str, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with Client(service.url) as client:
        client.post(path("topics"), {"name": topic, "partitions": 1, "config": settings})


def metrics(service: ServeProcess) -> list[str]:
    with urlopen(f"{service.url}/metrics") as answer:
        return answer.read().decode().splitlines()


def read_by_kafka(service: ServeProcess, topic: str, seconds: float = 5) -> tuple[list[str], int | None]:
    """What a client gets that checks no CRC, and the error that it ends with."""
    consumer = Consumer({"bootstrap.servers": service.kafka, "group.id": "plain", "check.crcs": "false"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and len(found) < WRITTEN:
            message = consumer.poll(0.2)
            if message is not None:
                if message.error():
                    return found, message.error().code()
                found.append(message.value().decode())
        return found, None
    finally:
        consumer.close()


@pytest.mark.parametrize("sealed", [False, True], ids=["active", "sealed"])
def test_a_bit_that_turns_under_a_running_broker_reaches_nobody(make_service: MakeService, sealed: bool) -> None:
    service = make_service("--set", "log.retention_check_ms=200")
    make(service, "t", **({"segment_ms": "1000"} if sealed else {}))
    write(service, "t")
    log = log_of(service, "t")
    if sealed:
        wait_until(log.with_suffix(".index").exists, "it is closed")
    positions = [position for position, _ in iter_headers(log.read_bytes())]
    flip(log, 8 * (positions[FLIPPED + 1] - 3))
    whole = [f"value {number}" for number in range(FLIPPED)]
    records, error = read_by_kafka(service, "t")
    assert records == whole and error in (None, KafkaError._BAD_MSG, KafkaError.INVALID_MSG), error
    ran = tierlog("consume", "t", server=service.url, code=None)
    assert ran.code == 1 and ran.lines == whole
    assert log.name in ran.err and "damaged" in ran.err and "Traceback" not in ran.err
    assert "log damaged" in service.output()
    # It is told where it was found, and what comes behind it can be read.
    with Client(service.url) as client:
        assert any(log.name in each for each in client.get("/readyz")["warnings"])
    assert tierlog("consume", "t", "--offset", str(FLIPPED + 1), server=service.url).lines[0] == f"value {FLIPPED + 1}"


def test_acknowledged_by_one_is_there_at_once(service: ServeProcess) -> None:
    """acks=1, and by default synced before it is answered: ListOffsets sees each record that was acknowledged."""
    make(service, "acks1")
    admin = AdminClient({"bootstrap.servers": service.kafka})
    producer = Producer({"bootstrap.servers": service.kafka, "acks": "1", "linger.ms": "0", "batch.num.messages": "1"})
    acknowledged = 0

    def delivered(error: object, _: object) -> None:
        nonlocal acknowledged
        assert error is None
        acknowledged += 1

    for number in range(300):
        producer.produce("acks1", b"%d" % number, partition=0, on_delivery=delivered)
        producer.poll(0)
        if number % 10 == 9:
            while acknowledged <= number - 5:
                producer.poll(0.01)
            known = acknowledged
            [there] = admin.list_offsets({TopicPartition("acks1", 0): OffsetSpec.latest()}).values()
            assert there.result().offset >= known
    assert producer.flush(30) == 0 and acknowledged == 300
    [there] = admin.list_offsets({TopicPartition("acks1", 0): OffsetSpec.latest()}).values()
    assert there.result().offset == 300


def test_records_that_come_too_old_are_told_once_for_a_topic(service: ServeProcess) -> None:
    for name in ("old1", "old2"):
        make(service, name, retention_ms="3600000")
        write(service, name, 5, timestamp=1_000_000)
        assert f'tierlog_topic_in_expired_records_total{{topic="{name}"}} 5.0' in metrics(service)
        lines = [line for line in service.output().splitlines() if "retention" in line and f"topic={name}" in line]
        assert len(lines) == 1, service.output()


def test_nobody_is_told_that_a_group_without_commits_has_no_lag(service: ServeProcess) -> None:
    make(service, "lag")
    write(service, "lag", 4)
    settings = {"group.id": "no-commits", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer({"bootstrap.servers": service.kafka, **settings})
    consumer.subscribe(["lag"])
    try:
        assert consumer.poll(20) is not None
        assert tierlog("group", "describe", "no-commits", "--json", server=service.url).json["lag"] is None
        with Client(service.url) as client:
            assert client.get(path("consumer-groups", "no-commits", "offsets"))["lag"] is None
        of_group = [line for line in metrics(service) if 'group="no-commits"' in line]
        assert not [line for line in of_group if line.startswith("tierlog_group_lag_records")]
        assert 'tierlog_group_uncommitted_records{group="no-commits",partition="0",topic="lag"} 4.0' in of_group, (
            of_group
        )
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["original", "copy"])
def test_of_two_copies_of_a_data_directory_one_archives(make_service: MakeService, tmp_path: Path, first: str) -> None:
    bucket = ("--bucket", f"file://{tmp_path}/bucket")
    original = make_service(*QUICK, *bucket)
    make_topic(original, "orders")
    fill(original, "orders", 60)
    until_archived(original, "orders")
    original.stop()
    copied = ServeProcess(tmp_path / "copied", (*QUICK, *bucket))
    shutil.copytree(original.data_dir, copied.data_dir)
    owner, other = (original, copied) if first == "original" else (copied, original)
    try:
        owner.start()
        fill(owner, "orders", 60, first=60)
        until_archived(owner, "orders")
        other.start()
        fill(other, "orders", 60, first=1000)
        assert _warned(other, "take-over")
        assert not _warnings(owner)
        with Client(other.url) as client:
            assert all(each["stopped"] for each in client.get(path("topics", "orders", "archive"))["partitions"])
        ran = tierlog("consume", "orders", "--json", server=other.url, code=None)
        values = [json.loads(line)["value"] for line in ran.lines]
        assert ran.code == 5 and not any(
            f"value-{number} " in value for value in values for number in range(60, 120)
        ), "not a record of the other one"
        owner.stop()
        refused = tierlog("archive", "take-over", "orders", server=other.url, code=1).err
        assert "offset 30 holds another record in the archive than in the local log" in refused
        owner.start()
        fill(owner, "orders", 60, first=2000)
        until_archived(owner, "orders")
        assert not _warnings(owner) and _warnings(other)
    finally:
        copied.kill()


def _warnings(service: ServeProcess) -> list[str]:
    with Client(service.url) as client:
        found: list[str] = client.get("/readyz")["warnings"]
    return found


def _warned(service: ServeProcess, of: str) -> bool:
    wait_until(lambda: any(of in each for each in _warnings(service)), f"a warning of {of}")
    return True
