"""Debian's kcat: an old librdkafka, which speaks the older, non-flexible versions of the hot requests."""

import json
import shutil
import subprocess
from contextlib import closing
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)")


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"kcat-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])[name].result(15)
    return name


@pytest.fixture
def kcat(bootstrap: str):
    def run(*arguments: str, stdin: str = "") -> str:
        command = ["kcat", "-b", bootstrap, "-q", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_produce_and_consume(kcat, topic, codec):
    lines = [f"k{n}:value {n} {'.' * 100}" for n in range(200)]
    kcat("-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, "-H", "from=kcat", stdin="\n".join(lines) + "\n")
    out = kcat("-C", "-t", topic, "-p", "0", "-e", "-o", "beginning", "-f", "%o %h %k:%s\n")
    assert out.splitlines() == [f"{n} from=kcat {line}" for n, line in enumerate(lines)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_compression_reaches_the_log(kcat, topic, bootstrap, codec):
    """kcat drops these codecs in silence where Produce is advertised without its oldest versions."""
    kcat("-P", "-t", topic, "-p", "0", "-z", codec, stdin="\n".join("x" * 1000 for _ in range(500)) + "\n")
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        (broker,) = admin.describe_log_dirs({topic: [0]})
    (stored,) = broker["log_dirs"][0]["topics"][0]["partitions"]
    assert 0 < stored["partition_size"] < 100_000


def test_offsets_by_time_and_metadata(kcat, topic):
    kcat("-P", "-t", topic, "-p", "1", stdin="a\nb\nc\n")
    metadata = json.loads(kcat("-L", "-J", "-t", topic))
    (shown,) = metadata["topics"]
    assert [partition["partition"] for partition in shown["partitions"]] == [0, 1]
    assert all(partition["leader"] == metadata["brokers"][0]["id"] for partition in shown["partitions"])
    assert kcat("-Q", "-t", f"{topic}:1:-1").split() == [topic, "[1]", "offset", "3"]
    assert kcat("-Q", "-t", f"{topic}:1:1").split() == [topic, "[1]", "offset", "0"]


def test_a_group_from_kcat(kcat, topic):
    kcat("-P", "-t", topic, "-p", "0", stdin="one\ntwo\n")
    out = kcat("-G", f"{topic}-group", "-X", "auto.offset.reset=earliest", "-c", "2", "-e", topic)
    assert out.split() == ["one", "two"]
