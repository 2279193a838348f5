"""Permissions in a cluster: brokers copy and forward, a client's rules hold at all of them, and nobody passes as
another."""

from pathlib import Path
from typing import Any

from gateway.authorizer import AuthorizationSettings
from gateway.http.peers.behalf import SENDER, write_sender
from gateway.listener import ListenerSettings
from gateway.principal import Principal
from gateway.tls import TlsSettings
from hot_tier.cluster.acls import Operation, Pattern, Permission, ResourceType, Rule
from tests.gateway.http.conftest import Reply
from tests.support.certificates import Authority
from tests.support.members import Members, members

ANYWHERE = "127.0.0.1:0"
T, G = ResourceType.TOPIC, ResourceType.GROUP
OFFSETS = "/api/v1/consumer-groups/g/offsets"


def allow(operation: Operation, kind: ResourceType, name: str) -> Rule:
    return Rule(kind, Pattern.LITERAL, name, "User:ANONYMOUS", "*", operation, Permission.ALLOW)


async def write(cluster: Members, partition: int, **options: Any) -> Reply:
    asked = cluster.not_leading("t", partition)
    return await asked.post(f"/api/v1/topics/t/messages?partition={partition}", data=b"v", **options)


async def test_rules_hold_at_the_broker_that_is_asked_and_at_the_one_that_does_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    files = authority.issue("broker")
    tls = TlsSettings(files.certificate, files.key, authority.ca, ("RULE:^CN=([^,]+).*$/$1/", "DEFAULT"), ("broker",))
    listener = {
        "kafka": ListenerSettings(takes=("clients",)),
        "http": ListenerSettings(takes=("clients",)),
        "inside": ListenerSettings("tls", ANYWHERE, takes=("peers",), client_certificate="required"),
        "inside-http": ListenerSettings("https", ANYWHERE, takes=("peers",), client_certificate="required"),
    }
    authorization = AuthorizationSettings(True, ("root",))
    async with members(tmp_path, listener=listener, tls=tls, authorization=authorization) as cluster:
        node = cluster[1].broker.node
        for topic in ("t", "secret"):
            await node.admin.create_topic(topic, 3, 3, {"min.insync.replicas": "3"})
        rules = (
            allow(Operation.ALL, T, "t"),
            allow(Operation.READ, T, "secret"),
            allow(Operation.READ, G, "g"),
        )
        assert (await write(cluster, 0)).problem == "not-authorized"
        await node.acls.add(rules)
        await cluster.agree()
        for partition in range(3):  # stored at all three: brokers copy by their certificates
            assert (await write(cluster, partition)).status == 200
            reader = cluster.not_leading("t", partition)
            found = await reader.get(f"/api/v1/topics/t/partitions/{partition}/messages")
            assert len(found.json["messages"]) == 1
        for topic in ("t", "secret"):
            committed = await cluster[2].post(OFFSETS, json={"topic": topic, "partition": 0, "offset": 0})
            assert committed.status == 200, committed

        await node.acls.remove(rules[1:2])
        await cluster.agree()
        for member in cluster:  # two of them ask the group's coordinator
            told = (await member.get(OFFSETS)).json["offsets"]
            assert {each["topic"] for each in told} == {"t"}
            groups = (await member.get("/api/v1/consumer-groups")).json["groups"]
            assert [each["group"] for each in groups] == ["g"]

        await node.acls.remove(rules)
        await cluster.agree()
        root = {SENDER: write_sender(Principal("root", "password", "http", "127.0.0.1"))}
        assert (await write(cluster, 0, headers=root)).problem == "not-authorized"
        asked = cluster.not_leading("t", 0)
        asked.broker.node.authorizer.enabled = False  # as if it had not heard of it: the leader still refuses
        for headers in ({}, root):
            refused = await write(cluster, 0, headers=headers)
            assert (refused.status, refused.problem) == (403, "not-authorized")
