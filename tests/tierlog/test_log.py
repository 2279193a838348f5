"""What a broker tells of itself on standard error, and the signal that a closed terminal sends it."""

import json
import os
import signal
from pathlib import Path

from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.client import Client, path


def test_a_life_is_told_and_a_closed_terminal_does_not_end_it(tmp_path: Path) -> None:
    with services(tmp_path) as make:
        service = make("--broker.log_format", "json")
        with Client(service.url) as client:
            client.post(path("topics"), {"name": "orders", "partitions": 3})
            os.kill(service.pid, signal.SIGHUP)
            wait_until(lambda: "SIGHUP" in service.output(), "the signal is told")
            client.delete(path("topics", "orders"))
        service.stop()
        lines = [json.loads(line) for line in service.output(1000).splitlines()]
    # Warnings are of a busy machine.
    events = [event for event in lines if event["level"] == "info"]
    said = [event["event"] for event in events]
    assert [each for each in said if "SIGHUP" not in each] == [
        "starting",
        "the bucket works",
        "serving",
        "topic created",
        "topic deleted",
        "stopping",
        "stopped",
    ]
    created = events[said.index("topic created")]
    assert created["topic"] == "orders"
    assert created["partitions"] == 3
    assert created["timestamp"].endswith("Z")
