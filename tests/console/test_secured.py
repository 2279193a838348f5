"""Where a login is asked for, the console asks for it, acts as that user, and never as more."""

from pathlib import Path

import pytest

from tests.console.actions import ACTIONS
from tests.console.browser import Browser
from tests.console.scene import FLAGS
from tests.support.service import MakeService
from tierlog.client import Client, path
from tierlog.process import ServeProcess

REFUSED = ("status of 401", "status of 403", "status of 404")


@pytest.fixture
def secured(make_service: MakeService) -> ServeProcess:
    service = make_service(
        "--secure", "--set", "authorization.enabled=true", "--set", "authorization.super_users=admin",
        "--set", "audit.enabled=true", "--set", "audit.interval_ms=200",
    )  # fmt: skip
    service.scheme = "https"
    return service


def password(service: ServeProcess) -> str:
    return (Path(service.data_dir) / "secure" / "admin.password").read_text().strip()


def log_in(browser: Browser, user: str, secret: str) -> None:
    browser.type("User", user)
    browser.type("Password", secret)
    browser.press("Log in", "dialog[open]")


@pytest.mark.timeout(300)
def test_it_acts_as_the_user_who_logs_in(browser: Browser, secured: ServeProcess) -> None:
    browser.allowed = REFUSED
    browser.open(secured.url)
    browser.wait_for("asks for a login")
    browser.picture("login", whole=False)
    log_in(browser, "admin", "wrong")
    browser.wait_for("The login was refused")
    log_in(browser, "admin", password(secured))
    browser.wait_for("Everything is in order")
    assert "Sign out" in browser.text and "by password" not in browser.text

    browser.press("Access")
    browser.press("New user")
    browser.type("User", "eve")
    browser.type("Password", "eves-password")
    browser.press("Make the user", "dialog[open]")
    browser.wait_for("eve can log in")
    browser.picture("users", whole=False)
    browser.press("Access rules")
    browser.press("New rule")
    browser.type("Who", "eve")
    browser.choose("Operation", "describe")
    browser.type("Name", "seen")
    browser.press("Add the rule", "dialog[open]")
    browser.wait_for("The rule holds")
    browser.picture("rules", whole=False)
    for name in ("seen", "hidden"):
        browser.open(secured.url, "/topics")
        browser.press("New topic")
        browser.type("Name", name)
        browser.press("Make the topic", "dialog[open]")
        browser.wait_for("First offset")
    browser.press("Audit")
    browser.wait_for("createTopic")
    browser.picture("audit", whole=False)

    browser.press("Sign out")
    browser.wait_for("asks for a login")
    log_in(browser, "eve", "eves-password")
    browser.wait_for("You may not")
    browser.press("Topics")
    browser.wait_for("1 topic")
    assert "hidden" not in browser.text
    browser.press("seen")
    browser.wait_for("First offset")
    browser.press("Delete")
    browser.type("Type seen to confirm", "seen")
    browser.press("Delete the topic", "dialog[open]")
    browser.wait_for("you may not delete this topic")


@pytest.mark.timeout(300)
def test_no_login_is_left_for_other_pages(browser: Browser, secured: ServeProcess) -> None:
    browser.allowed = REFUSED
    browser.open(secured.url)
    log_in(browser, "admin", password(secured))
    browser.wait_for("Everything is in order")
    assert browser.run("return document.cookie") == ""
    assert browser.run("return Object.keys(localStorage)") == []
    # The browser itself holds no login: without the console's header a request of this very page is nobody's.
    fetched = "const done = arguments[0]; fetch('/api/v1/topics').then((answer) => done(answer.status))"
    assert browser.run_later(fetched) == 401


OFFERED = {name: action for name, action in ACTIONS.items() if not action.place.startswith("*")}


@pytest.mark.timeout(300)
def test_the_console_offers_what_a_read_only_one_does_not(
    browser: Browser, scene: ServeProcess, make_service: MakeService
) -> None:
    for action in OFFERED.values():
        browser.open(scene.url, action.place)
        browser.button(action.button, "main")
    service = make_service("--set", "http.console=read-only", *FLAGS)
    with Client(service.url) as client:
        client.post(path("topics"), {"name": "orders", "partitions": 1})
        client.post(path("topics", "orders", "messages", "batch"), {"messages": [{"value": "v"}] * 4})
        client.post(path("consumer-groups", "billing", "offsets"), {"topic": "orders", "partition": 0, "offset": 1})
        letter = {"topic": "orders", "partition": 0, "offset": 0, "reason": "no"}
        client.post(path("consumer-groups", "billing", "dead-letters"), letter)
    for name, action in OFFERED.items():
        browser.open(service.url, action.place)
        browser.wait_for("read-only")
        there = [each for each in browser.all("main button") if action.button in (each.text, each.accessible_name)]
        assert there == [], f"a read-only console offers to {name}"
    for name, action in ACTIONS.items():
        method, _, where = action.request.partition(" ")
        refused = """const done = arguments[2];
            fetch(arguments[1], {method: arguments[0], headers: {'Content-Type': 'application/json'}, body: '{}'})
            .then((answer) => answer.json()).then((problem) => done(problem.type))"""
        told = browser.run_later(refused, method, "/api/v1/" + where.replace("{}", "orders"))
        assert told == "urn:tierlog:problem:read-only", f"a page may {name}"
    browser.allowed = ("status of 403",)
