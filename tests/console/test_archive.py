"""The archive's own actions: objects that nothing needs go, topics come back, and long lists of segments have pages."""

from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.console.scene import FLAGS
from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeProcess

SEGMENTS = 60


def archive(client: Client, topic: str, segments: int) -> None:
    """Makes a topic with so many archived segments of one record each, and one that is local."""
    config = {"remote.storage.enable": "true", "segment.bytes": "16384"}
    client.post(path("topics"), {"name": topic, "partitions": 1, "config": config})
    for number in range(segments + 1):
        client.post(path("topics", topic, "messages", "batch"), {"messages": [{"value": f"{number:05}" * 3000}]})

    def archived() -> bool:
        [status] = client.get(path("topics", topic, "archive"), limit=0)["partitions"]
        return bool(status["archived"] and status["archived"]["segments"] >= segments)

    wait_until(archived, f"{segments} segments are in the bucket", 120)


def objects(bucket: Path, topic: str) -> int:
    return len(list(bucket.rglob(f"topic={topic}/**/*.parquet")))


@pytest.mark.timeout(300)
@pytest.mark.does("restore", "collect garbage")
def test_topics_come_back_and_garbage_goes(browser: Browser, make_service: MakeService, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    flags = (*FLAGS, "--bucket", f"file://{bucket}", "--set", "archive.delete_grace_ms=0")
    first = make_service(*flags)
    with Client(first.url) as client:
        archive(client, "orders", 3)
    first.kill()
    second = make_service(*flags, "--set", "archive.check_ms=3600000")  # it collects nothing by itself
    with Client(second.url) as client:
        browser.open(second.url, "/archive")
        browser.press("Restore…")
        browser.type("Topics", "orders")
        browser.confirm("Restore", command="tierlog archive restore --topic orders")
        browser.wait_for("1 of 1 topics are restored", 60)
        browser.picture("restored", whole=False)
        browser.press("Restore", "dialog[open]")
        browser.wait_for("topic orders already exists")
        browser.allowed = ("status of 409",)
        browser.press("Close", "dialog[open]")
        [partition] = client.get(path("topics", "orders"))["partitions"]
        assert partition["high_watermark"] - partition["log_start_offset"] == 3
        [record, *_] = client.get(path("topics", "orders", "partitions", 0, "messages"), offset=0)["messages"]
        assert record["offset"] == 0

        client.delete(path("topics", "orders"))
        assert objects(bucket, "orders") == 3
        browser.open(second.url, "/archive")
        browser.press("Collect garbage")
        browser.confirm("Collect", command="tierlog archive gc")
        browser.wait_for("objects went")
        wait_until(lambda: objects(bucket, "orders") == 0, "the deleted topic's objects went")


@pytest.mark.timeout(300)
def test_many_segments_come_in_pages(browser: Browser, scene: ServeProcess) -> None:
    def shown() -> int:
        return len(browser.all("main [aria-label='Archived segments'] tbody tr"))

    with Client(scene.url) as client:
        archive(client, "long", SEGMENTS)
        try:
            browser.open(scene.url, "/topics/long/tiers?partition=0")
            browser.wait_for(f"{SEGMENTS} segments")
            assert shown() == 50
            browser.press("Further")
            wait_until(lambda: shown() == SEGMENTS - 50, "the rest is shown")
            browser.press("From the start")
            wait_until(lambda: shown() == 50, "the first are shown")
        finally:
            client.delete(path("topics", "long"))
