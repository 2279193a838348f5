"""The store fails in every way it can, under a producer and readers.

Producers notice nothing; no local segment goes before the bucket has it; a cold read gives an error or the right bytes;
after the fault the backlog drains and the bucket is in order.
"""

import asyncio
import base64
import json
import re
import statistics
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from cold_tier.checking.verify import verify
from cold_tier.inventory import find_topics
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.reports import Finding
from tests.integration.tiers import SOON, Sender, check_value, create_topic, local_start, read_all
from tests.support.faulty_s3 import READS, WRITES, Act, Fault, FaultyS3, faulty
from tests.support.s3 import credentials, weed
from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess

FAULT_S = 2.5
PER_SEGMENT = 450
"""More records than a segment of 100 kB holds."""

FAULTS = {
    "throttled": Fault(Act.ANSWER),
    "server-errors": Fault(Act.ANSWER, status=500, code="InternalError"),
    "hangs": Fault(Act.HANG),
    "down": Fault(Act.REFUSE),
    "every-other-body-cut": Fault(Act.CUT_RESPONSE, READS, every=2),
    "bodies-cut": Fault(Act.CUT_RESPONSE, READS),
    "uploads-cut": Fault(Act.CUT_UPLOAD, WRITES),
    "uploads-denied": Fault(Act.ANSWER, WRITES, status=403, code="AccessDenied"),
    "bits-flipped": Fault(Act.FLIP, READS),
    "every-other-put-unanswered": Fault(Act.LOSE_ANSWER, WRITES, every=2),
    "one-manifest-unanswered": Fault(Act.LOSE_ANSWER, WRITES, "/manifest/", every=2),
    "manifests-unanswered": Fault(Act.LOSE_ANSWER, WRITES, "/manifest/"),
}


class TimedSender(Sender):
    def __init__(self, service: ServeProcess, topic: str) -> None:
        super().__init__(service, topic)
        self.failed = 0
        self.latencies: list[float] = []

    def _delivered(self, error: object, message: Any, number: int) -> None:
        super()._delivered(error, message, number)
        self.failed += error is not None
        self.latencies.append(message.latency())

    def run(self, seconds: float) -> float:
        """Send at a steady pace; the 95th percentile of the time to the acknowledgement."""
        self.latencies = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.send(20)
            self.poll(0.02)
        self.flush()
        return sorted(self.latencies)[len(self.latencies) * 95 // 100]


@dataclass
class Faulted:
    service: ServeProcess
    proxy: FaultyS3
    bucket: StoreSettings
    """Past the proxy."""

    def snapshot(self, topic: str) -> Snapshot:
        async def newest() -> Snapshot | None:
            store = open_store(self.bucket)
            [found] = await find_topics(store, topic)
            return await load_newest(store, found.layouts[0])

        snapshot = asyncio.run(newest())
        assert snapshot is not None
        return snapshot

    def findings(self, topic: str) -> list[Finding]:
        async def look() -> list[Finding]:
            store = open_store(self.bucket)
            events = [event async for event in verify(store, await find_topics(store, topic))]
            return [event for event in events if isinstance(event, Finding) and event.kind != "orphan"]

        return asyncio.run(look())

    def read_some(self, topic: str, below: int) -> int:
        """By both protocols, at places that only the bucket has; how many records came. Each is the right one."""
        consumer = Consumer({"bootstrap.servers": self.service.kafka, "group.id": "some", "log_level": 0})
        consumer.assign([TopicPartition(topic, 0, 0)])
        got = [message for message in consumer.consume(200, 0.5) if message.error() is None]
        consumer.close()
        assert [message.offset() for message in got] == list(range(len(got)))
        assert [check_value(message.value()) for message in got] == list(range(len(got)))
        offset = below * 2 // 3
        url = f"{self.service.url}/api/v1/topics/{topic}/partitions/0/messages?offset={offset}&limit=10"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                page = json.load(answer)["messages"]
        except urllib.error.HTTPError as error:
            assert error.code == 503, error.read()
            return len(got)
        values = [check_value(base64.b64decode(message["value"])) for message in page]
        assert values == list(range(offset, offset + len(page)))
        return len(got) + len(page)


@pytest.fixture(scope="module")
def faulted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulted]:
    folder = tmp_path_factory.mktemp("faults")
    with (
        pytest.MonkeyPatch.context() as environment,
        weed(folder / "weed") as server,
        faulty(server.endpoint) as proxy,
        services(folder) as make,
    ):
        for name, value in credentials().items():
            environment.setenv(name, value)
        bucket = f"s3://{server.new_bucket()}/prefix"
        service = make(
            *SOON,
            *("--set", "store.deadline_ms=1000", "--set", "store.attempt_ms=400"),
            # Nothing read before is there to be read again.
            *("--set", "cache.disk_bytes=0", "--set", "cache.memory_bytes=1"),
            *("--bucket", bucket, "--s3-endpoint", proxy.endpoint),
        )
        yield Faulted(service, proxy, StoreSettings(bucket=bucket, s3_endpoint=server.endpoint))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_store_fails(fault: str, faulted: Faulted) -> None:
    service, proxy = faulted.service, faulted.proxy
    name = f"{fault}-{uuid.uuid4().hex[:6]}"  # another one when the test is tried again
    create_topic(service, name)
    sender = TimedSender(service, name)
    sender.send(4 * PER_SEGMENT)
    sender.flush()
    wait_until(lambda: local_start(service, name) > PER_SEGMENT, f"records in the bucket only\n{service.output()}")
    assert faulted.read_some(name, PER_SEGMENT) > 0
    quiet = sender.run(0.5)

    proxy.faults, proxy.met = (FAULTS[fault],), 0
    below = local_start(service, name)
    try:
        until = time.monotonic() + FAULT_S
        times = []
        while time.monotonic() < until:
            times.append(sender.run(0.3))
            faulted.read_some(name, below)
            dropped = local_start(service, name)
            assert dropped <= faulted.snapshot(name).end_offset, "dropped locally, and not in the bucket"
        assert proxy.met > 0
    finally:
        proxy.faults = ()
    assert sender.failed == 0
    # The median of the stretches: the machine has other things to do now and then.
    faulty_s = statistics.median(times)
    assert faulty_s < max(4 * quiet, 0.25), f"producers waited {faulty_s:.3f} s, before {quiet:.3f} s"

    wait_until(
        lambda: faulted.snapshot(name).end_offset > sender.sent - PER_SEGMENT,
        f"the backlog drains\n{service.output()}",
    )
    expected = [sender.acked[offset] for offset in range(sender.sent)]
    assert expected == list(range(sender.sent)), "every record once, in order"
    assert read_all(service, name, sender.sent) == expected
    assert faulted.findings(name) == []
    assert not re.search(rf"{name}.*(another writer|no longer has|deposed)", service.output(1000))
