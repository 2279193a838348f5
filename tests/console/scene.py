"""A broker with something to see: topics in both tiers, groups that lag, records set aside, producers at work."""

import base64
import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from hot_tier.clock import wall_ms
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.demo.orders import DAY_MS, orders
from tierlog.process import ServeProcess

FLAGS = ("--set", "archive.check_ms=200", "--set", "http.redelivery_after_ms=0")
ARCHIVED = {"remote.storage.enable": "true", "segment.bytes": "131072", "retention.ms": str(400 * DAY_MS)}
HISTORY = 24_000
BATCH = 2_000


def fill(service: ServeProcess) -> None:
    with Client(service.url) as client:
        _topics(client)
        _orders(client)
        _groups(client)
        _dead_letters(client)
        wait_until(lambda: _archived(client), "sealed segments are in the bucket", deadline_s=60)
        client.patch(path("topics", "orders"), {"config": {"local.retention.ms": str(2 * DAY_MS)}})


def _topics(client: Client) -> None:
    client.post(path("topics"), {"name": "orders", "partitions": 4, "config": ARCHIVED})
    client.post(path("topics"), {"name": "payments", "partitions": 3, "config": {"remote.storage.enable": "true"}})
    client.post(path("topics"), {"name": "customers", "partitions": 2, "config": {"cleanup.policy": "compact"}})
    for name in ("clicks.web", "clicks.app", "inventory", "shipments", "mail-sent"):
        client.post(path("topics"), {"name": name, "partitions": 2})


def _orders(client: Client) -> None:
    batch: list[dict[str, object]] = []
    for order in orders(HISTORY, wall_ms()):
        headers = [{"key": "trace", "value": f"{order.number:08x}"}, {"key": "source", "value": "shop"}]
        document = {"key": order.key, "value": order.value.decode(), "timestamp": order.timestamp, "headers": headers}
        batch.append(document)
        if len(batch) == BATCH:
            client.post(path("topics", "orders", "messages", "batch"), {"messages": batch})
            batch = []
    customers = [
        {"key": f"customer-{number:03}", "value": json.dumps({"name": f"Customer {number}", "tier": number % 3})}
        for number in range(200)
    ]
    client.post(path("topics", "customers", "messages", "batch"), {"messages": customers})
    picture = base64.b64encode(bytes(range(256))).decode()
    odd = [
        {"key": "a tombstone", "value": None},
        {"value": "just a line of text, without a key"},
        {"key": "bytes", "value": picture, "value_encoding": "base64"},
        {"key": "<script>alert(1)</script>", "value": "<img src=x onerror=alert(1)>"},
    ]
    client.post(path("topics", "inventory", "messages", "batch"), {"messages": odd})


def _groups(client: Client) -> None:
    for partition in client.get(path("topics", "orders"))["partitions"]:
        end = partition["high_watermark"]
        for group, behind in (("billing", 120), ("search-index", end // 2), ("fraud-check", 0)):
            committed = {"topic": "orders", "partition": partition["partition"], "offset": max(0, end - behind)}
            client.post(path("consumer-groups", group, "offsets"), committed)


def _dead_letters(client: Client) -> None:
    for offset in range(6):
        letter = {"topic": "orders", "partition": 0, "offset": offset, "reason": "the customer is not known"}
        client.post(path("consumer-groups", "billing", "dead-letters"), letter)
    failing = {"topic": "orders", "partition": 1, "offset": 40, "reason": "time-out at the bank", "max_deliveries": 5}
    client.post(path("consumer-groups", "billing", "failures"), failing)


def _archived(client: Client) -> bool:
    partitions = client.get(path("topics", "orders", "archive"), limit=0)["partitions"]
    return all(each["archived"] and not each["backlog_bytes"] for each in partitions)


@contextmanager
def traffic(service: ServeProcess) -> Iterator[None]:
    """Producers and a reader at work: some records a second in three topics, until the end of the block."""
    stop = threading.Event()

    def produce() -> None:
        with Client(service.url) as client:
            for turn in count():
                if stop.wait(0.25):
                    return
                tide = 1 + 0.5 * math.sin(turn / 60)
                for name, size in (("orders", 12), ("payments", 5), ("clicks.web", 30)):
                    messages = _live(turn, round(size * tide))
                    client.post(path("topics", name, "messages", "batch"), {"messages": messages})
                payments = path("topics", "payments", "partitions", turn % 3, "messages")
                client.get(payments, offset="earliest", limit=round(25 * tide))

    thread = threading.Thread(target=produce, name="traffic")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _live(turn: int, size: int) -> list[dict[str, object]]:
    return [
        {"key": f"customer-{(turn * 7 + number) % 500:03}", "value": order.value.decode()}
        for number, order in enumerate(orders(size, wall_ms(), first=1_000_000 + turn * 100))
    ]


def wait_for_figures(service: ServeProcess) -> None:
    """Until the broker has measured itself twice: then there are rates."""
    with Client(service.url) as client:
        began = time.time() * 1000

        def measured() -> bool:
            [broker] = client.get(path("cluster", "figures"))["brokers"]
            return bool(broker["at_ms"] > began + 10_000 and broker["in_bytes_per_s"])

        wait_until(measured, "the broker has measured itself", deadline_s=60)
