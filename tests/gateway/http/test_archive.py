"""The archive over HTTP: both tiers described, verification as it goes, garbage, restore, figures."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from hot_tier.record.batch import read_header
from hot_tier.record.columns import NewRecord, encode_records
from hot_tier.record.control import Marker, MarkerKind
from tests.gateway.http.conftest import Serve, Served

ARCHIVED = {"segment.bytes": 2000, "remote.storage.enable": True, "local.retention.ms": 1, "retention.ms": -1}
OLD = 1_700_000_000_000


async def make_archived(served: Served, topic: str = "orders", count: int = 60) -> dict[str, Any]:
    """A topic whose sealed segments are in the bucket and nowhere else; how its partition is then."""
    made = await served.post("/api/v1/topics", json={"name": topic, "partitions": 1, "config": ARCHIVED})
    assert made.status == 201, made
    for first in range(0, count, 5):
        messages = [
            {"key": f"k{n}", "value": f"value {n} " * 20, "timestamp": OLD + n} for n in range(first, first + 5)
        ]
        stored = await served.post(f"/api/v1/topics/{topic}/messages/batch", json={"messages": messages})
        assert stored.status == 200, stored
    return await until_archived(served, topic)


async def until_archived(served: Served, topic: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        served._broker.offloader.wake()
        [partition] = (await served.get(f"/api/v1/topics/{topic}/archive")).json["partitions"]
        archived, local = partition["archived"], partition["local"]
        seam = archived and archived["segments"] and local["start_offset"] == archived["end_offset"]
        if seam and partition["backlog_bytes"] == 0:
            return partition
        assert time.monotonic() < deadline, partition
        await asyncio.sleep(0.1)


def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


async def test_both_tiers_of_a_topic(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    partition = await make_archived(served)
    archived = partition["archived"]
    assert partition["enabled"] and partition["backlog_bytes"] == 0 and partition["overlap"] == 0
    assert (archived["start_offset"], archived["rows"]) == (0, archived["end_offset"])
    assert (archived["min_timestamp"], archived["max_timestamp"]) == (OLD, OLD + archived["end_offset"] - 1)
    assert partition["local"]["end_offset"] == 60
    assert len(partition["segments"]) == archived["segments"] > 3
    for segment in partition["segments"]:
        rows = bucket(tmp_path) / segment["rows_object"]
        assert rows.stat().st_size == segment["rows_bytes"]
        assert (bucket(tmp_path) / segment["index_object"]).stat().st_size == segment["index_bytes"]
    document = (await served.get("/api/v1/topics/orders/archive?limit=0")).json
    assert document["bucket"] == f"file://{bucket(tmp_path)}/"
    assert document["partitions"][0]["segments"] == []
    messages = await served.messages("orders", limit=60)
    assert [each["offset"] for each in messages["messages"]] == list(range(60))


async def test_an_open_transaction_holds_the_archive_and_is_named(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    await make_archived(served)
    partition = served._broker.node.partitions.get("orders", 0)

    async def write(number: int) -> None:
        records = [NewRecord(OLD, b"k", b"value" * 100) for _ in range(5)]
        batch = encode_records(records, producer_id=4, producer_epoch=0, base_sequence=5 * number, transactional=True)
        header = read_header(batch)
        verification = partition.begin_verification(header, "bank-1")
        appended = partition.append(batch, header, OLD, verification=verification)
        waiting = partition.when_committed(appended.end_offset)
        if waiting is not None:
            await waiting

    async def held_by() -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while True:
            served._broker.offloader.wake()
            [found] = (await served.get("/api/v1/topics/orders/archive")).json["partitions"]
            if found["held_by"] is not None:
                return found["held_by"]
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)

    opened = partition.log.log_end_offset
    for number in range(3):
        await write(number)
    held = await held_by()
    assert (held["transactional_id"], held["producer_id"], held["first_offset"]) == ("bank-1", 4, opened)
    assert held["since_ms"] == OLD and "tierlog txn abort bank-1" in held["hint"] and "'bank-1'" in held["what"]
    metric = 'tierlog_archive_held_by_transaction_seconds{partition="0",topic="orders"}'

    async def waits_s() -> float:
        lines = (await served.get("/metrics")).body.decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(metric))

    assert await waits_s() > 0
    partition.append_marker(4, 0, Marker(MarkerKind.ABORT, 1), OLD, transaction_version=1)
    after = await until_archived(served, "orders")
    assert after["held_by"] is None and await waits_s() == 0
    assert after["archived"]["aside_bytes"] > 0
    aside = [each for each in after["segments"] if each["aside_object"]]
    assert aside and all(each["base_offset"] + each["rows"] < each["end_offset"] for each in aside)
    for each in aside:
        assert (bucket(tmp_path) / each["aside_object"]).stat().st_size == each["aside_bytes"]


async def test_segments_come_page_by_page(serve: Serve) -> None:
    served = await serve()
    whole = (await make_archived(served))["segments"]
    found: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        reply = await served.get(f"/api/v1/topics/orders/archive?partition=0&limit=2&offset={offset}")
        [partition] = reply.json["partitions"]
        assert len(partition["segments"]) <= 2
        found += partition["segments"]
        offset = partition["next_offset"]
    assert found == whole
    inside = whole[1]["base_offset"] + 1
    [partition] = (await served.get(f"/api/v1/topics/orders/archive?offset={inside}&limit=1")).json["partitions"]
    assert partition["segments"] == [whole[1]]


async def test_what_is_not_archived_says_so(serve: Serve) -> None:
    served = await serve()
    await served.make_topic("plain")
    [partition] = (await served.get("/api/v1/topics/plain/archive")).json["partitions"]
    assert not partition["enabled"] and partition["archived"] is None and partition["segments"] == []
    assert (await served.get("/api/v1/topics/absent/archive")).problem == "unknown-topic"
    assert (await served.get("/api/v1/topics/plain/archive?partition=1")).problem == "unknown-partition"
    assert (await served.get("/api/v1/topics/plain/archive?limit=10001")).problem == "bad-parameter"


async def verified(served: Served, **document: Any) -> list[dict[str, Any]]:
    reply = await served.post("/api/v1/archive/verify", json=document)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/x-ndjson"), reply
    return [orjson.loads(line) for line in reply.body.splitlines()]


async def test_verification_ends_with_a_summary(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    partition = await make_archived(served)
    planned, *_, summary = await verified(served)
    count = partition["archived"]["segments"]
    assert planned == {"type": "planned", "topic": "orders", "partition": 0, "segments": count}
    assert (summary["segments"], summary["problems"], summary["orphans"]) == (count, 0, 0)
    assert summary["bytes"] == partition["archived"]["rows_bytes"] + partition["archived"]["index_bytes"]
    gone = bucket(tmp_path) / partition["segments"][0]["rows_object"]
    gone.unlink()
    lines = await verified(served, topics=["orders"])
    [finding] = [line for line in lines if line["type"] == "finding"]
    assert (finding["kind"], finding["problem"]) == ("missing", True)
    assert finding["where"].endswith(gone.name)
    assert lines[-1]["problems"] == 1
    assert (await served.post("/api/v1/archive/verify", json={"topics": ["absent"]})).problem == "unknown-topic"
    assert (await served.post("/api/v1/archive/verify", json={"topic": "orders"})).problem == "bad-document"


async def test_a_damaged_object_is_answered_with_503_and_named_in_the_log(
    serve: Serve, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    served = await serve()
    partition = await make_archived(served)
    victim = bucket(tmp_path) / partition["segments"][1]["rows_object"]
    data = bytearray(victim.read_bytes())
    data[20] ^= 1  # In its rows: small as it is, most of it is the footer, which reads take from the index.
    victim.write_bytes(data)
    offset = partition["segments"][1]["base_offset"]
    reply = await served.get(f"/api/v1/topics/orders/partitions/0/messages?offset={offset}")
    assert (reply.status, reply.problem) == (503, "corrupt-archive")
    assert victim.name in reply.json["detail"]
    captured = capfd.readouterr()
    assert victim.name in captured.out + captured.err
    before = await served.messages("orders", offset=0, limit=60)
    assert before["next_offset"] == offset, "what lies before the damage is good"


async def test_garbage_past_its_age_goes(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    await make_archived(served)
    folder = bucket(tmp_path) / "topic=orders" / "partition=0"
    old, young = (folder / f"00000000000000000005-0-{digit * 32}.parquet" for digit in "ab")
    for path in (old, young):
        path.write_bytes(b"left over")
    os.utime(old, (0, 0))
    collected = (await served.post("/api/v1/archive/gc")).json
    assert collected == {"removed": 0, "orphans": 1, "of_deleted_topics": 0, "failed": []}
    assert young.exists() and not old.exists()


async def test_a_proposal_is_answered_at_once(serve: Serve, tmp_path: Path) -> None:
    served = await serve()
    await make_archived(served)
    [index] = {path.parent for path in (bucket(tmp_path) / "_tierlog").rglob("*.index")}
    placed = index.parent / "proposals" / f"{'a' * 32}.proposal"
    placed.parent.mkdir(exist_ok=True)
    placed.write_bytes(b"no proposal at all")
    [answered] = (await served.post("/api/v1/topics/orders/partitions/0/archive/proposals")).json["proposals"]
    assert (answered["partition"], answered["name"], answered["outcome"]) == (0, "a" * 32, "refused")
    assert "damaged" in answered["reason"] and not placed.exists()
    assert (await served.post("/api/v1/topics/orders/partitions/7/archive/proposals")).status == 404


async def test_a_deleted_topic_is_restored(serve: Serve) -> None:
    served = await serve()
    partition = await make_archived(served)
    end = partition["archived"]["end_offset"]
    before = (await served.messages("orders", limit=60))["messages"][:end]
    described = (await served.get("/api/v1/topics/orders")).json
    refused = await served.post("/api/v1/archive/restore", json={"topics": ["orders"]})
    assert (refused.status, refused.problem) == (409, "topic-exists")
    assert (await served.call("DELETE", "/api/v1/topics/orders")).status == 204
    reply = await served.post("/api/v1/archive/restore", json={"topics": ["orders"], "config": {"flush": "os"}})
    assert reply.status == 200, reply
    [topic] = reply.json["topics"]
    assert (topic["id"], topic["restored"], topic["failure"]) == (described["id"], True, "")
    assert topic["config"]["flush"] == "os" and topic["config"]["segment.bytes"] == "2000"
    epoch = described["partitions"][0]["leader_epoch"]
    assert topic["partitions"][0]["leader_epoch"] > epoch
    deadline = time.monotonic() + 30
    while (reply := await served.get("/api/v1/topics/orders/partitions/0/messages?limit=60")).status == 503:
        assert reply.problem == "archive-not-loaded" and time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert reply.json["messages"] == before
    stored = await served.post("/api/v1/topics/orders/messages", data=b"goes on")
    assert stored.json["offset"] == end
    assert (await served.post("/api/v1/archive/restore", json={"topics": ["absent"]})).problem == "unknown-topic"
    assert (await served.post("/api/v1/archive/restore", json={"config": {"x": 1}})).problem == "bad-document"


async def test_figures_of_the_archive(serve: Serve) -> None:
    served = await serve()
    partition = await make_archived(served)
    await served.messages("orders", limit=60)
    text = (await served.get("/metrics")).body.decode()
    figures = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if not line.startswith("#")
    }
    labels = '{partition="0",topic="orders"}'
    archived = partition["archived"]
    assert figures[f"tierlog_archive_segments_total{labels}"] == archived["segments"]
    assert figures[f"tierlog_archive_bytes_total{labels}"] == archived["log_bytes"]
    assert figures[f"tierlog_archive_end_offset{labels}"] == archived["end_offset"]
    assert figures[f"tierlog_archive_backlog_bytes{labels}"] == 0
    assert figures[f"tierlog_archive_failures_total{labels}"] == 0
    assert 0 <= figures[f"tierlog_archive_last_success_age_seconds{labels}"] < 60
    # Rows, index and manifest of each segment; the first two are the worker's.
    assert figures['tierlog_store_requests_total{kind="put"}'] >= 3 * archived["segments"]
    assert figures['tierlog_store_requests_total{kind="list"}'] > 0
    assert figures['tierlog_cold_reads_total{result="miss"}'] > 0
    assert figures["tierlog_store_out_bytes_total"] > archived["rows_bytes"]
