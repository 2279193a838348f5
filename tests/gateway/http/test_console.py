"""The console's files, who may see them, and what pages may do."""

import re

import pytest

from gateway.http.app import OPERATIONS
from gateway.http.console.files import read_files
from tests.gateway.http.conftest import Serve, Served

SCRIPT = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
ELSEWHERE = re.compile(r"""(?:https?:)?//(?!www\.w3\.org/2000/svg|127\.0\.0\.1:8080)[\w.-]+\.\w+""")


async def test_a_browser_is_led_to_the_console(served: Served) -> None:
    led = await served.get("/", headers={"Accept": "text/html,*/*"}, allow_redirects=False)
    assert (led.status, led.headers["Location"]) == (302, "console")
    assert (await served.get("/", headers={"Accept": "*/*"})).problem == "not-found"
    page = await served.get("/", headers={"Accept": "text/html"})
    assert page.status == 200 and page.body.startswith(b"<!doctype html>")
    folder = await served.get("/console/", allow_redirects=False)
    assert (folder.status, folder.headers["Location"]) == (302, "../console")


async def test_every_file_comes_under_the_same_policy(served: Served) -> None:
    names = read_files()
    assert {"index.html", "app.js", "base.css", "icon.svg"} <= names.keys()
    for path in ("/console", *(f"/console/{name}" for name in names)):
        reply = await served.get(path)
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        again = await served.get(path, headers={"If-None-Match": reply.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")


def test_no_file_names_another_host_or_needs_what_the_policy_forbids() -> None:
    for name, file in read_files().items():
        text = file.body.decode()
        assert not ELSEWHERE.search(text), name
        assert "innerHTML" not in text and "eval(" not in text and " style=" not in text, name


@pytest.mark.parametrize("name", ["nothing.js", "..%2Ffiles.py", "%2Fetc%2Fpasswd", "__init__.py"])
async def test_nothing_else_is_there(served: Served, name: str) -> None:
    assert (await served.get(f"/console/{name}")).problem == "not-found"


async def test_it_can_be_switched_off(serve: Serve) -> None:
    served = await serve(console="off")
    for path in ("/console", "/console/app.js"):
        assert (await served.get(path)).problem == "not-found"
    assert (await served.get("/", headers={"Accept": "text/html"})).problem == "not-found"


async def test_pages_of_other_sites_do_not_get_it(served: Served) -> None:
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert (await served.get("/console", headers=framed)).problem == "cross-site"
    assert (await served.get("/console", headers={"Host": "evil.example"})).problem == "unknown-host"


async def test_the_session_says_who_looks_and_what_is_offered(served: Served) -> None:
    told = (await served.get("/api/v1/session")).json
    assert (told["user"], told["login"], told["can_sign_out"]) == ("ANONYMOUS", "anonymous", False)
    assert told["may"] == ["describe", "alter", "create"] and told["console"] == "full"
    assert told["sql"] is (served.api.queries is not None) and told["archive"] is True


async def test_a_read_only_console_changes_nothing(serve: Serve) -> None:
    served = await serve(console="read-only")
    await served.make_topic("orders")
    for headers in (SCRIPT, {"Origin": f"http://{served.host}:{served.port}"}, {"X-Tierlog-Console": "1"}):
        for operation in OPERATIONS:
            if not operation.changes:
                continue
            path = operation.path.format(
                topic="orders",
                partition=0,
                group="g",
                broker=0,
                user="u",
                key="0123456789abcdef",
                query="q",
                transactional_id="t",
            )
            reply = await served.call(operation.method, path, json={}, headers=headers)
            assert (reply.status, reply.problem) == (403, "read-only"), operation.name
        assert (await served.get("/api/v1/topics", headers=headers)).status == 200
        asked = await served.post("/api/v1/cluster/ends", json={"topics": ["orders"]}, headers=headers)
        assert asked.json == {"topics": {"orders": [[0, 0, 0]]}}
    # Programs are not pages.
    assert (await served.post("/api/v1/topics/orders/messages", data=b"v")).status == 200


def test_only_questions_are_posts_that_change_nothing() -> None:
    questions = {each.name for each in OPERATIONS if each.reads and each.method != "GET"}
    assert questions <= {"listEnds", "verifyArchive", "runSql", "estimateSql", "cancelSql"}
