"""kill -9 of the leader at a step of the archive path: the broker that leads next goes on, without a gap and without a
row twice, and every replica still gives every record.

    one leads, dies at its step ─▶ another leads, dies at its step, the first is back ─▶ the third leads, dies …

One that is back in sync could lead again, and never die: it is started only when the next has died.
"""

import asyncio
import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.integration.test_archive_kill import findings
from tests.integration.tiers import SOON, TIERED, Sender, archived_rows, read_with_http
from tests.support.brokers import Brokers, partitions
from tests.support.etcd import etcd
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess

ROUTES = [
    ("archive.rows_uploaded", "archive.before_publish", "archive.published"),
    pytest.param(("archive.recorded", "retention.local_dropped", "archive.verified"), marks=pytest.mark.slow),
]

STAYS = ("--set", "cluster.leader_rebalance_interval_ms=0")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("steps", ROUTES)
def test_every_leader_dies_at_its_step(tmp_path: Path, steps: tuple[str, str, str]) -> None:
    with ExitStack() as stack:
        brokers = Brokers(tmp_path, stack.enter_context(etcd()), stack, {})
        for node, step in enumerate(steps, 1):
            brokers.add(node, *SOON, *STAYS).environment["TIERLOG_FAILPOINTS"] = f"{step}=kill@2"
        with ThreadPoolExecutor() as starting:
            list(starting.map(ServeProcess.start, brokers.by_node.values()))
        create(brokers[1])
        sender = Sender(SimpleNamespace(kafka=brokers.bootstrap), "orders")
        dead: list[int] = []

        def start_again(node: int) -> None:
            del brokers[node].environment["TIERLOG_FAILPOINTS"]
            brokers[node].start()

        def one_more_died() -> bool:
            sender.send(100)
            sender.poll(0.05)
            for node, service in brokers.by_node.items():
                if node not in dead and service.process is not None and service.process.poll() is not None:
                    assert service.process.returncode == -9, service.output()
                    service.kill()
                    for before in dead[-1:]:
                        start_again(before)
                    dead.append(node)
                    return True
            return False

        for _ in steps:
            wait_until(one_more_died, f"the next leader dies; so far {dead}", 120)
        start_again(dead[-1])
        sender.send(500)
        sender.flush()
        assert sorted(sender.acked.values()) == list(range(sender.sent)), "every record acknowledged, each once"
        bucket, newest = f"file://{tmp_path}/bucket", max(sender.acked)
        wait_until(
            lambda: max((offset for offset, _ in archived_rows(bucket, "orders")), default=0) > newest - 800,
            "the backlog drains",
            120,
        )
        rows = archived_rows(bucket, "orders")
        assert [offset for offset, _ in rows] == list(range(len(rows))), "no gap and no row twice"
        assert all(sender.acked[offset] == number for offset, number in rows)
        expected = [sender.acked[offset] for offset in range(sender.sent)]
        wait_until(lambda: len(partitions(brokers, "orders")[0]["isr"]) == 3, "all are in sync again", 60)
        for service in brokers.by_node.values():
            assert read_with_http(service, "orders", sender.sent) == expected
            service.stop()
        assert asyncio.run(findings(bucket)) == []


def create(service: ServeProcess) -> None:
    config = {**TIERED, "min.insync.replicas": "2"}
    document = {"name": "orders", "partitions": 1, "replication_factor": 3, "config": config}
    request = urllib.request.Request(
        f"{service.url}/api/v1/topics", json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30):
        pass
