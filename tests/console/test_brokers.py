"""Brokers of a cluster: one is emptied, taken back, and gets its part again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.browser import Browser
from tests.support.service import QUICK
from tests.support.waiting import wait_until
from tests.support.workers import wait_for_brokers
from tierlog.client import Client, path
from tierlog.process import ServeProcess


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ServeProcess]:
    service = ServeProcess(tmp_path / "two", (*QUICK, "--workers", "2")).start()
    try:
        wait_for_brokers(service.url, 2)
        yield service
    finally:
        service.kill()


@pytest.mark.timeout(300)
@pytest.mark.does("decommission a broker", "take a broker back", "rebalance")
def test_a_broker_is_emptied_taken_back_and_gets_its_part(browser: Browser, two: ServeProcess) -> None:
    with Client(two.url) as client:
        client.post(path("topics"), {"name": "spread", "partitions": 6})

        def held(broker: int) -> int:
            return sum(broker in each["replicas"] for each in client.get(path("topics", "spread"))["partitions"])

        assert held(1) == held(2) == 3
        browser.open(two.url, "/brokers")
        browser.wait_for("Nothing moves between brokers")
        cards = [each.text for each in browser.all("main .card header") if each.text.startswith("Broker ")]
        number = 1 + next(at for at, text in enumerate(cards) if text.startswith("Broker 2"))
        browser.press("Decommission…", f"main .grid > .card:nth-child({number})")
        browser.picture("decommission", whole=False)
        browser.confirm("Move everything off it", name="2", command="tierlog cluster decommission 2")
        browser.wait_for("replicas yet")
        wait_until(lambda: held(2) == 0, "broker 2 is empty", 90)
        assert held(1) == 6

        browser.open(two.url, "/brokers")
        browser.wait_for("draining")
        browser.press("Take it back…")
        browser.confirm("Take it back", command="tierlog cluster decommission 2 --cancel")
        browser.wait_for("Broker 2 takes replicas again")
        wait_until(lambda: not any(each["draining"] for each in client.get(path("cluster"))["brokers"]), "it is back")
        assert held(2) == 0, "nothing moves by itself"

        def planned() -> int:
            return len(client.post(path("cluster", "rebalance"), {"dry_run": True})["moves"])

        wait_until(lambda: planned() > 0, "there is something to even out")
        browser.press("Rebalance…")
        browser.wait_for("Replicas are copied first")
        browser.picture("rebalance", whole=False)
        browser.press("The same as a command", "dialog[open]")
        browser.wait_for("tierlog cluster rebalance")
        moves = planned()
        browser.press(f"Begin {moves} moves", "dialog[open]")
        browser.wait_for("The moves have begun")
        wait_until(lambda: held(2) == 3, "the topic is even again", 90)
