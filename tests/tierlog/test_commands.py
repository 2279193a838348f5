"""The commands against a real node, as a shell sees them: output, errors, exit codes."""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer

from tests.support.command import Ran, tierlog
from tests.support.waiting import wait_until
from tierlog.cli.times import show_time
from tierlog.cli.topics import partitions_to_read
from tierlog.client import Client, ServerUnreachable, path
from tierlog.process import ServeProcess


@pytest.fixture
def run(service: ServeProcess):  # type: ignore[no-untyped-def]
    def run(*arguments: str, **more: object) -> Ran:
        return tierlog(*arguments, server=service.url, **more)  # type: ignore[arg-type]

    return run


@pytest.fixture
def topic(service: ServeProcess) -> str:
    name = f"cli-{uuid4().hex[:10]}"
    with Client(service.url) as client:
        client.post(path("topics"), {"name": name, "partitions": 2})
    return name


BEGIN = int(time.time()) // 3600 * 3_600_000 - 86_400_000
"""Some full hour of yesterday, in milliseconds: well within the default retention."""


# The command itself


def test_help_costs_little(tmp_path: Path) -> None:
    """Processor time, since a busy machine makes any wall clock long."""
    best = 9.0
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        tierlog("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert best < 0.3


def test_help_lists_the_commands() -> None:
    shown = tierlog("--help").out
    assert all(f"\n  {name} " in shown for name in ("serve", "topic", "produce", "consume", "group", "demo"))


@pytest.mark.parametrize("group", [(), ("topic",), ("group",), ("archive",), ("spark",), ("cluster",)])
def test_what_a_command_does_is_listed_whole(group: tuple[str, ...]) -> None:
    assert "..." not in tierlog(*group, "--help").out.partition("Commands:")[2]


def test_serve_help_lists_every_setting() -> None:
    shown = tierlog("serve", "--help").out
    assert "--kafka.max_request_bytes" in shown
    assert "--topic.retention.ms" in shown


def test_version() -> None:
    assert tierlog("--version").out.startswith("tierlog 0.")


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("topic", "make"), ("topic", "create"), ("consume", "t", "--nope")]
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert "Usage: tierlog" in tierlog(*arguments, code=2).err


def test_no_node_there() -> None:
    ran = tierlog("topic", "list", "--server", "http://127.0.0.1:1", code=5)
    assert "error: http://127.0.0.1:1: no node answers: Connection refused" in ran.err
    assert "tierlog serve" in ran.err


def test_an_error_as_json() -> None:
    ran = tierlog("topic", "list", "--json", "--server", "http://127.0.0.1:1", code=5)
    assert ran.out == ""
    error = json.loads(ran.err)
    assert error["where"] == "http://127.0.0.1:1"
    assert error["exit_code"] == 5


@pytest.mark.parametrize(
    "server", ["ftp://x", "http://", "http://host:99999", "http://host/path", "http://[::1", "http://a..b:80"]
)
def test_a_bad_server_address(server: str) -> None:
    assert "http://HOST:PORT" in tierlog("topic", "list", "--server", server, code=2).err


def test_something_else_answers(service: ServeProcess) -> None:
    ran = tierlog("topic", "list", "--server", f"http://{service.kafka}", code=None)
    assert ran.code in (2, 5)
    assert service.kafka in ran.err and "HTTP address" in ran.err


# Topics


def test_the_life_of_a_topic(run) -> None:  # type: ignore[no-untyped-def]
    name = f"cli-{uuid4().hex[:10]}"
    made = run("topic", "create", name, "--partitions", "3", "--config", "retention.ms=5000", "--json").json
    assert len(made["partitions"]) == 3
    assert name in {each["name"] for each in run("topic", "list", "--json").json}
    assert name in run("topic", "list").out
    run("topic", "alter", name, "--partitions", "5", "--config", "segment.bytes=4096", "--unset", "retention.ms")
    found = run("topic", "describe", name, "--json").json
    assert len(found["partitions"]) == 5
    assert found["config"]["segment.bytes"] == {"value": "4096", "source": "topic"}
    assert found["config"]["retention.ms"]["source"] == "default"
    shown = run("topic", "describe", name).out
    assert "segment.bytes" in shown and found["id"] in shown
    run("topic", "delete", name)
    assert run("topic", "describe", name, code=3).err.startswith("error: ")


def test_refusals_have_their_own_codes(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    exists = run("topic", "create", topic, code=4).err
    assert "already exists" in exists and "tierlog topic alter NAME" in exists
    bad_name = run("topic", "create", "a/b", code=2).err
    assert "a/b" in bad_name and "settings" not in bad_name
    bad_value = run("topic", "create", "x", "--config", "retention.ms=soon", code=2).err
    assert "a whole number" in bad_value and "what settings there are" in bad_value
    assert "nothing to change" in run("topic", "alter", topic, code=2).err
    assert "NAME=VALUE" in run("topic", "create", "x", "--config", "retention.ms", code=2).err
    run("topic", "delete", "not-there", code=3)
    assert "runs on its own" in run("cluster", "decommission", "0", code=3).err


# Produce and consume


def test_lines_in_lines_out(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    run("produce", topic, "--partition", "0", stdin="one\ntwo\n\nthree")
    assert run("consume", topic).lines == ["one", "two", "", "three"]
    assert run("consume", topic, "--partition", "1").lines == []


def test_many_records_in_many_requests(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    numbers = [str(number) for number in range(25_000)]
    ran = run("produce", topic, "--batch", "1000", "--json", stdin="\n".join(numbers))
    assert ran.json["records"] == 25_000
    assert ran.json["requests"] == 25
    assert sorted(map(int, run("consume", topic).lines)) == list(range(25_000))


def test_keys_headers_and_the_way_back(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    run("produce", topic, "--key-separator", r"\t", "--header", "from=test", stdin="k1\tv1\nk2\tv:2\n")
    assert sorted(run("consume", topic, "--key-separator", "=").lines) == ["k1=v1", "k2=v:2"]
    records = [json.loads(line) for line in run("consume", topic, "--json").lines]
    assert {(each["key"], each["value"]) for each in records} == {("k1", "v1"), ("k2", "v:2")}
    assert all(each["headers"] == [{"key": "from", "value": "test"}] for each in records)
    assert all(each["topic"] == topic and each["timestamp"] > 0 for each in records)


def test_what_one_topic_gives_another_takes(run, topic: str, service: ServeProcess) -> None:  # type: ignore[no-untyped-def]
    keyed = b'{"key": "a", "value": "x", "timestamp": %d}\n{"key": "b", "value": null}\n' % BEGIN
    raw = keyed + b'{"value": "/w==", "value_encoding": "base64"}\n'
    run("produce", topic, "--input", "json", "--partition", "0", stdin=raw)
    copy = f"{topic}-copy"
    run("topic", "create", copy, "--partitions", "2")
    written = run("consume", topic, "--json").out
    run("produce", copy, "--input", "json", stdin=written)
    again = run("consume", copy, "--json").out
    assert again.replace(copy, topic) == written
    assert json.loads(again.splitlines()[0])["timestamp"] == BEGIN


def test_files_are_read_in_turn(run, topic: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("3\n")
    run("produce", topic, str(tmp_path / "a"), str(tmp_path / "b"), "--key", "k")
    assert run("consume", topic).lines == ["1", "2", "3"]
    assert "cannot be read: No such file" in run("produce", topic, str(tmp_path / "c"), code=2).err


def test_a_file_is_sent_in_large_requests_also_from_a_terminal(
    service: ServeProcess, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("1\n2\n3\n")
    terminal, other_end = os.openpty()
    command = [sys.executable, "-m", "tierlog", "produce", topic, str(tmp_path / "lines"), "--json"]
    try:
        done = subprocess.run(
            [*command, "--server", service.url], stdin=other_end, capture_output=True, timeout=60, check=True
        )
    finally:
        os.close(terminal)
        os.close(other_end)
    assert json.loads(done.stdout)["requests"] == 1


def test_offsets_limits_and_times(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    lines = [json.dumps({"value": str(n), "partition": 0, "timestamp": BEGIN + n * 60_000}) for n in range(10)]
    run("produce", topic, "--input", "json", stdin="\n".join(lines))
    at = ("--partition", "0")
    assert run("consume", topic, *at, "--offset", "7").lines == ["7", "8", "9"]
    assert run("consume", topic, *at, "--limit", "2").lines == ["0", "1"]
    assert run("consume", topic, "--from-beginning", "--max-messages", "1").lines == ["0"]
    assert run("consume", topic, "--from", str(BEGIN + 120_000), "--to", str(BEGIN + 300_000)).lines == ["2", "3", "4"]
    assert run("consume", topic, "--from", show_time(BEGIN + 300_000), "--limit", "1").lines == ["5"]
    assert run("consume", topic, "--from", "-1h").lines == []
    assert "log" in run("consume", topic, *at, "--offset", "11", code=4).err


def test_a_group_goes_on_where_it_was(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    group = f"g-{topic}"
    run("produce", topic, "--key", "k", stdin="1\n2\n3\n")
    assert run("consume", topic, "--group", group, "--limit", "2").lines == ["1", "2"]
    run("produce", topic, "--key", "k", stdin="4\n")
    assert run("consume", topic, "--group", group).lines == ["3", "4"]
    assert run("consume", topic, "--group", group).lines == []
    assert run("group", "describe", group, "--json").json["lag"] == 0


def test_the_lag_of_a_group_that_has_committed_nothing(run, service: ServeProcess, topic: str) -> None:  # type: ignore[no-untyped-def]
    run("produce", topic, "--key", "k", stdin="1\n2\n3\n")
    group = f"g-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": service.kafka,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.5) is not None, "a record")
        described = run("group", "describe", group).out
        assert "lag 0 or more: not known for 1 of " in described
        assert run("group", "describe", group, "--json").json["lag"] is None
        consumer.commit(asynchronous=False)
        assert run("group", "describe", group, "--json").json["lag"] == 2
    finally:
        consumer.close()


def test_follow_shows_what_comes(service: ServeProcess, topic: str) -> None:
    command = [sys.executable, "-m", "tierlog", "consume", topic, "--follow", "--from-beginning", "--limit", "3"]
    with subprocess.Popen([*command, "--server", service.url], stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        try:
            for number in range(3):
                with Client(service.url) as client:
                    client.post(path("topics", topic, "messages", "batch"), {"messages": [{"value": f"v{number}"}]})
                assert follower.stdout.readline() == f"v{number}\n"
            assert follower.wait(30) == 0
        finally:
            follower.kill()


def test_follow_alone_begins_at_the_end(service: ServeProcess, topic: str) -> None:
    with Client(service.url) as client:
        send = path("topics", topic, "messages", "batch")
        client.post(send, {"messages": [{"value": "old", "partition": 0}]})
        command = [
            sys.executable,
            "-m",
            "tierlog",
            "consume",
            topic,
            "--follow",
            "--limit",
            "1",
            "--server",
            service.url,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
            stop = threading.Event()

            def keep_sending() -> None:
                while not stop.wait(0.1):
                    with Client(service.url) as mine:
                        mine.post(send, {"messages": [{"value": "new", "partition": 0}]})

            sender = threading.Thread(target=keep_sending)
            sender.start()
            try:
                assert follower.communicate(timeout=30)[0] == "new\n"
            finally:
                stop.set()
                sender.join()
                follower.kill()


def test_a_reader_that_has_enough_is_no_error(service: ServeProcess, topic: str) -> None:
    with Client(service.url) as client:
        batch = {"messages": [{"value": "x" * 1000} for _ in range(5000)]}
        client.post(path("topics", topic, "messages", "batch"), batch)
    shell = f"{sys.executable} -m tierlog consume {topic} --server {service.url} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bad_input_says_where(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    assert (
        "standard input:2: not JSON" in run("produce", topic, "--input", "json", stdin='{"value":"a"}\n{\n', code=2).err
    )
    three = '{"value":"a"}\n{"value":"b"}\n{\n'
    assert (
        "2 records before are stored"
        in run("produce", topic, "--input", "json", "--batch", "2", stdin=three, code=2).err
    )
    assert "no key separator" in run("produce", topic, "--key-separator", ":", stdin="x\n", code=2).err
    assert "there is no partition 9" in run("consume", topic, "--partition", "9", code=3).err
    assert "is not a time" in run("consume", topic, "--from", "yesterday", code=2).err
    for command in ("consume", "replay"):
        assert "--to is before --from" in run(command, topic, "--from", "-1h", "--to", "-2h", code=2).err
    assert "`tierlog topic describe NAME`" in run("consume", topic, "--offset", "99", code=4).err
    assert '{"key": ' in run("produce", topic, "--input", "json", stdin="{\n", code=2).err
    assert "contradict" in run("consume", topic, "--offset", "1", "--group", "g", code=2).err
    run("produce", "no-such-topic", stdin="x\n", code=3)
    assert "tierlog topic create NAME" in run("consume", "no-such-topic", code=3).err


def test_a_record_that_is_too_large(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    ran = run("produce", topic, stdin="x" * 2_000_000, code=2)
    assert "tierlog topic alter NAME --config max.message.bytes=" in ran.err


def test_a_place_that_cannot_be_written(run, topic: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    state = tmp_path / "absent" / "state"
    assert f"{state}.tmp: No such file or directory" in run("replay", topic, "--state", str(state), code=1).err
    error = json.loads(run("replay", topic, "--state", str(state), "--json", code=1).err)
    assert error["exit_code"] == 1
    ran = run("replay", topic, "-o", str(tmp_path / "absent" / "out"), code=1)
    assert "No such file or directory" in ran.err and "make the folder first" in ran.err
    (tmp_path / "out").touch()
    assert "must not exist yet" in run("replay", topic, "-o", str(tmp_path / "out"), code=1).err


def test_a_partition_whose_leader_does_not_answer_has_no_known_end() -> None:
    unknown = {
        "name": "t",
        "partitions": [{"partition": 0, "high_watermark": 5}, {"partition": 1, "high_watermark": None}],
    }
    assert [each["partition"] for each in partitions_to_read(unknown, [0])] == [0]
    with pytest.raises(ServerUnreachable, match="leader of partition 1"):
        partitions_to_read(unknown, None)


# Groups


def test_names_are_shown_as_they_are(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    group = f"[red]{topic}[/x]:warning:"
    run("produce", topic, stdin="x\n")
    run("consume", topic, "--group", group)
    assert group in run("group", "list").out


def test_the_life_of_a_group(run, topic: str) -> None:  # type: ignore[no-untyped-def]
    group = f"g-{topic}"
    lines = [json.dumps({"value": str(n), "partition": n % 2, "timestamp": BEGIN + n}) for n in range(10)]
    run("produce", topic, "--input", "json", stdin="\n".join(lines))
    run("consume", topic, "--group", group)
    assert group in {each["group"] for each in run("group", "list", "--json").json}
    assert group in run("group", "list").out

    def offsets() -> list[int]:
        found = run("group", "describe", group, "--json").json["offsets"]
        return [each["offset"] for each in sorted(found, key=lambda each: each["partition"])]

    assert offsets() == [5, 5]
    run("group", "reset", group, "--topic", topic, "--to", "earliest")
    assert offsets() == [0, 0]
    run("group", "reset", group, "--topic", topic, "--to", str(BEGIN + 4))
    assert offsets() == [2, 2]
    run("group", "reset", group, "--topic", topic, "--to", "latest", "--partition", "1")
    assert offsets() == [2, 5]
    run("group", "reset", group, "--topic", topic, "--offset", "3")
    assert offsets() == [3, 3]
    tried = run("group", "reset", group, "--topic", topic, "--to", "latest", "--dry-run", "--json").json
    assert [each["offset"] for each in tried] == [5, 5] and offsets() == [3, 3]
    run("group", "reset", group, "--topic", topic, "--offset", "3", "--dry-run", code=2)
    assert topic in run("group", "describe", group).out
    run("group", "delete", group)
    run("group", "describe", group, code=3)
    run("group", "delete", group, code=3)
