"""`tierlog archive pin` as a shell sees it, and as retention does."""

import asyncio
import json
import urllib.request
from pathlib import Path

from tests.offloader.harness import TOPIC, archived_node
from tests.support.command import tierlog
from tests.support.service import services
from tests.support.waiting import until
from tierlog.client import Client, path


async def test_placed_listed_and_released(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(60)
        await node.settle()

    def pin(*flags: str, code: int = 0):
        return tierlog("archive", "pin", TOPIC, "--bucket", f"file://{tmp_path}/bucket", *flags, code=code)

    placed = await asyncio.to_thread(pin, "--name", "nightly", "--for", "2h", "--json")
    [held] = json.loads(placed.out)["pins"]
    bucket = ("--bucket", f"file://{tmp_path}/bucket")
    listed = await asyncio.to_thread(tierlog, "archive", "pins", *bucket, "--json")
    assert [(each["topic"], each["name"]) for each in listed.json] == [(TOPIC, "nightly")]
    assert "nightly" in (await asyncio.to_thread(tierlog, "archive", "status", *bucket)).out
    assert held["name"] == "nightly"
    assert held["expires_ms"] - held["created_ms"] == 7_200_000
    released = await asyncio.to_thread(pin, "--name", "nightly", "--release", "--json")
    assert json.loads(released.out)["pins"] == []
    again = await asyncio.to_thread(pin, "--name", "nightly", "--release", code=3)
    assert "nightly" in again.err
    nothing = await asyncio.to_thread(pin, "--for", "0h", code=2)
    assert "12h" in nothing.err
    wrong = await asyncio.to_thread(pin, "--for", "soon", code=None)
    assert wrong.code != 0
    assert "soon" in wrong.err


def test_no_such_topic(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    ran = tierlog("archive", "pin", "nothing", "--bucket", f"file://{tmp_path}/bucket", code=3)
    assert "nothing" in ran.err


async def test_a_node_shows_its_pins(tmp_path: Path) -> None:
    with services(tmp_path) as make:
        service = await asyncio.to_thread(make, "--set", "archive.check_ms=50", "--set", "archive.garbage_check_ms=50")
        bucket = f"file://{service.data_dir}/bucket"
        config = {"segment.bytes": "4000", "remote.storage.enable": "true"}
        with Client(service.url) as client:
            client.post(path("topics"), {"name": "orders", "config": config})
            for _ in range(4):
                messages = [{"value": "x" * 400} for _ in range(10)]
                client.post(path("topics", "orders", "messages", "batch"), {"messages": messages})
            await until(lambda: client.get(path("topics", "orders", "archive"))["partitions"][0]["archived"])
            assert "no pin" in tierlog("archive", "pins", server=service.url).out
            tierlog("archive", "pin", "orders", "--bucket", bucket, "--name", "nightly", "--for", "2h")
            assert [each["name"] for each in client.get(path("archive", "pins"), topic="orders")["pins"]] == ["nightly"]
            assert "nightly" in tierlog("archive", "pins", "orders", server=service.url).out
            assert "held by nightly until" in tierlog("archive", "status", server=service.url).out
            tierlog("archive", "pins", "nothing", server=service.url, code=3)

            def metrics() -> str:
                with urllib.request.urlopen(f"{service.url}/metrics") as answer:
                    return str(answer.read().decode())

            await until(lambda: 'tierlog_archive_pins{topic="orders"} 1.0' in metrics())
            assert 'tierlog_archive_pin_expiry_timestamp_seconds{pin="nightly",topic="orders"}' in metrics()
