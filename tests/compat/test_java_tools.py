"""Apache Kafka's own command-line tools, that is the Java client, against the broker.

A JVM starts in about a second, so each test walks one topic through several tools.
"""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import run_tool

from .conftest import TARGET

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

not_kafka = pytest.mark.skipif(TARGET == "kafka", reason="Kafka serves all of this")

Run = Callable[..., str]

SESSION_TIMEOUT = ("--add-config", "consumer.session.timeout.ms=50000")


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs a tool against the broker; returns what it printed. It must succeed, or fail where `fails`."""
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))

    def call(name: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        result = run_tool(name, "--bootstrap-server", bootstrap, *arguments, stdin=stdin)
        assert (result.code != 0) == fails, f"{name} {arguments} → {result.code}\n{result.out}\n{result.err}"
        return result.out + (result.err if fails else "")

    return call


@pytest.fixture
def topic() -> str:
    return f"java-{uuid4().hex[:12]}"


def test_topics_and_settings(run: Run, topic: str):
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=86400000")
    assert topic in run("kafka-topics", "--list").split()
    described = run("kafka-topics", "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described and "retention.ms=86400000" in described
    assert len(re.findall(r"Leader: \d+", described)) == 2
    assert "already exists" in run("kafka-topics", "--create", "--topic", topic, fails=True)

    run("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run("kafka-configs", *entity, "--alter", "--add-config", "segment.bytes=2097152,cleanup.policy=[compact,delete]")
    run("kafka-configs", *entity, "--alter", "--delete-config", "retention.ms")
    shown = run("kafka-configs", *entity, "--describe", "--all")
    assert "segment.bytes=2097152" in shown and "cleanup.policy=compact,delete" in shown
    assert "retention.ms=604800000" in shown

    run("kafka-topics", "--delete", "--topic", topic)
    assert topic not in run("kafka-topics", "--list").split()


def test_console_producer_and_consumer(run: Run, topic: str):
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    parsing = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    lines = "".join(f"trace:{n},app:demo\tkey-{n}\tvalue {n}\n" for n in range(10))
    run("kafka-console-producer", "--topic", topic, "--compression-codec", "zstd", *parsing, stdin=lines)
    printing = [f"--formatter-property=print.{what}=true" for what in ("key", "headers", "offset", "timestamp")]
    out = run(
        "kafka-console-consumer",
        *("--topic", topic, "--from-beginning", "--max-messages", "10", "--timeout-ms", "20000"),
        *("--group", f"{topic}-group", *printing),
    )
    read = [line.split("\t") for line in out.splitlines()]
    assert [row[1:] for row in read] == [
        [f"Offset:{n}", f"trace:{n},app:demo", f"key-{n}", f"value {n}"] for n in range(10)
    ]
    assert all(row[0].startswith("CreateTime:") for row in read)

    group = ("--group", f"{topic}-group")
    described = run("kafka-consumer-groups", "--describe", *group)
    (row,) = [line.split() for line in described.splitlines() if topic in line and line.split()[1:2] == [topic]]
    assert row[2:6] == ["0", "10", "10", "0"]  # partition, committed, log end, lag
    assert group[1] in run("kafka-consumer-groups", "--list").split()
    run("kafka-consumer-groups", *group, "--reset-offsets", "--to-offset", "4", "--topic", topic, "--execute")
    out = run("kafka-console-consumer", "--topic", topic, *group, "--max-messages", "6", "--timeout-ms", "20000")
    assert out.splitlines() == [f"value {n}" for n in range(4, 10)]
    run("kafka-consumer-groups", *group, "--delete")
    assert group[1] not in run("kafka-consumer-groups", "--list").split()


@pytest.mark.parametrize(("codec", "acks"), [("none", "1"), ("lz4", "all")])
def test_performance_tools(run: Run, topic: str, codec: str, acks: str):
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "3")
    settings = (f"acks={acks}", f"compression.type={codec}", "batch.size=65536", "linger.ms=5")
    out = run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1"),
        *("--command-property", *settings),
    )
    assert re.search(r"^20000 records sent, .*99\.9th\.$", out, re.MULTILINE), out
    out = run("kafka-consumer-perf-test", "--topic", topic, "--num-records", "20000", "--timeout", "20000")
    columns = [part.strip() for part in out.strip().splitlines()[-1].split(",")]
    assert int(columns[4]) >= 20000, out
    ends = run("kafka-get-offsets", "--topic", topic).split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends) == 20000


def test_offsets_log_dirs_and_deleting_records(run: Run, topic: str, tmp_path: Path):
    run("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    run("kafka-console-producer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(20)))
    assert run("kafka-get-offsets", "--topic", topic).split() == [f"{topic}:0:20"]
    assert run("kafka-get-offsets", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:0"]
    newest = run("kafka-get-offsets", "--topic", topic, "--time", "max-timestamp").split()
    assert 0 <= int(newest[0].rsplit(":", 1)[1]) < 20

    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 15}]}))
    assert "low_watermark: 15" in run("kafka-delete-records", "--offset-json-file", str(wanted))
    assert run("kafka-get-offsets", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:15"]

    out = run("kafka-log-dirs", "--describe", "--topic-list", topic)
    (broker,) = json.loads(out.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    assert [(part["partition"], part["size"] > 0) for part in directory["partitions"]] == [(f"{topic}-0", True)]


def test_client_quotas(run: Run, topic: str):
    entity = ("--entity-type", "clients", "--entity-name", topic)
    run("kafka-configs", *entity, "--alter", "--add-config", "producer_byte_rate=1048576,consumer_byte_rate=2097152")
    shown = run("kafka-configs", *entity, "--describe")
    assert re.search(r"producer_byte_rate=1048576", shown) and re.search(r"consumer_byte_rate=2097152", shown)
    run("kafka-configs", *entity, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert "byte_rate" not in run("kafka-configs", *entity, "--describe")


def test_advertised_versions_suit_the_java_client(run: Run):
    out = run("kafka-broker-api-versions")
    for api in ("Produce", "Fetch", "Metadata", "JoinGroup", "OffsetCommit", "CreateTopics", "InitProducerId"):
        (line,) = [line for line in out.splitlines() if line.strip().startswith(f"{api}(")]
        assert "usable:" in line, line


@not_kafka
def test_tools_that_look_at_the_cluster(run: Run, topic: str):
    run("kafka-configs", "--alter", *("--entity-type", "groups", "--entity-name", topic), *SESSION_TIMEOUT)
    with ThreadPoolExecutor() as pool:
        features = pool.submit(run, "kafka-features", "describe")
        quorum = pool.submit(run, "kafka-metadata-quorum", "describe", "--status", fails=True)
        transactions = pool.submit(run, "kafka-transactions", "list")
        groups = pool.submit(run, "kafka-configs", "--describe", "--entity-type", "groups")
    assert re.search(r"Feature: group.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 0", features.result())
    assert "there is no quorum of brokers" in quorum.result()
    assert transactions.result().split()[:4] == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert f"configs for group {topic}" in groups.result() and "session.timeout.ms=50000" in groups.result()


@not_kafka
def test_what_is_not_served_fails_soon(run: Run, bootstrap: str, topic: str):
    run("kafka-topics", "--create", "--topic", topic)
    perf = ("--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1")
    assert "10 records sent" in run("kafka-producer-perf-test", *perf, "--transactional-id", topic)
    consumer = ("--topic", topic, "--group", topic, "--timeout-ms", "20000")
    consumer = ("--bootstrap-server", bootstrap, *consumer, "--command-property", "group.protocol=consumer")
    assert "Set group.protocol=classic" in run_tool("kafka-console-consumer", *consumer).err
    assert "authorization is off" in run("kafka-acls", "--list", fails=True)
