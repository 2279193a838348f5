"""What a web page can make a browser send is refused; what programs send is not."""

import pytest

from gateway.http.settings import HttpSettings
from hot_tier.errors import SettingsError
from tests.gateway.http.conftest import Serve, Served

MESSAGES = "/api/v1/topics/orders/messages"
READ = "/api/v1/topics/orders/partitions/0/messages"
TOPICS = "/api/v1/topics"

ROUTES = [
    ("POST", MESSAGES),
    ("POST", MESSAGES + "/batch"),
    ("GET", READ),
    ("POST", TOPICS),
    ("GET", TOPICS),
    ("GET", TOPICS + "/orders"),
    ("PATCH", TOPICS + "/orders"),
    ("DELETE", TOPICS + "/orders"),
    ("GET", "/api/v1/consumer-groups"),
    ("POST", "/api/v1/consumer-groups/g/offsets"),
    ("DELETE", "/api/v1/consumer-groups/g"),
    ("POST", "/api/v1/archive/gc"),
    ("POST", "/api/v1/cluster/rebalance"),
    ("POST", "/api/v1/cluster/brokers/0/decommission"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
]

OF_A_PAGE = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
]


@pytest.mark.parametrize("headers", OF_A_PAGE)
async def test_a_page_of_another_site_reaches_no_route(served: Served, headers: dict[str, str]) -> None:
    await served.make_topic("orders")
    for method, path in ROUTES:
        reply = await served.call(method, path, data=b"x" if method != "GET" else None, headers=headers)
        assert (reply.status, reply.problem) == (403, "cross-site"), path
    assert (await served.messages("orders"))["messages"] == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example"]
)
async def test_a_name_that_was_made_to_point_here_reaches_no_route(served: Served, host: str) -> None:
    await served.make_topic("orders")
    for method, path in ROUTES:
        # What the page says is true of itself: page and broker have one name.
        headers = {"Host": host, "Origin": f"http://{host}", "X-Tierlog-Forwarded": "1@1"}
        reply = await served.call(method, path, data=b"x" if method != "GET" else None, headers=headers)
        assert (reply.status, reply.problem) == (403, "unknown-host"), path
        assert "http.allowed_hosts" in reply.json["hint"]
    assert (await served.messages("orders"))["messages"] == []
    for path in ("/healthz", "/readyz"):
        assert (await served.get(path, headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "broker.localhost", "10.1.2.3:80", "[::1]:8080", "broker-1", "localhost."]
)
async def test_names_that_nobody_else_can_own(served: Served, host: str) -> None:
    assert (await served.get(TOPICS, headers={"Host": host})).status == 200
    # A page that the broker itself, or a proxy before it, served.
    for scheme in ("http", "https"):
        assert (await served.get(TOPICS, headers={"Host": host, "Origin": f"{scheme}://{host}"})).status == 200


async def test_names_that_the_operator_adds(serve: Serve) -> None:
    served = await serve(allowed_hosts=("Logs.example.com",))
    behind_proxy = {"Host": "logs.example.com", "Origin": "https://logs.example.com"}
    assert (await served.get(TOPICS, headers=behind_proxy)).status == 200
    # The proxy passes on its own name for the broker.
    assert (await served.get(TOPICS, headers={"Origin": "https://logs.example.com"})).status == 200
    assert (await served.get(TOPICS, headers={"Host": "other.example.com"})).problem == "unknown-host"


async def test_any_name_if_the_operator_says_so(serve: Serve) -> None:
    served = await serve(allowed_hosts=("*",))
    assert (await served.get(TOPICS, headers={"Host": "any.example.com"})).status == 200
    assert (await served.get(TOPICS, headers={"Origin": "https://evil.example"})).problem == "cross-site"


async def test_a_person_who_follows_a_link_is_let_through(served: Served) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await served.get("/metrics", headers=link)).status == 200
    form = await served.post("/api/v1/archive/gc", headers=link)
    assert (form.status, form.problem) == (403, "cross-site")


@pytest.mark.parametrize("sent", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_a_document_is_announced_as_json(served: Served, sent: str | None) -> None:
    headers = {} if sent is None else {"Content-Type": sent}
    skip = ["Content-Type"] if sent is None else []
    reply = await served.post(TOPICS, data=b'{"name":"made"}', headers=headers, skip_auto_headers=skip)
    assert (reply.status, reply.problem) == (415, "wrong-media-type")
    assert "Content-Type: application/json" in reply.json["hint"]
    assert (await served.get(TOPICS + "/made")).status == 404


@pytest.mark.parametrize("sent", ["application/x-www-form-urlencoded", "text/plain", "application/json"])
async def test_a_message_is_taken_whatever_it_is_announced_as(served: Served, sent: str) -> None:
    await served.make_topic("orders")
    assert (await served.post(MESSAGES, data=b"any bytes", headers={"Content-Type": sent})).status == 200


APP = "https://app.example"


async def test_pages_of_an_origin_that_the_operator_trusts(serve: Serve) -> None:
    served = await serve(cors_origins=(APP,))
    await served.make_topic("orders")
    asks = {"Origin": APP, "Access-Control-Request-Method": "DELETE", "Sec-Fetch-Site": "cross-site"}
    asked = await served.call("OPTIONS", TOPICS + "/orders", headers=asks)
    assert (asked.status, asked.body) == (204, b"")
    assert asked.headers["Access-Control-Allow-Origin"] == APP
    assert "DELETE" in asked.headers["Access-Control-Allow-Methods"]
    assert "Authorization" in asked.headers["Access-Control-Allow-Headers"]
    for path, status in ((TOPICS, 200), (TOPICS + "/none", 404)):
        reply = await served.get(path, headers={"Origin": APP, "Sec-Fetch-Site": "cross-site"})
        assert reply.status == status
        assert (reply.headers["Access-Control-Allow-Origin"], reply.headers["Vary"]) == (APP, "Origin")
        assert "Access-Control-Allow-Credentials" not in reply.headers
    own = await served.get(TOPICS)
    assert own.status == 200 and "Access-Control-Allow-Origin" not in own.headers
    assert own.headers["Vary"] == "Origin"
    for other in ("https://app.example:8443", "http://app.example", "https://app.example.evil", "null", APP + "/", "*"):
        reply = await served.get(TOPICS, headers={"Origin": other})
        assert reply.problem == "cross-site" and "Access-Control-Allow-Origin" not in reply.headers, other
        asked = await served.call("OPTIONS", TOPICS, headers={**asks, "Origin": other})
        assert asked.status == 403 and "Access-Control-Allow-Origin" not in asked.headers, other
    # The page's own name, made to point here, is still not the broker's.
    reply = await served.get(TOPICS, headers={"Origin": APP, "Host": "app.example"})
    assert reply.problem == "unknown-host"


async def test_without_trusted_origins_nothing_is_said(served: Served) -> None:
    asks = {"Origin": APP, "Access-Control-Request-Method": "GET"}
    assert (await served.call("OPTIONS", TOPICS, headers=asks)).problem == "cross-site"
    same = {"Access-Control-Request-Method": "GET"}
    assert (await served.call("OPTIONS", TOPICS, headers=same)).problem == "wrong-method"
    assert "Vary" not in (await served.get(TOPICS)).headers


@pytest.mark.parametrize(
    "origin", ["*", "null", "app.example", "https://App.example", "https://a.b/", "https://*.b", ""]
)
def test_origins_that_are_refused(origin: str) -> None:
    with pytest.raises(SettingsError, match="cors_origins"):
        HttpSettings(cors_origins=(origin,))
