"""HTTP producers while the leader is killed: what was answered 200 is there once, at its offset; what was refused
before anything was sent on is not there; only `outcome-unknown` may be either.

    posts ──▶ brokers 1, 2, 3 ──▶ leader ✗ kill -9 ──▶ the next leader
"""

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.brokers import Brokers, cluster
from tests.support.waiting import wait_until

TOPIC = "orders"


def ask(url: str, data: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status 0: the connection broke, and the one who asked knows nothing."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)
    except OSError:
        return 0, None


class Poster(threading.Thread):
    """Posts one message after the other through one broker, as long as that one lives."""

    def __init__(self, brokers: Brokers, node: int) -> None:
        super().__init__(name=f"poster {node}")
        self._url = f"{brokers[node].url}/api/v1/topics/{TOPIC}/messages"
        self._node = node
        self.stored: dict[int, str] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.last_stored = 0.0
        self.longest_gap = 0.0
        self.ending = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ending.is_set():
            value = f"{self._node}-{number}"
            number += 1
            status, told = ask(self._url, value.encode())
            if status == 200:
                now = time.monotonic()
                if self.last_stored:
                    self.longest_gap = max(self.longest_gap, now - self.last_stored)
                self.last_stored = now
                self.stored[told["offset"]] = value
            elif status == 503 and told["type"].rpartition(":")[2] in ("no-leader", "not-leader", "broker-unreachable"):
                self.refused.add(value)
                time.sleep(0.01)
            else:
                assert status in (0, 503), (status, told)
                self.unknown.add(value)
                time.sleep(0.01)


def read_all(url: str) -> dict[int, str]:
    found: dict[int, str] = {}
    at: Any = "earliest"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        status, page = ask(f"{url}/api/v1/topics/{TOPIC}/partitions/0/messages?offset={at}&limit=10000")
        if status != 200:
            time.sleep(0.05)
            continue
        if not page["messages"]:
            return found
        found |= {each["offset"]: base64.b64decode(each["value"]).decode() for each in page["messages"]}
        at = page["next_offset"]
    raise AssertionError("not readable again")


def test_a_killed_leader(tmp_path: Path) -> None:
    with cluster(tmp_path) as brokers:
        document = {"name": TOPIC, "partitions": 1, "replication_factor": 3, "config": {"min.insync.replicas": "2"}}
        status, made = ask(
            f"{brokers[1].url}/api/v1/topics", json.dumps(document).encode(), **{"Content-Type": "application/json"}
        )
        assert status == 201, made
        posters = [Poster(brokers, node) for node in brokers.by_node]
        for poster in posters:
            poster.start()
        try:
            wait_until(lambda: all(len(poster.stored) > 50 for poster in posters), "all to have posted")
            leader = made["partitions"][0]["leader"]
            brokers[leader].kill()
            living = [poster for poster in posters if poster._node != leader]
            before = {poster: len(poster.stored) for poster in living}
            wait_until(lambda: all(len(poster.stored) > before[poster] + 50 for poster in living), "them to post again")
        finally:
            for poster in posters:
                poster.ending.set()
            for poster in posters:
                poster.join(60)
        found = read_all(brokers[living[0]._node].url)
        print(f"gap {max(poster.longest_gap for poster in living):.2f} s, {len(found)} stored")
    times = Counter(found.values())
    for poster in posters:
        for offset, value in poster.stored.items():
            assert found.get(offset) == value and times[value] == 1, f"{value} was stored at {offset}"
        assert not [value for value in poster.refused if times[value]], "refused, and yet there"
        assert all(times[value] <= 1 for value in poster.unknown)
