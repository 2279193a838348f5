"""HTTP transactions and keyed posts in a cluster, through any broker, while brokers are killed.

service ──▶ any broker ──▶ coordinator of the id: session ──▶ leaders, coordinator of the group
"""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import Brokers, cluster, make_topic, partitions

TOPIC, PARTITIONS = "bills", 6


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    with cluster(directory) as found:
        for topic in (TOPIC, "ledger", "journal"):
            make_topic(found, topic, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"})
        for topic in ("orders", "keyed"):
            make_topic(found, topic, partitions=1, replication_factor=3, config={"min.insync.replicas": "2"})
        yield found


@pytest.fixture(autouse=True)
def restarted(brokers: Brokers) -> Iterator[None]:
    """Each test begins with all brokers."""
    yield
    for process in brokers.by_node.values():
        if process.process is None:
            process.start()


def ask(url: str, document: Any = None, raw: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status 0: the connection broke, and the one who asked knows nothing."""
    data = raw if document is None else json.dumps(document).encode()
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    if document is not None:
        sent["Content-Type"] = "application/json"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, sent), timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)
    except OSError:
        return 0, None


def settled(
    brokers: Brokers, node: int, path: str, document: Any = None, raw: bytes | None = None, **headers: str
) -> Any:
    """Asks again through one broker, as the hints of 503 say, until there is an answer."""
    deadline = time.monotonic() + 60
    while True:
        status, told = ask(f"{brokers[node].url}{path}", document, raw, **headers)
        if status not in (0, 503) or time.monotonic() > deadline:
            assert status == 200, (status, told)
            return told
        time.sleep(0.05)


def committed(brokers: Brokers, node: int, topic: str = TOPIC, count: int = PARTITIONS) -> list[str]:
    found: list[str] = []
    for number in range(count):
        page = settled(brokers, node, f"/api/v1/topics/{topic}/partitions/{number}/messages?offset=earliest&limit=1000")
        found += [base64.b64decode(each["value"]).decode() for each in page["messages"]]
    return sorted(found)


def await_committed(
    brokers: Brokers, node: int, expected: list[str], topic: str = TOPIC, count: int = PARTITIONS
) -> None:
    """The markers are written after the answer."""
    deadline = time.monotonic() + 60
    while (found := committed(brokers, node, topic, count)) != sorted(expected) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found == sorted(expected)


def everywhere(tag: str) -> dict[str, Any]:
    return {"messages": [{"value": f"{tag}-{number}", "partition": number} for number in range(PARTITIONS)]}


def test_through_any_broker_to_all_leaders(brokers: Brokers) -> None:
    expected = []
    for node in (1, 2, 3):
        path = f"/api/v1/transactions/copier-{node}"
        begun = settled(brokers, node, f"{path}/begin", {})
        name = {"X_Transaction": begun["transaction"]}
        others = [each for each in (1, 2, 3) if each != node]
        for at, each in enumerate(others):
            tag = f"{node}-{at}"
            settled(brokers, each, f"{path}/topics/{TOPIC}/messages", everywhere(tag), **name, Idempotency_Key=tag)
            settled(brokers, node, f"{path}/topics/{TOPIC}/messages", everywhere(tag), **name, Idempotency_Key=tag)
            expected += [f"{tag}-{number}" for number in range(PARTITIONS)]
        offsets = {"group": f"billing-{node}", "offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
        settled(brokers, others[0], f"{path}/offsets", offsets, **name)
        settled(brokers, others[1], f"{path}/commit", raw=b"", **name)
        settled(brokers, node, f"{path}/commit", raw=b"", **name)
    await_committed(brokers, 1, expected)
    for node in (1, 2, 3):
        deadline = time.monotonic() + 60
        while True:
            (offset,) = settled(brokers, node, f"/api/v1/consumer-groups/billing-{node}/offsets")["offsets"]
            if not offset["pending"] or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert (offset["offset"], offset["pending"]) == (0, False)
    listed = settled(brokers, 2, "/api/v1/transactions")["transactions"]
    assert [each["transactional_id"] for each in listed] == ["copier-1", "copier-2", "copier-3"]


def test_a_leader_dies_in_the_middle_and_the_transaction_goes_on(brokers: Brokers) -> None:
    path = "/api/v1/transactions/ledger-1"
    begun = settled(brokers, 1, f"{path}/begin", {"timeout_ms": 120_000})
    name = {"X_Transaction": begun["transaction"]}
    session = settled(brokers, 1, path)["coordinator"]
    settled(brokers, session, f"{path}/topics/ledger/messages", everywhere("a"), **name)
    victim = next(node for node in (1, 2, 3) if node != session)
    brokers[victim].kill()
    settled(brokers, session, f"{path}/topics/ledger/messages", everywhere("b"), **name, Idempotency_Key="b")
    settled(brokers, session, f"{path}/commit", raw=b"", **name)
    await_committed(brokers, session, [f"{tag}-{number}" for tag in "ab" for number in range(PARTITIONS)], "ledger")


def test_the_broker_with_the_session_dies_and_the_service_begins_again(brokers: Brokers) -> None:
    path = "/api/v1/transactions/journal-1"
    begun = settled(brokers, 1, f"{path}/begin", {})
    name = {"X_Transaction": begun["transaction"]}
    session = settled(brokers, 1, path)["coordinator"]
    settled(brokers, session, f"{path}/topics/journal/messages", everywhere("lost"), **name)
    other = next(node for node in (1, 2, 3) if node != session)
    brokers[session].kill()
    deadline = time.monotonic() + 60
    while (answer := ask(f"{brokers[other].url}{path}/commit", raw=b"", **name))[0] in (0, 503):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (answer[0], answer[1]["type"].rpartition(":")[2]) == (409, "transaction-lost")
    begun = settled(brokers, other, f"{path}/begin", {})
    name = {"X_Transaction": begun["transaction"]}
    settled(brokers, other, f"{path}/topics/journal/messages", everywhere("kept"), **name)
    settled(brokers, other, f"{path}/commit", raw=b"", **name)
    await_committed(brokers, other, [f"kept-{number}" for number in range(PARTITIONS)], "journal")


def test_a_keyed_post_is_known_to_the_next_leader(brokers: Brokers) -> None:
    path = "/api/v1/topics/keyed/messages"
    leader = partitions(brokers, "keyed")[0]["leader"]
    others = [each for each in (1, 2, 3) if each != leader]
    first = settled(brokers, others[0], path, raw=b"v", Idempotency_Key="k")
    assert settled(brokers, leader, path, raw=b"v", Idempotency_Key="k")["offset"] == first["offset"]
    brokers[leader].kill()
    again = settled(brokers, others[1], path, raw=b"v", Idempotency_Key="k")
    assert (again["partition"], again["offset"]) == (first["partition"], first["offset"])
    assert committed(brokers, others[0], "keyed", 1) == ["v"]
