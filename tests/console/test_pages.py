"""Every page, in both themes, wide and narrow: it shows what is there, fits, and says nothing in the log."""

import pytest

from tests.console.browser import NARROW, WIDE, Browser
from tierlog.process import ServeProcess

PAGES = {
    "overview": ("/", "Everything is in order"),
    "topics": ("/topics", "orders"),
    "topic": ("/topics/orders", "Next offset"),
    "topic-groups": ("/topics/orders/groups", "search-index"),
    "tier-map": ("/topics/orders/tiers?partition=1", "Archived segments of partition 1"),
    "tier-map-by-time": ("/topics/orders/tiers?by=time", "in the bucket"),
    "topic-settings": ("/topics/orders/settings", "local.retention.ms"),
    "topic-cost": ("/topics/orders/cost?retention=31536000000", "Per month, with the archive"),
    "messages": ("/topics/orders/messages", "customer-"),
    "messages-of-all-kinds": ("/topics/inventory/messages?from=earliest", "<img src=x onerror=alert(1)>"),
    "record": ("/topics/orders/messages/0/3", "in the bucket"),
    "no-record": ("/topics/orders/messages/0/999999", "There is no record at this offset"),
    "groups": ("/groups", "search-index"),
    "group": ("/groups/billing", "Lag over time"),
    "dead-letters": ("/groups/billing/dead-letters", "orders.billing.dlq"),
    "archive": ("/archive", "the bucket works"),
    "archive-verify": ("/archive/verify", "Compare every object"),
    "archive-pins": ("/archive/pins", "No job holds a topic"),
    "brokers": ("/brokers", "Nothing moves between brokers"),
    "sql": ("/sql?q=SELECT%201", "Topics are tables"),
    "settings": ("/settings", "The broker"),
    "nowhere": ("/nowhere", "There is no such page"),
}


@pytest.mark.parametrize("page", PAGES)
def test_page(browser: Browser, scene: ServeProcess, page: str) -> None:
    place, expected = PAGES[page]
    for theme in ("light", "dark"):
        for size, name in ((WIDE, "wide"), (NARROW, "narrow")):
            browser.look(theme, size)
            if place == "/nowhere":
                browser.go(f"{scene.url}/console#{place}")
            else:
                browser.open(scene.url, place)
            browser.wait_for(expected)
            assert browser.overflow() <= 0, f"{page} is wider than {size[0]} px"
            browser.picture(f"{page}-{theme}-{name}")
    if place != "/nowhere":
        assert browser.title.endswith("tierlog")
        commands_are_shown(browser)
    browser.allowed = ("status of 404",) if page == "nowhere" else ()


def commands_are_shown(browser: Browser) -> None:
    browser.look("light", WIDE)
    browser.press("Copy as")
    browser.wait_for("The same from elsewhere")
    texts = [each.text for each in browser.all("dialog pre")]
    assert texts and all(texts)
    browser.press("Close", "dialog[open]")


def test_records_are_shown_as_text_whatever_they_hold(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/topics/inventory/messages/0/3")
    browser.wait_for("<script>alert(1)</script>")
    browser.wait_for("<img src=x onerror=alert(1)>")
    assert not browser.all("main img, main script")


def test_the_theme_is_kept(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url)
    assert browser.run("return document.documentElement.dataset.theme") == "light"
    browser.press("Use the dark theme")
    browser.open(scene.url, "/topics")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"


def test_everything_can_be_reached_by_keyboard(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/topics")
    browser.wait_for("payments")
    names = browser.run(
        """return [...document.querySelectorAll('a[href], button, input, select, textarea')]
        .filter((each) => each.offsetParent !== null && !each.disabled)
        .map((each) => [each.tabIndex, each.ariaLabel || each.innerText || each.closest('label')?.innerText || ''])"""
    )
    assert len(names) > 20
    assert all(tab >= 0 for tab, _ in names)
    assert all(name.strip() for _, name in names), "something has no name for a screen reader"


def test_a_narrow_window_has_a_menu(browser: Browser, scene: ServeProcess) -> None:
    browser.look("light", NARROW)
    browser.open(scene.url)
    assert not browser.all(".side")[0].is_displayed()
    browser.press("Pages")
    browser.picture("menu-light-narrow")
    browser.press("Groups")
    browser.wait_for("search-index")
    assert not browser.all(".side")[0].is_displayed()
