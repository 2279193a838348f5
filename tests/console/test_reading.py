"""Buttons that change nothing: they lead on, stop, copy, or take a file away."""

import pytest

from tests.console.browser import Browser
from tests.support.service import MakeService
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess


def test_one_goes_from_a_topic_to_its_records_and_on_to_a_query(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url)
    browser.press("All figures")
    browser.wait_for("Longest wait for the loop")
    browser.open(scene.url)
    browser.press("All groups")
    browser.wait_for("Consumer groups")
    browser.open(scene.url, "/topics/orders")
    browser.press("Messages")
    browser.wait_for("Up to the end")
    browser.press("Stop")
    browser.press("Query with SQL")
    browser.wait_for("Topics are tables")
    assert browser.field("Query").get_attribute("value") == "SELECT * FROM orders ORDER BY timestamp DESC LIMIT 100"


def test_one_steps_through_records(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/topics/orders/messages/0/3")
    browser.press("After")
    browser.wait_for("Partition 0, offset 4")
    browser.press("Before")
    browser.wait_for("Partition 0, offset 3")
    browser.press("Copy", "main")
    browser.wait_for("Copied")
    browser.press("Copy as")
    browser.press("Copy for SQL")
    browser.wait_for("Copied for SQL")


def test_a_query_is_an_example_a_file_and_can_be_ended(browser: Browser, scene: ServeProcess) -> None:
    pytest.importorskip("duckdb")
    browser.open(scene.url, "/sql")
    browser.press("Use: One key")
    assert "WHERE key = 'ada'" in str(browser.field("Query").get_attribute("value"))
    browser.type("Query", "SELECT 42 AS answer")
    browser.run(
        "window.taken = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => (blob.text().then((text) => window.taken.push(text)), make(blob))"
    )
    browser.press("Download")
    wait_until(lambda: browser.run("return window.taken"), "the file is taken")
    assert browser.run("return window.taken")[0].split() == ["answer", "42"]
    browser.type("Query", "SELECT count(*) FROM range(100000000000)")
    browser.press("Run")
    browser.wait_for("Running for")
    browser.press("Cancel")
    browser.wait_for("The query ends at the broker, too")
    wait_until(lambda: any(method == "DELETE" for method, _ in browser.requests()), "the broker is told")


def test_verification_can_be_stopped(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/archive/verify")
    browser.type("Topics", "payments")
    browser.press("The same as a command", "main")
    browser.wait_for("tierlog archive verify")
    browser.press("Stop", "main")
    browser.press("Verify", "main .form")
    browser.wait_for("Everything is as the manifests say", 90)


def test_lists_go_back(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/topics?skip=2")
    browser.wait_for("\n3–")
    browser.press("Previous")
    browser.wait_for("\n1–")


def test_a_broker_that_is_gone_is_asked_again(browser: Browser, make_service: MakeService) -> None:
    service = make_service()
    browser.open(service.url, "/topics")
    browser.wait_for("There are no topics yet")
    loaded = "return performance.getEntriesByType('resource').some((each) => each.name.endsWith('/groups.js'))"
    wait_until(lambda: browser.run(loaded), "other pages are loaded, too")
    service.kill()
    browser.allowed = ("ERR_CONNECTION_REFUSED",)
    browser.press("Groups")
    browser.wait_for("The broker does not answer")
    service.start()
    browser.press("Try again")
    browser.wait_for("There are no groups yet")
