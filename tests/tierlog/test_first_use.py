"""What somebody tries first: help in any form, odd names, several servers, exit codes by the table in docs/CLI.md."""

import io
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer

from tests.support.command import tierlog
from tierlog.cli.app import app, run
from tierlog.client import Client, path
from tierlog.process import ServeProcess


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("to", {"topic"}),
        ("topic ", {"create", "list", "describe", "alter", "delete"}),
        ("topic create --parti", {"--partitions"}),
    ],
)
def test_a_shell_completes_commands_and_flags(typed: str, completed: set[str]) -> None:
    words = f"tierlog {typed}"
    asked = {"_TIERLOG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = str(Path(sys.executable).with_name("tierlog"))
    ran = subprocess.run([command], env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == completed


@pytest.mark.parametrize(("words", "command"), list(commands(typer.main.get_command(app))))
def test_help_speaks_no_python(words: tuple[str, ...], command: Any) -> None:
    # The jobs over Spark parse their own flags.
    if words[:1] == ("spark",) and len(words) > 1:
        return
    names = (*command.context_settings.get("help_option_names", ()),)
    context = command.make_context("tierlog", [], resilient_parsing=True, help_option_names=names or ["-h", "--help"])
    shown = command.get_help(context)
    assert "-h, --help" in shown
    for word in ("<str>", "<int>", "<float>", "<path>", "list[", "INTEGER", "x>=", "<=x", "{"):
        assert word not in shown, shown
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.metavar is not None and parameter.metavar.isupper(), shown


@pytest.mark.parametrize("words", [(), ("topic",), ("topic", "create"), ("serve",), ("spark", "audit")])
def test_a_short_flag_helps(words: tuple[str, ...]) -> None:
    assert "sage: tierlog" in tierlog(*words, "-h").out


def test_a_shell_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"_TIERLOG_COMPLETE": "complete_bash", "COMP_WORDS": "tierlog to", "COMP_CWORD": "1"}
    for shell in ("bash", "zsh", "fish"):
        monkeypatch.setenv("_TIERLOG_COMPLETE", f"source_{shell}")
        assert "_TIERLOG_COMPLETE" in tierlog().out
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert tierlog().out.split() == ["topic"]


def test_no_data_directory_is_refused(tmp_path: Path) -> None:
    for command in (
        ("serve", "--data-dir", ""),
        ("serve", "--set", "log.data_dir= "),
        ("cluster", "up", "--data-dir", ""),
        ("archive", "restore", "--bucket", f"file://{tmp_path}", "--data-dir", ""),
    ):
        assert "data_dir cannot be empty" in tierlog(*command, code=2).err, command


def test_a_group_of_any_name(service: ServeProcess) -> None:
    group, topic = f"заказы-注文-{uuid4().hex[:6]}", f"names-{uuid4().hex[:6]}"
    tierlog("topic", "create", topic, "--partitions", "1", server=service.url)
    tierlog("produce", topic, stdin="one\ntwo\n", server=service.url)
    ran = tierlog("consume", topic, "--group", group, "--limit", "1", server=service.url)
    assert ran.out == "one\n"
    assert tierlog("consume", topic, "--group", group, server=service.url).out == "two\n"
    assert group in tierlog("group", "list", server=service.url).out
    described = tierlog("group", "describe", group, "--json", server=service.url).json
    assert [each["offset"] for each in described["offsets"]] == [2]
    tierlog("group", "reset", group, "--topic", topic, "--to", "earliest", server=service.url)
    tierlog("group", "delete", group, server=service.url)


def test_the_first_server_that_answers_is_asked(service: ServeProcess) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert tierlog("topic", "list", "--json", server=f"{nobody}, {service.url}").json is not None
        assert tierlog("topic", "list", "--json", server=f"{service.http},{nobody}").json is not None
        refused = tierlog("topic", "list", server=f"{nobody},{nobody}", code=5)
        assert refused.err.count(nobody) == 2
    assert "http://HOST:PORT" in tierlog("topic", "list", server=f"{service.url},,", code=2).err


def test_exit_codes(service: ServeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, for the sake of time: a code is decided in one place."""
    monkeypatch.setenv("TIERLOG_SERVER", service.url)
    topic = f"codes-{uuid4().hex[:6]}"
    missing = f"file://{tmp_path}/nothing"
    with Client(service.url) as client:
        client.post(path("topics"), {"name": topic, "partitions": 1})
    wrong = []
    for code, command in (
        (2, ("topic", "create", "no spaces")),
        (2, ("topic", "create", f"{topic}-x", "--config", "retention.ms=soon")),
        (2, ("topic", "create", f"{topic}-x", "--config", "nonsense=1")),
        (2, ("produce", topic, str(tmp_path / "no-file"))),
        (2, ("produce", topic, "--partition", "x")),
        (2, ("consume", topic, "--from", "yesterday")),
        (2, ("serve", "--config", str(tmp_path / "no-file.toml"))),
        (2, ("archive", "pin", topic, "--bucket", "bucket")),
        (3, ("topic", "describe", "nothing")),
        (3, ("topic", "alter", "nothing", "--partitions", "3")),
        (3, ("topic", "delete", "nothing")),
        (3, ("produce", "nothing")),
        (3, ("produce", topic, "--partition", "7")),
        (3, ("consume", "nothing")),
        (3, ("consume", topic, "--partition", "7")),
        (3, ("group", "describe", "nothing")),
        (3, ("group", "delete", "nothing")),
        (3, ("group", "reset", "some", "--topic", "nothing", "--to", "earliest")),
        (3, ("replay", "nothing", "--output", str(tmp_path / "out"))),
        (3, ("archive", "status", "nothing")),
        (3, ("archive", "verify", "nothing")),
        (3, ("archive", "pins", "nothing")),
        (3, ("archive", "status", "--bucket", missing)),
        (3, ("cost", "nothing")),
        (3, ("cluster", "decommission", "77")),
        (4, ("topic", "create", topic)),
        (4, ("consume", topic, "--offset", "99")),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
        ended = run(command)
        if ended != code:
            wrong.append(f"tierlog {' '.join(command)} ended with {ended}, not {code}")
    assert not wrong, "\n".join(wrong)


def test_a_reader_that_leaves_is_no_error(service: ServeProcess) -> None:
    topic = f"pipe-{uuid4().hex[:6]}"
    tierlog("topic", "create", topic, server=service.url)
    tierlog("produce", topic, stdin="line\n" * 50_000, server=service.url)
    command = f"{sys.executable} -m tierlog consume {topic} --server {service.url} | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False)
    assert ran.stdout == b"line\n"
    assert b"Traceback" not in ran.stderr


def test_values_as_text_over_http(service: ServeProcess) -> None:
    topic = f"text-{uuid4().hex[:6]}"
    with Client(service.url) as client:
        client.post(path("topics"), {"name": topic, "partitions": 1})
        sent = [{"value": "grüße"}, {"value": "/w==", "value_encoding": "base64"}, {"value": None}]
        client.post(path("topics", topic, "messages", "batch"), {"messages": sent})
    url = f"{service.url}{path('topics', topic, 'partitions', 0, 'messages')}"

    def read(query: str, accept: str) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(url + query, headers={"Accept": accept})) as answer:
            return bytes(answer.read())

    messages = json.loads(read("?value_encoding=text", "application/json"))["messages"]
    shown = [{name: each[name] for name in each if name.startswith("value")} for each in messages]
    assert shown == [{"value": "grüße"}, {"value": "/w==", "value_encoding": "base64"}, {"value": None}]
    lines = [json.loads(line) for line in read("?value_encoding=text", "application/x-ndjson").splitlines()]
    assert [each["value"] for each in lines] == ["grüße", "/w==", None]
    assert json.loads(read("?value_encoding=base64", "*/*"))["messages"][0]["value"] == "Z3LDvMOfZQ=="
    assert json.loads(read("", "*/*"))["messages"][0]["value"] == "Z3LDvMOfZQ=="
