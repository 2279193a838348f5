"""Users, API keys and access rules, as an administrator makes and ends them."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.console.browser import Browser
from tests.console.test_secured import REFUSED, log_in, password
from tests.console.test_secured import secured as secured
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess


def ask(service: ServeProcess, where: str, login: str) -> tuple[int, Any]:
    """Asks with a login of one's own, not with the browser's. Returns the status and the document."""
    request = urllib.request.Request(f"{service.url}/api/v1/{where}", headers={"Authorization": login})
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def basic(user: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()


@pytest.mark.timeout(300)
@pytest.mark.does("make a user", "change a password", "delete a user", "make a rule", "remove a rule")
def test_a_user_and_their_rule_come_and_go(browser: Browser, secured: ServeProcess) -> None:
    browser.allowed = REFUSED
    eve, admin = basic("eve", "another-password"), basic("admin", password(secured))
    browser.open(secured.url, "/access")
    log_in(browser, "admin", password(secured))
    browser.press("New user")
    browser.type("User", "eve")
    browser.type("Password", "eves-password")
    browser.confirm("Make the user", command="tierlog user create eve")
    browser.wait_for("eve can log in")
    browser.press("Password of eve")
    browser.type("Password", "another-password")
    browser.confirm("Change", command="tierlog user password eve")
    wait_until(lambda: ask(secured, "cluster", basic("eve", "eves-password"))[0] == 401, "the old password is gone")
    assert ask(secured, "cluster", eve)[0] == 403

    browser.press("Access rules")
    browser.press("New rule")
    browser.type("Who", "eve")
    browser.choose("Operation", "describe")
    browser.choose("With", "cluster")
    browser.confirm("Add the rule", command="tierlog acl add eve describe --cluster")
    browser.wait_for("The rule holds")
    assert ask(secured, "cluster", eve)[0] == 200
    browser.press("Remove the rule of User:eve for kafka-cluster")
    browser.confirm("Remove the rule", name="eve", command="tierlog acl remove eve describe --cluster")
    browser.wait_for("The rule is gone")
    assert ask(secured, "cluster", eve)[0] == 403
    assert ask(secured, "acls", admin)[1] == {"acls": []}

    browser.press("Users")
    browser.press("Delete eve")
    browser.confirm("Delete the user", name="eve", command="tierlog user delete eve")
    browser.wait_for("eve is deleted")
    assert ask(secured, "cluster", eve)[0] == 401
    assert [each["name"] for each in ask(secured, "users", admin)[1]["users"]] == ["admin"]


@pytest.mark.timeout(300)
@pytest.mark.does("make an API key", "delete an API key")
def test_an_api_key_works_until_it_is_deleted(browser: Browser, secured: ServeProcess) -> None:
    browser.allowed = REFUSED
    browser.open(secured.url, "/access/keys")
    log_in(browser, "admin", password(secured))
    browser.press("New API key")
    browser.choose("Works", "1 day")
    browser.choose("May", "describe")
    browser.confirm("Make the key", command="tierlog apikey create admin --expires 1d --scope describe")
    browser.wait_for("The key is shown once")
    browser.picture("api-key", whole=False)
    shown = browser.all("dialog[open] pre.mono")[-1].text
    browser.press("Copy", "dialog[open]")
    browser.wait_for("Copied")
    browser.press("Done", "dialog[open]")
    key = f"Bearer {shown}"
    [made] = ask(secured, "api-keys", key)[1]["api_keys"]
    assert (made["user"], made["scope"]) == ("admin", ["describe"]) and made["expires_ms"] > made["created_ms"]
    browser.wait_for(made["id"])
    assert shown not in browser.run("return document.documentElement.outerHTML"), "it is shown once"
    browser.press(f"Delete key {made['id']}")
    browser.confirm("Delete the key", name=made["id"], command=f"tierlog apikey delete {made['id']}")
    browser.wait_for("The key is deleted")
    assert ask(secured, "api-keys", key)[0] == 401


def test_the_audit_goes_back(browser: Browser, secured: ServeProcess) -> None:
    browser.allowed = REFUSED
    browser.open(secured.url, "/audit")
    log_in(browser, "admin", password(secured))
    browser.wait_for("a broker started")
    browser.press("Read older ones")
    browser.wait_for("a broker started")
