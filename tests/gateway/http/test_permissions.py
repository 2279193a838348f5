"""Every HTTP route × (no rule, a rule that denies, a rule that allows), with the exact answer."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest

from gateway.authorizer import AuthorizationSettings, Authorizer
from gateway.http.app import OPERATIONS
from gateway.http.peers import behalf
from gateway.http.permissions import Need, Open, Shown
from gateway.http.problems import Problem
from gateway.listener import Listener
from gateway.principal import Principal
from gateway.record_stream import RecordStream
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType, Rule
from hot_tier.cluster.image import ClusterImage
from tests.support.waiting import until

WHO = "User:ANONYMOUS"
SEEN, GHOST = "seen-topic", "ghost-topic"
T, G, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
X = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)


def allow(operation: Operation, kind: ResourceType, name: str = "", **also: Any) -> Rule:
    name = name or {T: SEEN, G: "g", C: CLUSTER_NAME, X: "x"}[kind]
    return Rule(kind, Pattern.LITERAL, name, WHO, "*", operation, Permission.ALLOW)._replace(**also)


@dataclass(frozen=True)
class Route:
    """`{topic}` in the path and the document is the topic that the request is about."""

    name: str
    path: str
    needs: tuple[Rule, ...]
    status: int
    """With all that is needed."""
    document: dict[str, Any] | None = None
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()


TOPIC_PATH = "/api/v1/topics/{topic}"
GROUP_PATH = "/api/v1/consumer-groups/g"
PARTITION_PATH = f"{TOPIC_PATH}/partitions/0"
AN_OFFSET = {"topic": "{topic}", "partition": 0, "offset": 0}
GROUP_AND_TOPIC = (allow(READ, G), allow(READ, T))
TRANSACTION_PATH = "/api/v1/transactions/x"
IN_TRANSACTION = (("X-Transaction", "4000-0"),)
A_RULE = {"resource_type": "topic", "name": "t", "principal": "User:eve", "operation": "read"}

ROUTES = (
    Route("postMessage", f"{TOPIC_PATH}/messages", (allow(WRITE, T),), 200, body=b"v"),
    Route("postMessages", f"{TOPIC_PATH}/messages/batch", (allow(WRITE, T),), 200, {"messages": [{"value": ""}]}),
    Route("getMessages", f"{PARTITION_PATH}/messages", (allow(READ, T),), 200),
    Route("getMessages", f"{PARTITION_PATH}/messages", GROUP_AND_TOPIC, 200, headers=(("X-Consumer-Group", "g"),)),
    Route("runSql", "/api/v1/sql", (allow(READ, T),), 200, {"query": 'SELECT count(*) FROM "{topic}"'}),
    Route("estimateSql", "/api/v1/sql/estimate", (allow(READ, T),), 200, {"query": 'SELECT 1 FROM "{topic}"'}),
    Route("findKey", f"{TOPIC_PATH}/keys/k", (allow(READ, T),), 200),
    Route("createTopic", "/api/v1/topics", (allow(CREATE, T),), 409, {"name": "{topic}"}),
    Route("createTopic", "/api/v1/topics", (allow(CREATE, C),), 409, {"name": "{topic}"}),
    Route("describeTopic", TOPIC_PATH, (allow(DESCRIBE, T),), 200),
    Route("changeTopic", TOPIC_PATH, (allow(ALTER, T),), 200, {"partitions": 4}),
    Route(
        "changeTopic",
        TOPIC_PATH,
        (allow(Operation.ALTER_CONFIGS, T), allow(DESCRIBE, T)),
        200,
        {"config": {"retention.ms": "-1"}},
    ),
    Route("deleteTopic", TOPIC_PATH, (allow(DELETE, T),), 204),
    Route("describeGroup", GROUP_PATH, (allow(DESCRIBE, G),), 404),
    Route("deleteGroup", GROUP_PATH, (allow(DELETE, G),), 404),
    Route("commitOffset", f"{GROUP_PATH}/offsets", GROUP_AND_TOPIC, 200, AN_OFFSET),
    Route("getOffsets", f"{GROUP_PATH}/offsets", (allow(DESCRIBE, G),), 200),
    Route("resetOffsets", f"{GROUP_PATH}/offsets/reset", GROUP_AND_TOPIC, 200, {"topic": "{topic}", "to": "earliest"}),
    Route("postDeadLetter", f"{GROUP_PATH}/dead-letters", GROUP_AND_TOPIC, 409, {**AN_OFFSET, "reason": "r"}),
    Route("postFailure", f"{GROUP_PATH}/failures", GROUP_AND_TOPIC, 409, {**AN_OFFSET, "reason": "r"}),
    Route("getDeadLetters", f"{GROUP_PATH}/dead-letters", (allow(DESCRIBE, G),), 200),
    Route("describeTransaction", TRANSACTION_PATH, (allow(DESCRIBE, X),), 404),
    Route("beginTransaction", f"{TRANSACTION_PATH}/begin", (allow(WRITE, X),), 200, {}),
    Route(
        "postTransactionMessages",
        f"{TRANSACTION_PATH}/topics/{{topic}}/messages",
        (allow(WRITE, X), allow(WRITE, T)),
        409,
        {"messages": [{"value": ""}]},
        headers=IN_TRANSACTION,
    ),
    Route(
        "addTransactionOffsets",
        f"{TRANSACTION_PATH}/offsets",
        (allow(WRITE, X), *GROUP_AND_TOPIC),
        409,
        {"group": "g", "offsets": [AN_OFFSET]},
        headers=IN_TRANSACTION,
    ),
    Route("commitTransaction", f"{TRANSACTION_PATH}/commit", (allow(WRITE, X),), 409, headers=IN_TRANSACTION),
    Route("abortTransaction", f"{TRANSACTION_PATH}/abort", (allow(WRITE, X),), 404),
    Route("getBucket", "/api/v1/archive", (allow(DESCRIBE, C),), 200),
    Route("listPins", "/api/v1/archive/pins?topic={topic}", (allow(DESCRIBE, T),), 200),
    Route("getTopicArchive", f"{TOPIC_PATH}/archive", (allow(DESCRIBE, T),), 200),
    Route("verifyArchive", "/api/v1/archive/verify", (allow(ALTER, C),), 200, {}),
    Route("collectArchiveGarbage", "/api/v1/archive/gc", (allow(ALTER, C),), 200),
    Route("considerProposals", f"{PARTITION_PATH}/archive/proposals", (allow(ALTER, T),), 200),
    Route("repairArchive", f"{PARTITION_PATH}/archive/repair", (allow(ALTER, C),), 409, {"decision": "recover"}),
    Route("restoreArchive", "/api/v1/archive/restore", (allow(ALTER, C),), 404, {"topics": ["{topic}x"]}),
    Route("getMoves", "/api/v1/cluster/moves", (allow(DESCRIBE, C),), 200),
    Route("rebalance", "/api/v1/cluster/rebalance", (allow(ALTER, C),), 200, {"dry_run": True}),
    Route("decommission", "/api/v1/cluster/brokers/77/decommission", (allow(ALTER, C),), 404),
    Route("recommission", "/api/v1/cluster/brokers/77/decommission", (allow(ALTER, C),), 404),
    Route("getDecommissioning", "/api/v1/cluster/brokers/77/decommission", (allow(DESCRIBE, C),), 404),
    Route("listUsers", "/api/v1/users", (allow(DESCRIBE, C),), 200),
    Route("setPassword", "/api/v1/users/eve/password", (allow(ALTER, C),), 204, {"password": "p"}),
    Route("deleteUser", "/api/v1/users/eve", (allow(ALTER, C),), 204),
    Route("listApiKeys", "/api/v1/api-keys", (allow(DESCRIBE, C),), 200),
    Route("createApiKey", "/api/v1/api-keys", (allow(ALTER, C),), 404, {"user": "nobody"}),
    Route("deleteApiKey", "/api/v1/api-keys/0123456789abcdef", (allow(ALTER, C),), 404),
    Route("listAcls", "/api/v1/acls", (allow(DESCRIBE, C),), 200),
    Route("addAcls", "/api/v1/acls", (allow(ALTER, C),), 200, {"acls": [A_RULE]}),
    Route("removeAcls", "/api/v1/acls?principal=User:eve", (allow(ALTER, C),), 200),
    Route("getCluster", "/api/v1/cluster", (allow(DESCRIBE, C),), 200),
    Route("getMetrics", "/metrics", (allow(DESCRIBE, C),), 200),
    Route("getFigures", "/api/v1/cluster/figures", (allow(DESCRIBE, C),), 200),
    Route("getOwnFigures", "/api/v1/cluster/figures/own", (allow(DESCRIBE, C),), 200),
    Route("listEnds", "/api/v1/cluster/ends", (allow(DESCRIBE, C),), 200, {"topics": ["{topic}"]}),
    Route("getLagHistory", f"{GROUP_PATH}/lag", (allow(DESCRIBE, G),), 200),
    Route("listTopicGroups", f"{TOPIC_PATH}/groups", (allow(DESCRIBE, T),), 200),
    Route("getTopicCost", f"{TOPIC_PATH}/archive/cost", (allow(DESCRIBE, T),), 200),
)
METHODS = {operation.name: operation.method for operation in OPERATIONS}
LISTS = {"listTopics", "listGroups", "listTransactions"}


@pytest.fixture
async def guarded(serve):
    node = await serve(authorization=AuthorizationSettings(True, ("root",)))
    await node.node.admin.create_topic(SEEN)
    return node


async def only(node, *wanted: Rule) -> None:
    await node.node.acls.remove(set(node.node.image.acls) - set(wanted))
    await node.node.acls.add(wanted)


async def ask(node, route: Route, topic: str):
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return value.replace("{topic}", topic) if isinstance(value, str) else value

    sent: dict[str, Any] = {"headers": dict(route.headers)}
    if route.document is not None:
        sent["json"] = filled(route.document)
    if route.body is not None:
        sent["data"] = route.body
    return await node.call(METHODS[route.name], filled(route.path), **sent)


def test_every_operation_is_tried():
    opened = {operation.name for operation in OPERATIONS if isinstance(operation.needs, Open)}
    probes = {"getHealth", "getHealthHead", "getReadiness", "getReadinessHead"}
    console = {"getRoot", "getConsole", "getConsoleFolder", "getConsoleFile", "getSession"}
    assert opened == probes | console | {"cancelSql"}
    lists = {each.name for each in OPERATIONS if _needs(each) and all(isinstance(n, Shown) for n in _needs(each))}
    assert lists == LISTS
    assert {route.name for route in ROUTES} == METHODS.keys() - opened - LISTS
    for operation in OPERATIONS:
        assert isinstance(operation.needs, Open) or operation.needs, f"{operation.name} needs nothing"


def _needs(operation) -> tuple[Need | Shown, ...]:
    return () if isinstance(operation.needs, Open) else operation.needs


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.name}-{len(route.needs)}")
async def test_matrix(guarded, route):
    await only(guarded)
    seen, ghost = await ask(guarded, route, SEEN), await ask(guarded, route, GHOST)
    assert (seen.status, seen.problem) == (403, "not-authorized")
    assert seen.body.replace(SEEN.encode(), GHOST.encode()) == ghost.body, "it tells whether a topic exists"
    for each in route.needs:
        await only(guarded, *route.needs, each._replace(permission=Permission.DENY))
        refused = await ask(guarded, route, SEEN)
        assert (refused.status, refused.problem) == (403, "not-authorized"), each
        if len(route.needs) > 1:
            await only(guarded, *(other for other in route.needs if other is not each))
            refused = await ask(guarded, route, SEEN)
            assert (refused.status, refused.problem) == (403, "not-authorized"), f"not needed: {each}"
    await only(guarded, *route.needs)
    if route.name == "deleteUser":
        await guarded.node.users.set_password("eve", "p")
    answered = await ask(guarded, route, SEEN)
    assert answered.status == route.status, answered


async def test_a_body_that_nobody_may_send_is_not_read(guarded):
    await only(guarded)
    refused = await guarded.post(f"/api/v1/topics/{SEEN}/messages", data=b"x" * 3_000_000)
    assert refused.problem == "not-authorized"
    wrong = await guarded.post("/api/v1/acls", data=b"no JSON", headers={"Content-Type": "application/json"})
    assert wrong.problem == "not-authorized"


async def test_lists_show_what_one_may_see(guarded):
    node = guarded.node
    await node.admin.create_topic("other-topic")
    await only(guarded, allow(READ, T), allow(READ, T, "other-topic"), allow(READ, G))
    for topic in (SEEN, "other-topic"):
        route = Route("commitOffset", f"{GROUP_PATH}/offsets", (), 200, AN_OFFSET)
        assert (await ask(guarded, route, topic)).status == 200
    await only(guarded)
    assert (await guarded.get("/api/v1/topics")).json == {"topics": [], "total": 0}
    assert (await guarded.get("/api/v1/consumer-groups")).json == {"groups": [], "total": 0}
    await only(guarded, allow(DESCRIBE, T), allow(DESCRIBE, G))
    assert [each["name"] for each in (await guarded.get("/api/v1/topics")).json["topics"]] == [SEEN]
    assert [each["group"] for each in (await guarded.get("/api/v1/consumer-groups")).json["groups"]] == ["g"]
    offsets = (await guarded.get(f"{GROUP_PATH}/offsets")).json["offsets"]
    assert [each["topic"] for each in offsets] == [SEEN]
    shown = (await guarded.get(f"/api/v1/topics/{SEEN}")).json
    assert shown["config"] == {}
    await only(guarded, allow(DESCRIBE, T), allow(Operation.DESCRIBE_CONFIGS, T))
    assert (await guarded.get(f"/api/v1/topics/{SEEN}")).json["config"]


async def test_a_read_that_waits_gets_nothing_once_it_is_not_allowed(guarded):
    path = f"/api/v1/topics/{SEEN}/partitions/0/messages"
    await only(guarded, allow(READ, T), allow(WRITE, T))
    waiting = asyncio.create_task(guarded.get(f"{path}?offset=latest&wait_ms=20000"))
    await until(lambda: guarded.api.metrics.long_polls)
    await only(guarded, allow(WRITE, T))
    await guarded.produce(SEEN, b"secret")
    refused = await waiting
    assert (refused.status, refused.problem) == (403, "not-authorized")


async def test_a_stream_ends_once_it_is_not_allowed(guarded, monkeypatch):
    await only(guarded, allow(READ, T), allow(WRITE, T))
    await guarded.produce(SEEN, b"first", b"secret")
    next_chunk = RecordStream.next
    asked = []

    async def then_refuse(stream):
        asked.append(stream)
        if asked.count(stream) == 2 and len(set(asked)) == 2:  # the stream of the answer, after one chunk
            await only(guarded, allow(WRITE, T))
        return await next_chunk(stream, 1)

    monkeypatch.setattr(RecordStream, "next", then_refuse)
    with pytest.raises(aiohttp.ClientError):
        await guarded.get(
            f"/api/v1/topics/{SEEN}/partitions/0/messages?offset=0", headers={"Accept": "application/x-ndjson"}
        )


async def test_nobody_forwards_but_who_may(guarded):
    path, forwarded = f"/api/v1/topics/{SEEN}", {"X-Tierlog-Forwarded": "0@0;alone"}
    as_root = {**forwarded, behalf.SENDER: behalf.write_sender(Principal("root", "password", "http", "127.0.0.1"))}
    await only(guarded)
    for headers in (forwarded, as_root):
        refused = await guarded.get(path, headers=headers)
        assert (refused.status, refused.problem) == (403, "wrong-listener")
    # Without names of brokers in tls.peers nobody is believed who somebody else is.
    await only(guarded, allow(Operation.CLUSTER_ACTION, C))
    assert (await guarded.get(path, headers=as_root)).problem == "not-authorized"


def test_a_sender_is_read_as_it_was_written():
    for scope in (None, frozenset(), frozenset({"read", "describe"})):
        principal = Principal("Ünï, 1\r\nX: y", "certificate", "http", "::1", scope)
        text = behalf.write_sender(principal)
        assert text.isascii() and text.isprintable() and behalf.read_sender(text) == principal
    for wrong in ("", "x", "[]", "%5B1%2C2%5D", "{}"):
        with pytest.raises(Problem):
            behalf.read_sender(wrong)


async def test_a_scope_holds_whatever_the_rules_allow(guarded):
    authorizer = guarded.node.authorizer
    root = Principal("root", "password", "http", "127.0.0.1")
    reader = replace(root, scope=frozenset({"read"}))
    assert authorizer.allows(root, WRITE, T, SEEN) and authorizer.allows(reader, READ, T, SEEN)
    assert authorizer.allows(reader, DESCRIBE, T, SEEN) and not authorizer.allows(reader, WRITE, T, SEEN)


def test_a_broker_is_one_by_its_certificate_where_brokers_come_in():
    on, names = AuthorizationSettings(True, ("root",)), frozenset({"broker"})
    authorizer = Authorizer(ClusterImage(None), on, names, frozenset({"inside"}))
    inside = Listener("inside", None, frozenset({"peers"}), peers=names)
    for kind, listener, may in (
        ("certificate", "inside", True),
        ("certificate", "partners", False),  # perhaps of another authority
        ("password", "inside", False),
        ("token", "inside", False),
    ):
        principal = Principal("broker", kind, listener, "::1")
        assert authorizer.allows(principal, ALTER, C) is may
        assert inside.is_peer(principal) is (kind == "certificate")


async def test_an_address_is_the_same_through_either_kind_of_socket(guarded):
    await only(guarded, allow(READ, T, host="10.0.0.7"))
    for address, may in (("10.0.0.7", True), ("::ffff:10.0.0.7", True), ("10.0.0.8", False), ("::1", False)):
        asked = Principal("ANONYMOUS", "anonymous", "http", address)
        assert guarded.node.authorizer.allows(asked, READ, T, SEEN) is may, address
    await only(guarded, allow(READ, T), allow(READ, T, host="fe80::1", permission=Permission.DENY))
    for address, may in (("fe80::1%eth0", False), ("fe80::2%eth0", True)):
        asked = Principal("ANONYMOUS", "anonymous", "http", address)
        assert guarded.node.authorizer.allows(asked, READ, T, SEEN) is may, address


async def test_decisions_about_endless_names_take_no_memory(guarded):
    authorizer = guarded.node.authorizer
    asked = Principal("ANONYMOUS", "anonymous", "http", "10.0.0.7")
    for number in range(50_000):
        assert not authorizer.allows(asked, READ, T, f"t{number}")
    assert not authorizer.allows(asked, READ, T, "x" * 30_000)
    assert len(authorizer._decided) <= 20_000 and max(len(each[3]) for each in authorizer._decided) < 300


async def test_without_authorization_only_a_scope_counts(serve):
    authorizer = (await serve()).node.authorizer
    anybody = Principal("x", "password", "http", "127.0.0.1")
    assert authorizer.allows(anybody, ALTER, C) and not authorizer.guards(anybody)
    reader = replace(anybody, scope=frozenset({"read"}))
    assert authorizer.guards(reader) and authorizer.allows(reader, DESCRIBE, T, "t")
    assert not authorizer.allows(reader, ALTER, C)


async def test_access_rules_over_http(guarded):
    await only(guarded, allow(ALTER, C))
    read = {**A_RULE, "name": "ord", "pattern": "prefixed"}
    added = await guarded.post("/api/v1/acls", json={"acls": [read, {**A_RULE, "permission": "deny"}]})
    whole = {"host": "*", "permission": "allow", **read}
    assert added.status == 200 and added.json["acls"][0] == whole
    listed = (await guarded.get("/api/v1/acls?pattern=match&name=orders&resource_type=topic")).json["acls"]
    assert listed == [whole]
    assert (await guarded.call("DELETE", "/api/v1/acls")).problem == "bad-parameter"
    removed = await guarded.call("DELETE", "/api/v1/acls?principal=User:eve&permission=deny")
    assert [each["permission"] for each in removed.json["acls"]] == ["deny"]
    assert len(guarded.node.image.acls) == 2
    for wrong in ({"operation": "fly"}, {"principal": "eve"}, {"name": ""}, {"resource_type": "toast"}):
        assert (await guarded.post("/api/v1/acls", json={"acls": [{**A_RULE, **wrong}]})).status in (400, 409), wrong


async def test_without_authorization_there_are_no_rules(serve):
    node = await serve()
    assert (await node.get("/api/v1/acls")).problem == "authorization-off"
    assert (await node.post("/api/v1/acls", json={"acls": [A_RULE]})).problem == "authorization-off"
