"""Logins over HTTP: tokens, API keys and certificates; each request is its own sender's."""

import asyncio
import json
import ssl
import time
from base64 import b64encode
from typing import Any

import aiohttp
import pytest

from gateway.http.api import Api
from gateway.http.routes import service
from gateway.logins import FailedLogins
from gateway.tokens.key_set import read_key_set
from hot_tier.clock import wall_ms
from hot_tier.cluster import api_keys
from hot_tier.cluster.quotas import QuotaAlteration
from hot_tier.cluster.store import Put
from hot_tier.errors import InvalidRequest, PolicyViolation
from tests.support.certificates import Authority, Files
from tests.support.identity_provider import Provider
from tierlog.broker import Broker


def bearer(shown: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {shown}"}


BOB = {"Authorization": "Basic " + b64encode(b"bob:bobs").decode()}


def at(broker: Broker, name: str) -> str:
    (found,) = [each for each in broker.http.listeners if each.name == name]
    return "https://{}:{}".format(*found.socket.getsockname())


def trusting(authority: Authority, own: Files | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if own is not None:
        context.load_cert_chain(*own)
    return context


class Client:
    def __init__(self, broker: Broker, context: ssl.SSLContext, listener: str = "http") -> None:
        self._session = aiohttp.ClientSession(at(broker, listener), connector=aiohttp.TCPConnector(ssl=context))

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def status(self, headers: dict[str, str], path: str = "/metrics", method: str = "GET", **more: Any) -> int:
        async with self._session.request(method, path, headers=headers, **more) as reply:
            await reply.read()
            return reply.status

    async def json(self, headers: dict[str, str], path: str, method: str = "GET", **more: Any) -> Any:
        async with self._session.request(method, path, headers=headers, **more) as reply:
            assert reply.status < 300, await reply.text()
            return await reply.json()


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are answered at once."""
    note = FailedLogins.note
    monkeypatch.setattr(FailedLogins, "note", lambda self, address: 0 * note(self, address))


@pytest.mark.usefixtures("prompt")
async def test_tokens(secured: Broker, authority: Authority, provider: Provider) -> None:
    async with Client(secured, trusting(authority)) as client:
        good = provider.token()
        assert await client.status(bearer(good)) == 200
        assert await client.status({"Authorization": f"bearer  {good}"}) == 200
        short = provider.token(exp=time.time() + 1)
        assert await client.status(bearer(short)) == 200
        wrong = (
            provider.token(exp=1000),
            provider.token(aud="other"),
            Provider().token(),
            "garbage",
            "tlk_",
            "tlk_x_y",
            "",
            "x" * 12_000,
            ".".join(["[" * 4000] * 3),
        )
        for token in wrong:
            assert await client.status(bearer(token)) == 401, token[:20]
        assert await client.status({**bearer(good), "X-Api-Key": "tlk_a_b"}) == 401
        assert await client.status({"Authorization": "Negotiate abc"}) == 401
        assert secured.node.failed_logins.total >= len(wrong) - 1
        await asyncio.sleep(1.2)
        assert await client.status(bearer(short)) == 401, "remembered for no longer than it holds"
        other = Provider()
        assert secured.node.tokens is not None
        secured.node.tokens._took(secured.node.tokens._source.read_file()._replace(keys=read_key_set(other.jwks())))
        assert await client.status(bearer(good)) == 401, "the provider has taken its key back"
        assert await client.status(bearer(other.token())) == 200


@pytest.mark.usefixtures("prompt")
async def test_api_keys(secured: Broker, authority: Authority) -> None:
    keys, node = "/api/v1/api-keys", secured.node
    async with Client(secured, trusting(authority)) as client:
        made = await client.json(BOB, keys, "POST", json={"user": "bob"})
        assert made["key"].startswith("tlk_")
        for shown in (bearer(made["key"]), {"X-Api-Key": made["key"]}):
            assert await client.status(shown) == 200
        for wrong in (made["key"][:-1], made["key"] + "x", made["key"].replace(made["id"], "0" * 16), made["id"]):
            assert await client.status(bearer(wrong)) == await client.status({"X-Api-Key": wrong}) == 401
        (listed,) = (await client.json(BOB, keys))["api_keys"]
        assert listed == {name: value for name, value in made.items() if name != "key"}
        kept = await node.store.get(api_keys.key_of("bob", made["id"]))
        secret = made["key"].rpartition("_")[2]
        assert kept is not None and secret.encode() not in kept.value

        short = await client.json(BOB, keys, "POST", json={"user": "bob", "expires_ms": wall_ms() + 800})
        assert await client.status(bearer(short["key"])) == 200
        await asyncio.sleep(1)
        assert await client.status(bearer(short["key"])) == 401

        assert await client.status(BOB, f"{keys}/{made['id']}", "DELETE") == 204
        assert await client.status(BOB, f"{keys}/{made['id']}", "DELETE") == 404
        assert await client.status(bearer(made["key"])) == 401
        for wrong, status in (
            ({"user": "eve"}, 404),
            ({"user": "bob", "expires_ms": 1}, 409),
            ({"user": "bob", "scope": []}, 400),
            ({"user": "bob", "scope": ["everything"]}, 400),
            ({"user": "bob", "more": 1}, 400),
            ({"user": ""}, 400),
        ):
            assert await client.status(BOB, keys, "POST", json=wrong) == status, wrong


@pytest.mark.usefixtures("prompt")
async def test_a_key_dies_with_its_user(secured: Broker, authority: Authority) -> None:
    node = secured.node
    async with Client(secured, trusting(authority)) as client:
        await node.users.set_password("eve", "eves")
        key = (await node.users.create_key("eve", wall_ms())).shown
        await node.users.create_key("bob", wall_ms())
        assert await client.status(bearer(key)) == 200
        await node.users.set_password("eve", "another")
        assert await client.status(bearer(key)) == 200
        await node.users.delete("eve")
        assert await client.status(bearer(key)) == 401
        await node.users.set_password("eve", "eves")
        assert await client.status(bearer(key)) == 401, "a user of the same name is somebody else"
        assert (await node.store.range(api_keys.of_user("eve"))).items == ()
        assert {each.user for each in node.image.api_keys.values()} == {"bob"}


async def test_no_key_slips_past_the_deletion_of_its_user(secured: Broker) -> None:
    users = secured.node.users
    for _ in range(10):
        await users.set_password("eve", "eves")
        await asyncio.gather(
            *(users.create_key("eve", wall_ms()) for _ in range(3)), users.delete("eve"), return_exceptions=True
        )
        if "eve" in secured.node.image.users:
            await users.delete("eve")
        assert not secured.node.image.api_keys
        assert (await secured.node.store.range(api_keys.PREFIX)).items == ()


async def test_keys_are_bounded(secured: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    users = secured.node.users
    for _ in range(api_keys.MAX_KEYS_OF_USER):
        await users.create_key("bob", wall_ms())
    with pytest.raises(PolicyViolation):
        await users.create_key("bob", wall_ms())
    with pytest.raises(InvalidRequest):
        await users.create_key("bob", wall_ms(), scope=frozenset({"everything"}))
    await users.delete("bob")
    assert not secured.node.image.api_keys


@pytest.mark.usefixtures("prompt")
async def test_a_scope_holds(secured: Broker, authority: Authority) -> None:
    """Also where permissions are off."""
    keys, topics, messages = "/api/v1/api-keys", "/api/v1/topics", "/api/v1/topics/t/messages"
    async with Client(secured, trusting(authority)) as client:

        async def key(*scope: str) -> dict[str, str]:
            made = await client.json(BOB, keys, "POST", json={"user": "bob", "scope": scope})
            assert made["scope"] == sorted(scope)
            return bearer(made["key"])

        await client.json(BOB, topics, "POST", json={"name": "t", "partitions": 1})
        reading, writing, altering = await key("read"), await key("write", "describe"), await key("read", "alter")
        read = "/api/v1/topics/t/partitions/0/messages?offset=0"
        for headers, may_read, may_write in ((reading, 200, 403), (writing, 403, 200), (BOB, 200, 200)):
            assert await client.status(headers, read) == may_read
            assert await client.status(headers, messages, "POST", data=b"x") == may_write
        for path in (f"{topics}/t", "/api/v1/users/bob"):
            assert await client.status(reading, path, "DELETE") == 403
        assert await client.status(reading, keys, "POST", json={"user": "bob"}) == 403
        for scope, status in ((None, 403), (["read", "write"], 403), (["read"], 201)):
            body = {"user": "bob", "scope": scope}
            assert await client.status(altering, keys, "POST", json=body) == status
        password = {"password": "bobs"}
        for headers, status in ((altering, 403), (BOB, 204)):
            assert await client.status(headers, "/api/v1/users/bob/password", "PUT", json=password) == status


@pytest.mark.usefixtures("prompt")
@pytest.mark.usefixtures("prompt")
async def test_a_scope_is_not_left_by_rules_for_somebody_else(secured: Broker, authority: Authority) -> None:
    secured.node.authorizer.enabled = True
    secured.node.authorizer._super_users = frozenset({"bob"})
    rule = {"resource_type": "topic", "name": "t", "principal": "User:eve", "host": "*", "pattern": "literal"}
    async with Client(secured, trusting(authority)) as client:

        async def add(headers: dict[str, str], operation: str, permission: str = "allow") -> int:
            body = {"acls": [{**rule, "operation": operation, "permission": permission}]}
            return await client.status(headers, "/api/v1/acls", "POST", json=body)

        body = {"user": "bob", "scope": ["alter", "read"]}
        altering = bearer((await client.json(BOB, "/api/v1/api-keys", "POST", json=body))["key"])
        for operation, status in (("read", 200), ("alter", 200), ("write", 403), ("all", 403)):
            assert await add(altering, operation) == status, operation
        assert await add(BOB, "write", "deny") == 200
        deny = "/api/v1/acls?permission=deny"
        assert await client.status(altering, deny, "DELETE") == 403
        assert await client.status(BOB, deny, "DELETE") == 200


async def test_certificates(secured: Broker, authority: Authority, provider: Provider) -> None:
    """`wanted`: a certificate is a login. `required`: everybody shows one, and logs in on top of it."""
    own = trusting(authority, authority.issue("carol"))
    charged = spy(secured)
    async with Client(secured, own, "wanted") as client:
        await client.json({}, "/api/v1/topics", "POST", json={"name": "t", "partitions": 1})
        assert await client.status(bearer("garbage")) == 401, "a wrong login is not made good by a certificate"
        for headers in ({}, BOB, {}, bearer(provider.token())):
            assert await produce(client, headers) < 300
        assert charged == {"http": ["carol", "bob", "carol", "ada"]}
    async with Client(secured, trusting(authority), "wanted") as client:
        assert await client.status({}) == 401
        assert await client.status(BOB) == 200
    async with Client(secured, own, "both") as client:
        assert await client.status({}) == 401
        assert await client.status(BOB) == 200
    async with Client(secured, trusting(authority), "both") as client:
        with pytest.raises(aiohttp.ClientError):
            await client.status(BOB)


def spy(broker: Broker) -> dict[str, list[str]]:
    """Returns a map that gets, by client id, the user of each produce request."""
    users: dict[str, list[str]] = {}

    def note(client_id: str, kind: Any, nbytes: int, now_ms: int, user: str = "") -> int:
        users.setdefault(client_id, []).append(user)
        return 0

    broker.node.quotas.charge = note  # type: ignore[method-assign]
    return users


async def produce(client: Client, headers: dict[str, str]) -> int:
    return await client.status(headers, "/api/v1/topics/t/messages", "POST", data=b"x")


async def test_requests_of_several_users_on_one_connection(
    secured: Broker, authority: Authority, provider: Provider
) -> None:
    """Pipelined, so that the next request is there while one is worked on."""
    charged = spy(secured)
    async with Client(secured, trusting(authority)) as client:
        await client.json(BOB, "/api/v1/topics", "POST", json={"name": "t", "partitions": 1})
    host, port = secured.http_address.split(":")
    token = provider.token()
    wanted = [("bob", BOB), ("ada", bearer(token)), ("eve", bearer(provider.token("eve")))] * 20

    async def talk(order: int) -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting(authority))
        turns = wanted[order:] + wanted[:order]
        for _, headers in turns:
            login = headers["Authorization"]
            writer.write(
                b"POST /api/v1/topics/t/messages HTTP/1.1\r\nHost: x\r\nX-Client-Id: c%d\r\n" % order
                + f"Authorization: {login}\r\nContent-Length: 1\r\n\r\nx".encode()
            )
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(2 * len(turns)):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] in (b"200", b"201"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
        writer.close()

    await asyncio.gather(*(talk(order) for order in range(3)))
    names = [name for name, _ in wanted]
    assert charged == {f"c{order}": names[order:] + names[:order] for order in range(3)}


async def test_readiness_tells_nothing_of_the_cluster_to_whom_nobody_knows(
    secured: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_warnings", lambda node: ["a log takes no writes: secret-topic"])
    own = trusting(authority, authority.issue("carol"))
    for context, listener, headers, told in (
        (trusting(authority), "http", {}, False),
        (trusting(authority), "http", BOB, True),
        (trusting(authority), "wanted", {}, False),
        (own, "wanted", {}, True),
        (own, "both", {}, False),
    ):
        async with Client(secured, context, listener) as client:
            assert bool((await client.json(headers, "/readyz"))["warnings"]) is told, (listener, headers)


async def test_a_page_that_came_without_tls_does_not_use_a_browsers_certificate(
    secured: Broker, authority: Authority
) -> None:
    async with Client(secured, trusting(authority, authority.issue("carol")), "wanted") as client:
        for host in ("localhost", "localhost:8443"):
            for scheme, status in (("https", 200), ("http", 403)):
                assert await client.status({"Host": host, "Origin": f"{scheme}://{host}"}) == status, (host, scheme)


@pytest.mark.usefixtures("prompt")
async def test_nobody_tries_passwords_at_readiness_unseen(secured: Broker, authority: Authority) -> None:
    wrong = {"Authorization": "Basic " + b64encode(b"bob:x").decode()}
    async with Client(secured, trusting(authority)) as client:
        assert await client.status(wrong, "/readyz") == 401
        assert await client.status(wrong, "/healthz") == await client.status(BOB, "/readyz") == 200


async def test_a_page_asks_before_it_logs_in(secured: Broker, authority: Authority) -> None:
    page = {"Origin": "https://app.example"}
    async with Client(secured, trusting(authority)) as client:
        assert await client.status({**page, "Access-Control-Request-Method": "GET"}, "/metrics", "OPTIONS") == 204
        assert await client.status({**page, "Access-Control-Request-Method": "GET"}, "/metrics") == 401
        assert await client.status(page, "/metrics", "OPTIONS") == 401
        assert await client.status({**page, **BOB}) == 200


async def test_a_users_quota_counts_whatever_the_client_says_it_is(
    secured: Broker, authority: Authority, provider: Provider
) -> None:
    node, metrics = secured.node, secured.http.app[Api.KEY].metrics
    limits = {"producer_byte_rate": 10_000.0, "consumer_byte_rate": 10_000.0}
    assert await node.quota_admin.alter([QuotaAlteration({"user": "ada"}, limits)]) == [None]
    async with Client(secured, trusting(authority)) as client:
        await client.json(BOB, "/api/v1/topics", "POST", json={"name": "t", "partitions": 1})

        async def throttled_ms(headers: dict[str, str], name: str, nbytes: int) -> int:
            before = metrics.throttled_ms
            path = "/api/v1/topics/t/messages"
            named = {**headers, "X-Client-Id": name}
            assert await client.status(named, path, "POST", data=b"x" * nbytes) == 200
            return metrics.throttled_ms - before

        ada = bearer(provider.token())
        assert await throttled_ms(BOB, "a", 110_000) == 0
        assert await throttled_ms(ada, "a", 101_000) > 0
        assert await throttled_ms(ada, "b", 500) > 0, "another client id is no other account"
        assert await throttled_ms(BOB, "a", 500) == 0
        # Kafka's handlers charge the same accounts.
        assert node.quotas.charge("k", "produce", 5_000, node.clock(), "ada") > 0
        before = metrics.throttled_ms
        messages = "/api/v1/topics/t/partitions/0/messages?offset=0&max_bytes=150000"
        assert await client.status({**ada, "X-Client-Id": "c"}, messages) == 200
        assert metrics.throttled_ms > before, "reading has an account of its own"


async def test_a_key_in_metadata_that_is_damaged_lets_nobody_in(secured: Broker) -> None:
    made = await secured.node.users.create_key("bob", wall_ms(), wall_ms() + 60_000, frozenset({"read"}))
    place = api_keys.key_of("bob", made.kept.id)
    kept = await secured.node.store.get(place)
    assert kept is not None
    assert api_keys.decode(place, kept.value) == made.kept
    said = json.loads(kept.value)
    for name in said:
        less = json.dumps({each: value for each, value in said.items() if each != name}).encode()
        revision = await secured.node.store.transact([], [Put(place, less)])
        assert revision is not None
        await secured.node.image.reached(revision)
        assert made.kept.id not in secured.node.image.api_keys, name
