"""Permissions as clients meet them: librdkafka's errors, Kafka's own tool, the command line, and starts refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import run_tool
from gateway.authorizer import AuthorizationSettings
from gateway.coordinators.settings import GroupSettings
from gateway.http.settings import HttpSettings
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from gateway.logins import LoginSettings
from hot_tier.cluster.acls import Operation, Pattern, Permission, Rule
from hot_tier.cluster.acls import ResourceType as Kind
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import SettingsError
from hot_tier.log.settings import LogSettings
from tierlog.broker import Broker
from tierlog.cli.app import run
from tierlog.listeners import plan_listeners
from tierlog.settings import Settings

PASSWORD = "a-long-password"
T, G = Kind.TOPIC, Kind.GROUP


def settings(directory: Path) -> Settings:
    kafka = ListenerSettings("sasl_plaintext", takes=("clients",), mechanisms=("SCRAM-SHA-256", "PLAIN"))
    return Settings(
        log=LogSettings(data_dir=str(directory / "data"), min_free_bytes=0),
        kafka=KafkaSettings(port=0, auto_create_topics=False),
        http=HttpSettings(port=0),
        login=LoginSettings("root", PASSWORD),
        authorization=AuthorizationSettings(True, ("User:root", "User:ANONYMOUS")),
        cluster=ClusterSettings(num_partitions=1),
        groups=GroupSettings(offsets_topic_partitions=1, initial_rebalance_delay_ms=0),
        listener={"kafka": kafka},
    )


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    made = Broker(settings(tmp_path))
    await made.start()
    await made.node.users.set_password("bob", PASSWORD)
    await made.node.admin.create_topic("seen")
    yield made
    await made.stop()


def login(broker: Broker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.kafka_address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


def allow(operation: Operation, kind: Kind, name: str) -> Rule:
    return Rule(kind, Pattern.LITERAL, name, "User:bob", "*", operation, Permission.ALLOW)


def produced(common: dict[str, Any]) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer = Producer({**common, "message.timeout.ms": 10_000})
    producer.produce("seen", b"v", on_delivery=lambda error, _: told.append(error))
    producer.flush(20)
    return told[0]


def consumed(common: dict[str, Any]) -> Any:
    consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["seen"])
    try:
        (found,) = consumer.consume(1, 20)
        return found.error() or found.value()
    finally:
        consumer.close()


def failure(call: Callable[[], Any]) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        call()
    error: KafkaError = raised.value.args[0]
    return error


async def test_librdkafka_gets_kafkas_errors(broker: Broker) -> None:
    bob, rules = login(broker, "bob"), broker.node.acls
    plain = {**bob, "enable.idempotence": False}
    error = await asyncio.to_thread(produced, plain)
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    error = await asyncio.to_thread(consumed, bob)
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    await rules.add([allow(Operation.READ, G, "g")])
    error = await asyncio.to_thread(consumed, bob)
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    admin = AdminClient(bob)
    made = await asyncio.to_thread(lambda: failure(admin.create_topics([NewTopic("new", 1, 1)])["new"].result))
    assert made.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    await rules.add([allow(Operation.ALL, T, "seen")])
    assert await asyncio.to_thread(produced, {**bob, "enable.idempotence": True}) is None
    assert await asyncio.to_thread(consumed, bob) == b"v"
    assert set((await asyncio.to_thread(admin.list_topics, timeout=10)).topics) == {"seen"}


async def test_librdkafka_keeps_the_rules(broker: Broker) -> None:
    root, bob = AdminClient(login(broker, "root")), AdminClient(login(broker, "bob"))
    rule = AclBinding(
        ResourceType.TOPIC,
        "ord",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )

    def use() -> None:
        assert root.create_acls([rule])[rule].result() is None
        assert root.describe_acls(every).result() == [rule]
        refused = failure(bob.create_acls([rule])[rule].result)
        assert refused.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
        assert root.delete_acls([every])[every].result() == [rule]
        assert root.describe_acls(every).result() == []

    await asyncio.to_thread(use)


@pytest.mark.java
async def test_kafka_acls(broker: Broker, tmp_path: Path) -> None:
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = tmp_path / "root.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="root" password="{PASSWORD}";\n'
    )

    async def run(*arguments: str) -> str:
        common = ("--bootstrap-server", broker.kafka_address, "--command-config", str(config))
        done = await asyncio.to_thread(run_tool, "kafka-acls", *common, *arguments)
        assert done.code == 0, done
        return done.out

    consumer = ("--allow-principal", "User:bob", "--consumer", "--topic", "ord", "--group", "g")
    await run("--add", *consumer, "--resource-pattern-type", "prefixed")
    await run("--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--operation", "Write", "--topic", "*")
    await run("--add", "--allow-principal", "User:bob", "--operation", "AlterConfigs", "--cluster")
    held = {(each.resource_type, each.pattern, each.name, each.operation) for each in broker.node.image.acls}
    assert held == {
        (T, Pattern.PREFIXED, "ord", Operation.READ),
        (T, Pattern.PREFIXED, "ord", Operation.DESCRIBE),
        (G, Pattern.PREFIXED, "g", Operation.READ),
        (T, Pattern.LITERAL, "*", Operation.WRITE),
        (Kind.CLUSTER, Pattern.LITERAL, "kafka-cluster", Operation.ALTER_CONFIGS),
    }
    listed = await run("--list", "--principal", "User:bob")
    assert "name=ord, patternType=PREFIXED" in listed and "10.0.0.1" not in listed
    await run("--remove", "--force", *consumer, "--resource-pattern-type", "prefixed")
    assert len(broker.node.image.acls) == 2


async def test_the_command_line(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    server = ("--server", f"http://{broker.http_address}")

    async def tierlog(*arguments: str) -> int:
        return await asyncio.to_thread(run, ["acl", *arguments, *server])

    assert await tierlog("add", "bob", "read,describe-configs", "--topic", "ord", "--prefix") == 0
    assert await tierlog("add", "*", "all", "--cluster", "--host", "10.0.0.1", "--deny") == 0
    assert len(broker.node.image.acls) == 3
    assert await tierlog("list", "--topic", "orders") == 0
    shown = capfd.readouterr().out
    assert "describe_configs" in shown and "kafka-cluster" not in shown
    assert await tierlog("remove", "bob", "read,describe_configs", "--topic", "ord", "--prefix") == 0
    assert await tierlog("remove", "bob", "read", "--topic", "ord", "--prefix") == 2
    assert await tierlog("add", "bob", "read") == 2
    assert await tierlog("add", "bob", "fly", "--topic", "t") == 2
    assert [each.permission for each in broker.node.image.acls] == [Permission.DENY]


async def test_a_broker_that_nobody_could_administer_does_not_start(tmp_path: Path) -> None:
    alone = replace(settings(tmp_path), authorization=AuthorizationSettings(True))
    with pytest.raises(SettingsError, match="nobody could do anything"):
        await Broker(alone).start()
    begun = Broker(settings(tmp_path))
    await begun.start()
    await begun.node.acls.add([allow(Operation.READ, T, "t")])
    await begun.stop()
    again = Broker(alone)  # there is a rule now
    await again.start()
    await again.stop()


@pytest.mark.parametrize("name", ["", "*", "User:*", "User:"])
def test_super_users_have_names(name: str) -> None:
    with pytest.raises(SettingsError, match="super_users"):
        AuthorizationSettings(True, (name,))


def test_a_cluster_knows_its_brokers_from_its_clients(tmp_path: Path) -> None:
    clustered = replace(
        settings(tmp_path),
        cluster=ClusterSettings(metadata="etcd://127.0.0.1:1"),
        listener={},
    )
    with pytest.raises(SettingsError, match="nothing shows which senders are the other brokers"):
        plan_listeners(clustered)
