"""Listeners from settings, and what a broker tells and refuses at each of them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.coordinators.settings import GroupSettings
from gateway.http.app import OPERATIONS
from gateway.http.peers.peers import FORWARDED
from gateway.http.settings import HttpSettings
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from gateway.kafka.protocol.messages.fetch import FetchRequest, ReplicaState
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from hot_tier.cluster import model
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.store import Put
from hot_tier.errors import SettingsError
from hot_tier.log.settings import LogSettings
from tests.gateway.kafka.wire import Wire
from tierlog.broker import Broker
from tierlog.listeners import plan_listeners
from tierlog.settings import Given, Settings, load_settings

CLIENTS, PEERS = ("clients",), ("peers",)


def settings_of(*given: tuple[str, Any]) -> Settings:
    return load_settings(flags=[Given(key, value, f"--{key}") for key, value in given])


def test_simple_settings_make_two_listeners_for_everyone() -> None:
    kafka, http = plan_listeners(settings_of(("kafka.port", "1"), ("kafka.advertised_host", "b"), ("http.port", "2")))
    assert (kafka.name, kafka.protocol, kafka.host, kafka.port) == ("kafka", "plaintext", "127.0.0.1", 1)
    assert (kafka.advertised_host, kafka.advertised_port) == ("b", 0)
    assert (http.name, http.protocol, http.host, http.port) == ("http", "http", "127.0.0.1", 2)
    assert (http.advertised_host, http.advertised_port) == ("127.0.0.1", 0)
    assert kafka.takes == http.takes == {"clients", "peers"}


def test_a_listener_can_be_given_in_each_of_the_three_ways(tmp_path: Path) -> None:
    inside = '[listener.in-side]\nprotocol = "plaintext"\nbind = "[::1]:7"\ntakes = ["peers"]\n'
    (tmp_path / "c.toml").write_text(inside + '[listener.kafka]\ntakes = "clients"\n')
    environment = {"TIERLOG_LISTENER__IN-SIDE__ADVERTISED": "there:8"}
    flags = [Given("listener.in-side.takes", "peers,clients", "--listener.in-side.takes")]
    settings = load_settings(config=str(tmp_path / "c.toml"), environment=environment, flags=flags)
    assert settings.listener == {
        "in-side": ListenerSettings("plaintext", "[::1]:7", "there:8", ("peers", "clients")),
        "kafka": ListenerSettings(takes=CLIENTS),
    }
    kafka, _, other = plan_listeners(settings)
    assert kafka.takes == {"clients"}
    assert (other.host, other.port, other.advertised_host, other.advertised_port) == ("::1", 7, "there", 8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("listener.x.colour", "red")], "there is no setting 'listener.x.colour'"),
        ([("listener.x y.bind", "h:1")], "a listener cannot have the name 'x y'"),
        ([("listener.x.takes", "friends")], "listener.x.takes cannot be 'friends'"),
        ([("listener.x.takes", "")], "listener.x.protocol cannot be ''"),
        ([("listener.x.protocol", "http"), ("listener.x.bind", "h:1"), ("listener.x.takes", "")], "takes nobody"),
        ([("listener.x.protocol", "plaintext")], "listener.x.bind cannot be ''"),
        ([("listener.x.protocol", "plaintext"), ("listener.x.bind", "nowhere")], "listener.x.bind cannot be 'nowhere'"),
        ([("listener.x.protocol", "ssl"), ("listener.x.bind", "h:1")], "listener.x.protocol cannot be 'ssl'"),
        ([("listener.kafka.protocol", "gssapi")], "listener.kafka.protocol cannot be 'gssapi'"),
        ([("listener.kafka.protocol", "http")], "listener.kafka.protocol cannot be 'http'"),
        ([("listener.http.bind", "h:1")], "listener.http.bind is not a setting of the listener 'http'"),
        ([("listener.kafka.takes", "peers")], "no kafka listener takes clients"),
        (
            [("cluster.metadata", "etcd://127.0.0.1:1"), ("listener.http.takes", "clients")],
            "no http listener takes peers",
        ),
    ],
)
def test_what_is_wrong_is_said(given: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        plan_listeners(settings_of(*given))
    assert said in str(refused.value)


# One broker with listeners for clients, for clients elsewhere, and for peers


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    anywhere = "127.0.0.1:0"
    made = Broker(
        Settings(
            log=LogSettings(data_dir=str(tmp_path), min_free_bytes=0),
            kafka=KafkaSettings(port=0),
            http=HttpSettings(port=0),
            cluster=ClusterSettings(num_partitions=1),
            groups=GroupSettings(offsets_topic_partitions=1),
            listener={
                "kafka": ListenerSettings(takes=CLIENTS),
                "http": ListenerSettings(takes=CLIENTS),
                "outside": ListenerSettings("plaintext", anywhere, "outside.example:19092", CLIENTS),
                "outside-http": ListenerSettings("http", anywhere, "outside.example:18080", CLIENTS),
                "inside": ListenerSettings("plaintext", anywhere, takes=PEERS),
                "inside-http": ListenerSettings("http", anywhere, takes=PEERS),
            },
        )
    )
    await made.start()
    yield made
    await made.stop()


def bound_at(broker: Broker, name: str) -> tuple[str, int]:
    (found,) = [each for each in (*broker.kafka.listeners, *broker.http.listeners) if each.name == name]
    host, port = found.socket.getsockname()
    return host, port


def told_at(broker: Broker, name: str) -> tuple[str, int]:
    return ("outside.example", 19092) if name == "outside" else bound_at(broker, name)


@pytest.mark.parametrize("name", ["kafka", "outside"])
async def test_clients_are_told_the_addresses_of_the_listener_that_they_came_in_by(broker: Broker, name: str) -> None:
    async with Wire(*bound_at(broker, name)) as wire:
        metadata = await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        described = await wire.ask(DescribeClusterRequest(), 1)
        found = await wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    brokers = [*metadata.brokers, *described.brokers, *found.coordinators]
    assert [(each.host, each.port) for each in brokers] == [told_at(broker, name)] * 3


async def test_a_broker_without_that_listener_is_not_there_for_its_clients(broker: Broker) -> None:
    node = broker.node
    await node.admin.create_topic("t")
    own = node.image.broker(node.node_id)
    assert own is not None
    fewer = replace(own, endpoints={name: at for name, at in own.endpoints.items() if name != "outside"})
    written = await node.store.transact([], [Put(model.broker_key(own.id), model.encode(fewer))])
    assert written is not None
    await node.image.reached(written)
    async with Wire(*bound_at(broker, "kafka")) as wire:
        (topic,) = (await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)).topics
        assert (topic.partitions[0].error_code, topic.partitions[0].leader_id) == (0, 0)
    async with Wire(*bound_at(broker, "outside")) as wire:
        (found,) = (await wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await wire.ask(DescribeClusterRequest(), 1)).brokers == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("kafka", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("outside", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("inside", ErrorCode.STALE_BROKER_EPOCH),  # It is let in, and is no broker of this cluster.
    ],
)
async def test_a_replica_fetch_is_refused_where_peers_are_not_taken(broker: Broker, name: str, code: ErrorCode) -> None:
    async with Wire(*bound_at(broker, name)) as wire:
        answer = await wire.ask(FetchRequest(replica_state=ReplicaState(7, 7)), 17)
    assert answer.error_code == code


async def test_a_listener_for_peers_takes_no_requests_of_clients(broker: Broker) -> None:
    async with Wire(*bound_at(broker, "inside")) as wire:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await wire.ask(MetadataRequest(topics=[]), 9)


def path_of(path: str) -> str:
    for name in ("topic", "group", "partition", "offset", "broker", "id", "number", "name"):
        path = path.replace(f"{{{name}}}", "1")
    return path


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
async def test_every_route_refuses_what_another_broker_passes_on(broker: Broker, operation: Any) -> None:
    host, port = bound_at(broker, "http")
    async with aiohttp.ClientSession(f"http://{host}:{port}") as client:
        forwarded = {FORWARDED: "7@1"}
        async with client.request(operation.method, path_of(operation.path), headers=forwarded) as reply:
            assert reply.status == 403
            if operation.method != "HEAD":
                assert (await reply.json(content_type=None))["type"].endswith("wrong-listener")


async def test_http_of_peers_and_of_clients(broker: Broker) -> None:
    async def asked(name: str, path: str, **headers: str) -> tuple[int, Any]:
        host, port = bound_at(broker, name)
        async with (
            aiohttp.ClientSession(f"http://{host}:{port}") as client,
            client.get(path, headers=headers) as reply,
        ):
            return reply.status, await reply.json(content_type=None)

    from_peer = {FORWARDED: "7@1"}
    assert (await asked("inside-http", "/api/v1/topics", **from_peer))[0] == 200
    assert (await asked("inside-http", "/api/v1/topics"))[0] == 403
    assert (await asked("inside-http", "/healthz"))[0] == 200
    for name, told in (("http", bound_at(broker, "http")), ("outside-http", ("outside.example", 18080))):
        status, cluster = await asked(name, "/api/v1/cluster")
        (shown,) = cluster["brokers"]
        assert (status, shown["http_host"], shown["http_port"]) == (200, *told)
        assert (shown["host"], shown["port"]) == bound_at(broker, "kafka")
