"""A reader that starts at offset 0 notices nothing of the tiers: by any protocol, on a directory and on real S3.

bucket   [0 ............ n)            local   [m ........ end)      0 < m <= n < end
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.gateway.kafka.wire import Wire
from tests.integration.tiers import (
    SOON,
    Sender,
    create_topic,
    local_start,
    read_all,
    read_with_aiokafka,
    read_with_http,
    read_with_kafka_python,
)
from tests.support.s3 import S3Server, credentials, weed
from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess

COUNT = 6000


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(params=["file", "s3"])
def tiered(request: pytest.FixtureRequest, tmp_path: Path, make_service: MakeService) -> ServeProcess:
    if request.param == "file":
        return make_service(*SOON, "--bucket", f"file://{tmp_path}/bucket")
    server = request.getfixturevalue("s3")
    bucket = f"s3://{server.new_bucket()}/some/prefix"
    return make_service(*SOON, "--bucket", bucket, "--s3-endpoint", server.endpoint, **credentials())


def test_every_client_reads_all_records_once_while_they_move(tiered: ServeProcess) -> None:
    create_topic(tiered, "orders")
    sender = Sender(tiered, "orders")
    sender.send(2000)
    sender.flush()

    def produce_on() -> None:
        for _ in range(20):
            sender.send((COUNT - 2000) // 20)
            sender.poll(0.1)
        sender.flush()

    producing = threading.Thread(target=produce_on)
    producing.start()
    expected = list(range(COUNT))
    try:
        assert read_all(tiered, "orders", COUNT) == expected
    finally:
        producing.join()
    wait_until(lambda: local_start(tiered, "orders") > COUNT // 2, "most of the log is in the bucket only")
    assert read_all(tiered, "orders", COUNT) == expected
    assert asyncio.run(read_with_aiokafka(tiered, "orders", COUNT)) == expected
    assert read_with_kafka_python(tiered, "orders", COUNT) == expected
    assert read_with_http(tiered, "orders", COUNT) == expected

    seam = local_start(tiered, "orders")
    for start in (seam - 1, seam, seam + 1):
        assert read_all(tiered, "orders", 50, start) == expected[start : start + 50]

    consumer = Consumer({"bootstrap.servers": tiered.kafka, "group.id": "times", "log_level": 0})
    for number in (0, 17, seam - 1, seam, seam + 1, COUNT - 1):
        [found] = consumer.offsets_for_times([TopicPartition("orders", 0, 1_700_000_000_000 + number)], timeout=30)
        assert found.offset == number
    [beyond] = consumer.offsets_for_times([TopicPartition("orders", 0, 1_700_000_000_000 + COUNT)], timeout=30)
    assert beyond.offset == -1
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30) == (0, COUNT)
    consumer.close()

    archived, pending = asyncio.run(ends_of_the_archive(tiered))
    assert seam <= archived + 1 <= pending <= COUNT


async def ends_of_the_archive(service: ServeProcess) -> list[int]:
    """The latest offset in the bucket, then the earliest that is still to go there."""
    host, _, port = service.kafka.rpartition(":")
    async with Wire(host, int(port)) as wire:
        found = []
        for special in (-5, -6):
            topics = [ListOffsetsTopic("orders", [ListOffsetsPartition(0, timestamp=special)])]
            (partition,) = (await wire.ask(ListOffsetsRequest(topics=topics), 11)).topics[0].partitions
            assert partition.error_code == 0 and partition.leader_epoch >= 0
            found.append(partition.offset)
        return found


def test_a_restart_reads_the_archive_and_goes_on(tmp_path: Path, make_service: MakeService) -> None:
    service = make_service(*SOON, "--bucket", f"file://{tmp_path}/bucket")
    create_topic(service, "orders")
    sender = Sender(service, "orders")
    sender.send(3000)
    sender.flush()
    wait_until(lambda: local_start(service, "orders") > 1000, "local segments are dropped")
    service.kill()
    service.start()
    assert read_all(service, "orders", 3000) == list(range(3000))
    sender.send(1000)
    sender.flush()
    assert read_all(service, "orders", 4000) == list(range(4000))


def test_a_flipped_bit_is_an_error_that_names_the_object(tmp_path: Path, make_service: MakeService) -> None:
    import urllib.error
    import urllib.request

    service = make_service(*SOON, "--bucket", f"file://{tmp_path}/bucket", "--set", "cache.disk_bytes=0")
    create_topic(service, "orders")
    sender = Sender(service, "orders")
    sender.send(3000)
    sender.flush()
    wait_until(lambda: local_start(service, "orders") > 1000, "local segments are dropped")
    first = min((tmp_path / "bucket" / "topic=orders" / "partition=0").iterdir())
    data = bytearray(first.read_bytes())
    data[len(data) // 3] ^= 4
    first.write_bytes(data)
    consumer = Consumer({"bootstrap.servers": service.kafka, "group.id": "g", "log_level": 0, "check.crcs": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    seen = [message for message in consumer.consume(10, 3) if message.error() is None]
    assert seen == [], "damage is never served as records"
    consumer.close()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{service.url}/api/v1/topics/orders/partitions/0/messages?offset=0&limit=10")
    assert refused.value.code == 503
    wait_until(lambda: first.name in service.output(), "the log names the object", 10)
    second = int(sorted(os.listdir(first.parent))[1][:20])
    assert read_all(service, "orders", 100, second) == list(range(second, second + 100)), "the rest is served"
