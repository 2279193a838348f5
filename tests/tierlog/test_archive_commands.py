"""`tierlog archive`, `replay` and `cost` as a shell sees them: against real nodes, a directory and a real S3 server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Ran, tierlog
from tests.support.s3 import S3Server, credentials, weed
from tests.support.service import MakeService, services
from tests.support.waiting import wait_until
from tierlog.cli import archive
from tierlog.client import Client, path
from tierlog.process import ServeProcess

QUICK = ("--set", "archive.check_ms=100")
ARCHIVED = {
    "segment.bytes": "4000",
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}


def make_topic(service: ServeProcess, name: str, partitions: int = 2, **config: str) -> str:
    with Client(service.url) as client:
        settings = {**ARCHIVED, **{key.replace("_", "."): value for key, value in config.items()}}
        made: str = client.post(path("topics"), {"name": name, "partitions": partitions, "config": settings})["id"]
    return made


def message(number: int) -> dict[str, Any]:
    return {
        "key": f"key-{number}",
        "value": f"value-{number} " * 20,
        "headers": [{"key": "n", "value": str(number)}, {"key": "n", "value": "again"}],
        "timestamp": 1_700_000_000_000 + number * 1000,
        "partition": number % 2,
    }


def fill(service: ServeProcess, topic: str, count: int = 200, first: int = 0) -> None:
    """Small batches, so that there are many segments."""
    with Client(service.url) as client:
        for at in range(first, first + count, 10):
            batch = [message(number) for number in range(at, at + 10)]
            client.post(path("topics", topic, "messages", "batch"), {"messages": batch})


def until_archived(service: ServeProcess, topic: str, deadline_s: float = 60) -> list[dict[str, Any]]:
    """Nothing waits to be archived, and what is archived is no longer local; how the partitions are then."""
    deadline = time.monotonic() + deadline_s
    with Client(service.url) as client:
        while True:
            partitions: list[dict[str, Any]] = client.get(path("topics", topic, "archive"))["partitions"]
            if all(
                each["archived"]
                and each["archived"]["segments"]
                and each["backlog_bytes"] == 0
                and each["local"]["start_offset"] == each["archived"]["end_offset"]
                for each in partitions
            ):
                return partitions
            assert time.monotonic() < deadline, json.dumps(partitions)
            time.sleep(0.1)


def consumed(service: ServeProcess, topic: str) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for line in tierlog("consume", topic, "--json", server=service.url).lines:
        record = json.loads(line)
        found.setdefault(record["partition"], []).append(record)
    return found


def content(record: dict[str, Any]) -> tuple[Any, ...]:
    return (record["key"], record["value"], record["timestamp"], [(h["key"], h["value"]) for h in record["headers"]])


# On a real S3 server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.mark.timeout(300)
def test_a_node_is_lost_and_its_topics_come_back_from_s3(
    s3: S3Server, make_service: MakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    bucket = ("--bucket", f"s3://{s3.new_bucket()}/some/prefix", "--s3-endpoint", s3.endpoint)
    service = make_service(*QUICK, *bucket, **credentials())
    topic_id = make_topic(service, "orders")
    fill(service, "orders")
    partitions = until_archived(service, "orders")
    ends = [each["archived"]["end_offset"] for each in partitions]

    through_node = tierlog("archive", "status", "orders", "--json", server=service.url).json
    alone = tierlog("archive", "status", *bucket, "--json").json
    assert [each["archived"] for each in alone] == [each["archived"] for each in through_node]
    assert [each["local"] for each in alone] == [None, None]
    assert [each["overlap"] for each in through_node] == [0, 0]
    for where in (("--server", service.url), bucket):
        verified = tierlog("archive", "verify", *where, "--json").json
        assert (verified["partitions"], verified["problems"]) == (2, 0)
        assert verified["segments"] == sum(each["archived"]["segments"] for each in partitions)
        [cost] = tierlog("cost", "orders", *where, "--retention", "30d", "--json").json
        # Segments of 4 kB: requests are the bill.
        assert 0 < cost["monthly_local_disks_alone"] < cost["bucket"][1]["cost"] < cost["monthly_with_archive"]
    before = consumed(service, "orders")

    service.kill()
    new_home = tmp_path / "new"
    ran = tierlog("archive", "restore", *bucket, "--data-dir", str(new_home))
    assert "restored 1 of 1 topics" in ran.out
    restored = ServeProcess(new_home, (*QUICK, *bucket))
    with restored:
        with Client(restored.url) as client:
            described = client.get(path("topics", "orders"))
        assert described["id"] == topic_id
        assert [each["high_watermark"] for each in described["partitions"]] == ends
        assert described["config"]["segment.bytes"] == {"value": "4000", "source": "topic"}
        deadline = time.monotonic() + 30
        while (ran := tierlog("consume", "orders", "--json", server=restored.url, code=None)).code == 5:
            assert time.monotonic() < deadline, ran.err  # The manifests are being read.
        after = consumed(restored, "orders")
        assert after == {number: records[: ends[number]] for number, records in before.items()}
        fill(restored, "orders", first=1000)
        grown = consumed(restored, "orders")
        assert [len(grown[number]) for number in (0, 1)] == [end + 100 for end in ends]
        assert [record["offset"] for record in grown[0]] == list(range(ends[0] + 100))
        until_archived(restored, "orders")
        assert tierlog("archive", "verify", *bucket, "--json").json["problems"] == 0
        with Client(restored.url) as client:
            first = client.get(path("topics", "orders", "archive"), limit=1)["partitions"][0]["segments"][0]
    _delete(s3, bucket[1], first["rows_object"])
    ran = tierlog("archive", "verify", *bucket, code=1)
    assert "missing" in ran.out and first["rows_object"] in ran.out and "1 problems" in ran.out


def _delete(s3: S3Server, bucket: str, key: str) -> None:
    import boto3

    name, _, prefix = bucket.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name="us-east-1")
    client.delete_object(Bucket=name, Key=f"{prefix}/{key}")


# On a directory, one node for all


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    folder = tmp_path_factory.mktemp("archive")
    with services(folder) as make:
        service = make(*QUICK, "--bucket", f"file://{folder}/bucket")
        make_topic(service, "source")
        fill(service, "source")
        until_archived(service, "source")
        yield service


@pytest.fixture
def bucket(node: ServeProcess) -> str:
    return f"file://{node.data_dir.parent}/bucket"


@pytest.fixture
def run(node: ServeProcess):  # type: ignore[no-untyped-def]
    def run(*arguments: str, **more: Any) -> Ran:
        return tierlog(*arguments, server=node.url, **more)

    return run


def test_status_for_people(run: Any, bucket: str) -> None:
    shown = run("archive", "status", "source").out
    assert shown.startswith("topic") and "source" in shown and "0 – " in shown
    assert "source" in run("archive", "status", "--bucket", bucket).out
    Path(f"{bucket.removeprefix('file://')}-empty").mkdir()
    assert "is it the right place?" in run("archive", "verify", "--bucket", f"{bucket}-empty").err


def test_what_does_not_exist(run: Any, bucket: str, tmp_path: Path) -> None:
    run("archive", "status", "absent", code=3)
    ran = run("archive", "status", "absent", "--bucket", bucket, code=3)
    assert "once its first segment is archived" in ran.err
    run("archive", "verify", "absent", "--bucket", bucket, code=3)
    run("archive", "verify", "absent", code=3)
    run("archive", "restore", "--topic", "absent", code=3)
    run("archive", "restore", "--topic", "absent", "--bucket", bucket, "--data-dir", str(tmp_path / "d"), code=3)
    run("archive", "status", "--bucket", "gopher://x", code=2)
    mistyped = tmp_path / "buckett"
    new = ("--data-dir", str(tmp_path / "new"))
    for command in (
        ("archive", "status"),
        ("archive", "verify"),
        ("archive", "gc", "--offline"),
        ("archive", "pin", "source"),
        ("archive", "restore", *new),
        ("cost",),
    ):
        ran = run(*command, "--bucket", f"file://{mistyped}", code=3)
        assert f"file://{mistyped}" in ran.err and "no such bucket" in ran.err
    assert not mistyped.exists() and not (tmp_path / "new").exists()
    run("archive", "restore", "--bucket", bucket, code=2)
    run("replay", "absent", code=3)
    run("replay", "source", "--to-topic", "absent", code=3)


def test_restoring_what_exists_is_refused_or_skipped(run: Any) -> None:
    assert "already exists" in run("archive", "restore", "--topic", "source", code=4).err
    document = run("archive", "restore", "--json").json
    assert [(each["name"], each["restored"]) for each in document["topics"]] == [("source", False)]


def test_garbage_on_a_bucket_alone_is_only_shown(run: Any, bucket: str) -> None:
    folder = Path(bucket.removeprefix("file://")) / "topic=source" / "partition=0"
    orphan = folder / ("00000000000000000005-0-" + "ab" * 16 + ".parquet")
    orphan.write_bytes(b"left over")
    os.utime(orphan, (0, 0))
    young = folder / ("00000000000000000005-0-" + "cd" * 16 + ".parquet")
    young.write_bytes(b"just written")
    shown = run("archive", "gc", "--bucket", bucket, "--json").json
    assert [(each["kind"], each["bytes"]) for each in shown["objects"]] == [("orphan", 9)]
    assert not shown["deleted"] and orphan.exists()
    ran = run("archive", "gc", "--bucket", bucket)
    assert "would delete 1 objects" in ran.out and "--offline" in ran.err
    verified = run("archive", "verify", "--bucket", bucket, "--json").json
    assert (verified["problems"], verified["orphans"]) == (0, 2)
    collected = run("archive", "gc", "--json").json
    assert (collected["orphans"], collected["failed"]) == (1, [])
    assert young.exists() and not orphan.exists()
    os.utime(young, (0, 0))
    assert "deleted 1 objects" in run("archive", "gc", "--bucket", bucket, "--offline").out
    assert not young.exists()
    assert "--offline only with --bucket" in run("archive", "gc", "--offline", code=2).err


def test_a_damaged_object_fails_verification_and_reads_with_its_name(make_service: MakeService, tmp_path: Path) -> None:
    service = make_service(*QUICK, "--bucket", f"file://{tmp_path}/bucket")
    make_topic(service, "hurt", partitions=1)
    with Client(service.url) as client:
        for number in range(0, 60, 10):
            batch = [{**message(each), "partition": 0} for each in range(number, number + 10)]
            client.post(path("topics", "hurt", "messages", "batch"), {"messages": batch})
    until_archived(service, "hurt")
    victim = min((tmp_path / "bucket" / "topic=hurt" / "partition=0").iterdir())
    data = bytearray(victim.read_bytes())
    data[20] ^= 1  # In its rows: small as it is, most of it is the footer, which reads take from the index.
    victim.write_bytes(data)
    for where in (("--server", service.url), ("--bucket", f"file://{tmp_path}/bucket")):
        ran = tierlog("archive", "verify", *where, code=1)
        assert "damaged" in ran.out and victim.name in ran.out
    assert victim.name in tierlog("consume", "hurt", server=service.url, code=5).err
    assert victim.name in service.output()


# Replay


def test_a_damaged_local_file_is_told_of_and_archiving_goes_on_when_it_is_mended(
    make_service: MakeService, tmp_path: Path
) -> None:
    def archive_of(client: Client) -> dict[str, Any]:
        found: dict[str, Any] = client.get(path("topics", "orders", "archive"))["partitions"][0]
        return found

    service = make_service(*QUICK)
    make_topic(service, "orders", 1, remote_storage_enable="false", local_retention_ms="-1")
    with Client(service.url) as client:
        for at in range(0, 100, 10):
            batch = [{**message(number), "partition": 0} for number in range(at, at + 10)]
            client.post(path("topics", "orders", "messages", "batch"), {"messages": batch})
    path_of = min(service.data_dir.glob("logs/orders.*/0/*.log"))
    good = path_of.read_bytes()
    os.truncate(path_of, len(good) // 2)
    with Client(service.url) as client:
        client.patch(path("topics", "orders"), {"config": {"remote.storage.enable": "true"}})
        wait_until(lambda: archive_of(client)["held"], "held")
        warnings = client.get("/readyz")["warnings"]
    assert [each for each in warnings if "an archive needs repair" in each and str(path_of) in each]
    ran = tierlog("archive", "status", "orders", server=service.url, code=1)
    assert "needs repair" in ran.err and str(path_of) in ran.err
    [shown] = tierlog("archive", "status", "orders", "--json", server=service.url, code=1).json
    assert shown["held"]["file"] == str(path_of) and shown["backlog_bytes"] > 0
    path_of.write_bytes(good)
    with Client(service.url) as client:
        wait_until(lambda: not archive_of(client)["backlog_bytes"], "archived")
        assert client.get("/readyz")["warnings"] == []
    [shown] = tierlog("archive", "status", "orders", "--json", server=service.url).json
    assert shown["held"] is None and shown["archived"]["rows"] == shown["archived"]["end_offset"] > 50


def test_a_directory_is_served_after_a_restore_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    home = tmp_path / "home"
    ran = tierlog("archive", "restore", "--bucket", f"file://{tmp_path}/bucket", "--data-dir", str(home))
    assert "restored 0 of 0 topics" in ran.out
    with ServeProcess(home) as service, Client(service.url) as client:
        assert client.get(path("topics"))["topics"] == []


def test_a_replay_to_a_topic_keeps_everything(run: Any, node: ServeProcess) -> None:
    make_topic(node, "copy")
    summary = run("replay", "source", "--to-topic", "copy", "--json").json
    assert summary["records"] == 200
    source, copy = consumed(node, "source"), consumed(node, "copy")
    assert {n: [content(r) for r in records] for n, records in copy.items()} == {
        n: [content(r) for r in records] for n, records in source.items()
    }


def test_a_replay_of_records_that_the_target_would_delete_is_refused(run: Any, node: ServeProcess) -> None:
    make_topic(node, "short", retention_ms="60000")
    for more in ([], ["--partition", "1", "--offset", "50"]):
        refused = run("replay", "source", "--to-topic", "short", *more, code=4).err
        assert "short: its retention.ms 60000 would delete records as old as 2023-11-14T22:1" in refused
        assert "`--keep` sets its retention.ms to -1" in refused
    assert all(not records for records in consumed(node, "short").values())
    assert run("replay", "source", "--to-topic", "short", "--keep", "--json").json["records"] == 200
    with Client(node.url) as client:
        assert client.get(path("topics", "short"))["config"]["retention.ms"]["value"] == "-1"
    run("replay", "source", "--keep", code=2)
    make_topic(node, "by-arrival", retention_ms="60000", message_timestamp_type="LogAppendTime")
    assert run("replay", "source", "--to-topic", "by-arrival", "--json").json["records"] == 200


def test_a_replay_of_a_range_to_a_file_and_standard_output(run: Any, node: ServeProcess, tmp_path: Path) -> None:
    target = tmp_path / "range.ndjson"
    begin, end = 1_700_000_050_000, 1_700_000_100_000
    run("replay", "source", "--from", str(begin), "--to", str(end), "--output", str(target))
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert sorted(record["timestamp"] for record in found) == list(range(begin, end, 1000))
    assert not Path(f"{target}.state").exists()
    assert "must not exist" in run("replay", "source", "--output", str(target), code=1).err
    lines = run("replay", "source", "--partition", "1", "--offset", "10", "--end-offset", "20").lines
    assert [json.loads(line)["offset"] for line in lines] == list(range(10, 20))
    assert run("replay", "source", "--offset", "5", "--end-offset", "5").out == ""


def test_a_replay_goes_on_where_it_stopped(run: Any, node: ServeProcess, tmp_path: Path) -> None:
    """As if killed: a page arrived in the file, and in the topic, and was not noted."""
    make_topic(node, "resumed")
    state = tmp_path / "state"
    run("replay", "source", "--to-topic", "resumed", "--end-offset", "40", "--records-per-second", "1000")
    with Client(node.url) as client:
        source_id = client.get(path("topics", "source"))["id"]
    noted = [
        {"partition": 0, "next_offset": 30, "end_offset": 100, "target_offset": 30},
        {"partition": 1, "next_offset": 40, "end_offset": 100, "target_offset": 40},
    ]
    document = {
        "topic_id": source_id,
        "target": "topic resumed",
        "parts": noted,
        "records": 70,
        "bytes": 0,
        "version": 1,
    }
    state.write_text(json.dumps(document))
    summary = run("replay", "source", "--to-topic", "resumed", "--state", str(state), "--json").json
    assert (summary["records"], summary["resumed_after"]) == (200, 80)
    assert not state.exists()
    source, copy = consumed(node, "source"), consumed(node, "resumed")
    assert {n: [content(r) for r in rs] for n, rs in copy.items()} == {
        n: [content(r) for r in rs] for n, rs in source.items()
    }

    target = tmp_path / "out.ndjson"
    whole = run("replay", "source", "--partition", "0").out
    lines = whole.splitlines(keepends=True)
    half = "".join(lines[:30])
    target.write_text("".join(lines[:42]) + lines[42][:17])
    document |= {
        "target": str(target),
        "parts": [{"partition": 0, "next_offset": 30, "end_offset": 100, "target_offset": 0}],
        "records": 30,
        "bytes": len(half.encode()),
    }
    Path(f"{target}.state").write_text(json.dumps(document))
    run("replay", "source", "--output", str(target))
    assert target.read_text() == whole


def test_a_replay_that_goes_on_leaves_the_callers_file_alone(run: Any, node: ServeProcess, tmp_path: Path) -> None:
    """`>` has emptied it: what was written before is not there to go on behind."""
    whole = run("replay", "source", "--partition", "0").out.splitlines(keepends=True)
    with Client(node.url) as client:
        source_id = client.get(path("topics", "source"))["id"]
    part = {"partition": 0, "next_offset": 30, "end_offset": 100, "target_offset": 0}
    document = {"topic_id": source_id, "target": "standard output", "parts": [part], "records": 30, "bytes": 5000}
    (tmp_path / "state").write_text(json.dumps({**document, "version": 1}))
    command = [sys.executable, "-m", "tierlog", "replay", "source", "--state", str(tmp_path / "state")]
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([*command, "--server", node.url], stdout=out, timeout=60, check=True)
    assert (tmp_path / "out").read_text() == "".join(whole[30:])


def test_a_state_of_another_replay_is_refused(run: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("{}")
    assert "not the state of a replay" in run("replay", "source", "--state", str(state), code=1).err
    document = {"topic_id": "x", "target": "standard output", "parts": [], "records": 0, "bytes": 0, "version": 1}
    state.write_text(json.dumps(document))
    assert "belongs to a replay of topic id x" in run("replay", "source", "--state", str(state), code=1).err


def test_a_replay_keeps_to_its_rate(run: Any) -> None:
    began = time.monotonic()
    assert len(run("replay", "source", "--end-offset", "50", "--records-per-second", "50").lines) == 100
    assert time.monotonic() - began >= 1.9
    began = time.monotonic()
    run("replay", "source", "--end-offset", "50", "--bytes-per-second", "20000")
    assert time.monotonic() - began >= 0.9


def test_replays_that_contradict_themselves(run: Any, node: ServeProcess) -> None:
    run("replay", "source", "--to-topic", "source", code=2)
    run("replay", "source", "--from", "-1h", "--offset", "3", code=2)
    run("replay", "source", "--partition", "7", code=3)
    make_topic(node, "narrow", partitions=1)
    assert "--partitions 2" in run("replay", "source", "--to-topic", "narrow", code=3).err


# Cost


def test_cost_is_shown_line_by_line(run: Any, node: ServeProcess, bucket: str, tmp_path: Path) -> None:
    shown = run("cost", "source").out
    assert all(part in shown for part in ("stored rows and indexes", "PUT", "LIST", "NVMe, 3 copies", "per month"))
    prices = tmp_path / "prices.toml"
    prices.write_text("[cost]\nstorage_gb_month = 23.0\n")
    [usual] = run("cost", "source", "--bucket", bucket, "--json").json
    [dear] = run("cost", "source", "--bucket", bucket, "--config", str(prices), "--json").json
    assert dear["bucket"][0]["cost"] == pytest.approx(1000 * usual["bucket"][0]["cost"])
    assert "30 is not" not in run("cost", "source", "--retention", "30d").err
    make_topic(node, "unarchived")
    ran = run("cost", "unarchived")
    assert ran.out == "" and "nothing of it is archived yet" in ran.err
    run("cost", "source", "--retention", "soon", code=2)


def test_status_names_the_transaction_that_holds_the_archive(capsys: pytest.CaptureFixture[str]) -> None:
    archived = {
        "start_offset": 0,
        "end_offset": 9,
        "rows_bytes": 1000,
        "index_bytes": 20,
        "aside_bytes": 4,
        "segments": 1,
    }
    partition = {
        "topic": "orders",
        "partition": 3,
        "local": None,
        "archived": archived,
        "overlap": 0,
        "backlog_bytes": 7,
        "stopped": "",
        "last_failure": "",
        "recovered": None,
        "held": None,
    }
    held_by = {"what": "transactional id 'bank-1', producer 4, from offset 9 on", "since_ms": 0}
    held_by["hint"] = "if its producer is gone: `tierlog txn abort bank-1`"
    works = {"works": True, "failure": ""}
    archive._show_status([{**partition, "held_by": held_by}], works, [])
    shown = capsys.readouterr()
    assert "orders-3: held by transactional id 'bank-1', producer 4, from offset 9 on, since 1970-01-01" in shown.err
    assert "tierlog txn abort bank-1" in shown.err
    archive._show_status([partition], works, [])
    assert "held by" not in capsys.readouterr().err, "a node of version 0.1 says nothing of it"
