"""The pictures of the README and of docs/CONSOLE.md: `make pictures` writes them anew."""

import os
from pathlib import Path

import pytest

from tests.console.browser import WIDE, Browser
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeProcess

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = {
    "overview": ("/", "Everything is in order"),
    "tier-map": ("/topics/orders/tiers", "in both tiers"),
    "messages": ("/topics/orders/messages?from=earliest&filter=total%20%3E%20300", "More is there."),
}
MOST_BYTES = 200_000
POINTS = 24 if "TIERLOG_PICTURES" in os.environ else 3
"""A picture to be printed shows some minutes."""


@pytest.mark.timeout(600)
def test_pictures(browser: Browser, scene: ServeProcess) -> None:
    with Client(scene.url) as client:

        def measured() -> bool:
            [broker] = client.get(path("cluster", "figures"))["brokers"]
            values = broker["history"]["in"]["hour"]["values"]
            assert None not in values, "the broker stood still for more than a minute: take the pictures again"
            return len(values) >= POINTS

        wait_until(measured, "there is something to draw", 500)
    browser.look("light", WIDE)
    for name, (place, expected) in PICTURES.items():
        browser.open(scene.url, place)
        browser.wait_for(expected)
        # Where the test has its files is nobody's matter.
        browser.run(
            "document.querySelectorAll('.note').forEach((each) => each.textContent.startsWith('file:') && "
            "(each.textContent = 'file:///data/bucket/'))"
        )
        assert browser.picture(name, whole=name == "overview").stat().st_size <= MOST_BYTES


def test_those_of_the_docs_are_small() -> None:
    found = {each.stem: each.stat().st_size for each in (DOCS / "pictures").iterdir()}
    assert found.keys() == PICTURES.keys() and max(found.values()) <= MOST_BYTES
