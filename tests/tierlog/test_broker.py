"""A broker as a process: it gets ready, stops cleanly, keeps others off its data, and says why it cannot start."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import tierlog
from tests.support.service import MakeService
from tierlog.client import Client, ServerUnreachable, path
from tierlog.process import ServeFailed, ServeProcess


def test_ready_is_one_line_with_the_real_ports(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tierlog", "serve", "--data-dir", str(tmp_path / "d")]
    command += ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            words = line.split()
            assert words[:2] == ["tierlog", "ready"]
            for word, name in zip(words[2:], ("kafka", "http"), strict=True):
                assert word.startswith(f"{name}=127.0.0.1:")
                port = int(word.rpartition(":")[2])
                assert port > 0
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert rest == ""
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(make_service: MakeService, number: signal.Signals) -> None:
    service = make_service()
    process = service.process
    assert process is not None
    process.send_signal(number)
    assert process.wait(30) == 0
    # A busy machine is told of; anything else would be a complaint.
    known = ("level=info", "stood still")
    assert [line for line in service.output().splitlines() if not any(part in line for part in known)] == []


def test_records_and_topics_are_there_after_a_restart(make_service: MakeService) -> None:
    service = make_service()
    with Client(service.url) as client:
        made = client.post(path("topics"), {"name": "kept", "partitions": 2})
        sent = {"messages": [{"value": f"v{number}", "partition": number % 2} for number in range(10)]}
        client.post(path("topics", "kept", "messages", "batch"), sent)
    service.stop()
    service.start()
    with Client(service.url) as client:
        found = client.get(path("topics", "kept"))
        assert found["id"] == made["id"]
        assert [each["high_watermark"] for each in found["partitions"]] == [5, 5]
        assert [each["leader_epoch"] for each in found["partitions"]] == [1, 1]


def test_damaged_or_missing_metadata_is_refused_with_how_to_recover(make_service: MakeService) -> None:
    service = make_service()
    with Client(service.url) as client:
        client.post(path("topics"), {"name": "orders"})
    service.stop()
    file = service.data_dir / "metadata.db"
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[damaged.index(b'"name":"orders"') + 8] ^= 1
    for content, said in ((bytes(damaged), "the checksum of 'topics/orders' is wrong"), (b"", "is missing or empty")):
        file.write_bytes(content)
        with pytest.raises(ServeFailed):
            service.start()
        text = service.output()
        assert said in text and str(service.data_dir) in text and "from a copy of this directory" in text
        assert "Traceback" not in text
    file.write_bytes(whole)
    service.start()
    with Client(service.url) as client:
        assert client.get(path("topics", "orders"))["name"] == "orders"


def test_an_idle_connection_does_not_hold_up_the_stop(make_service: MakeService) -> None:
    service = make_service()
    host, port = service.kafka.split(":")
    with socket.create_connection((host, int(port))), socket.create_connection(service.http.split(":")):
        began = time.monotonic()
        service.stop()
        assert time.monotonic() - began < 5


def test_a_second_broker_on_the_same_data_is_refused(make_service: MakeService) -> None:
    service = make_service()
    other = ServeProcess(service.data_dir)
    other.output_path = service.data_dir.with_name("other.out")
    with pytest.raises(ServeFailed) as caught:
        other.start()
    assert "another broker" in str(caught.value)
    assert str(service.pid) in str(caught.value)
    with Client(service.url) as client:
        assert client.get(path("topics"))["topics"] is not None


def test_the_lock_of_a_killed_broker_is_free(make_service: MakeService) -> None:
    service = make_service()
    service.kill()
    with pytest.raises(ServerUnreachable):
        Client(service.url).get(path("topics"))
    service.start()


def test_a_port_in_use_is_said_before_data_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = tierlog("serve", "--data-dir", str(tmp_path / "d"), "--kafka", address, code=2)
    assert f"cannot listen on {address}: Address already in use" in ran.err
    assert "stop what uses it" in ran.err and "--kafka HOST:PORT" in ran.err
    flags = ("--kafka", "127.0.0.1:0", "--http", "192.0.2.1:8080")
    elsewhere = tierlog("serve", "--data-dir", str(tmp_path / "d"), *flags, code=2)
    assert "use an address of this machine" in elsewhere.err
    assert not (tmp_path / "d").exists()


def test_a_file_in_place_of_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    ran = tierlog("serve", "--data-dir", str(tmp_path / "d"), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", code=1)
    assert f"{tmp_path / 'd'}: cannot be used: File exists" in ran.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--metadata", "etcd://127.0.0.1:2379"], "a cluster needs a bucket that all its brokers share"),
        (["--metadata", "zookeeper"], "cluster.metadata cannot be 'zookeeper'"),
        (["--bucket", "gopher://x"], "store.bucket cannot be 'gopher://x'"),
        (["--kafka", "9092"], "--kafka cannot be '9092'"),
        (["--set", "kafka.port"], "it is SECTION.KEY=VALUE"),
        (["--kafka.port"], "--kafka.port needs a value"),
        (["--verbose"], "unexpected '--verbose'"),
        (["--node-id", "x"], "cluster.node_id cannot be 'x'"),
    ],
)
def test_bad_flags_end_it_with_2_and_a_hint(tmp_path: Path, flags: list[str], message: str) -> None:
    free = ["--kafka.port", "0", "--http.port", "0", "--data-dir", str(tmp_path / "d")]
    assert message in tierlog("serve", *free, *flags, code=2).err


def test_who_listens_everywhere_is_found_by_the_name_it_is_given(make_service: MakeService) -> None:
    """Other brokers pass HTTP requests on to it: the machine's own name may mean nothing to them."""
    service = make_service("--http.host", "0.0.0.0", "--kafka.advertised_host", "localhost")
    with Client(service.url) as client:
        (broker,) = client.get(path("cluster"))["brokers"]
    assert (broker["host"], broker["http_host"]) == ("localhost", "localhost")


def test_an_etcd_that_is_away_is_no_mistake_of_the_command(tmp_path: Path) -> None:
    free = [
        "--kafka.port",
        "0",
        "--http.port",
        "0",
        "--data-dir",
        str(tmp_path / "d"),
        "--bucket",
        f"file://{tmp_path}/b",
    ]
    assert "is etcd running" in tierlog("serve", *free, "--metadata", "etcd://127.0.0.1:1", code=5).err


def test_settings_reach_the_broker(make_service: MakeService, tmp_path: Path) -> None:
    config = tmp_path / "tierlog.toml"
    config.write_text("[cluster]\nnum_partitions = 7\n\n[topic]\nretention.ms = 1234567\n")
    service = make_service("--config", str(config), "--rack", "r1", TIERLOG_CLUSTER__NODE_ID="5")
    with Client(service.url) as client:
        topic = client.post(path("topics"), {"name": "t"})
        assert len(topic["partitions"]) == 7
        assert topic["config"]["retention.ms"] == {"value": "1234567", "source": "default"}
        (broker,) = client.get(path("cluster"))["brokers"]
    assert (broker["id"], broker["rack"], broker["port"]) == (5, "r1", int(service.kafka.rpartition(":")[2]))
