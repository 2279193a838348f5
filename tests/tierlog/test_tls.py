"""Brokers with TLS: clients of both protocols, who they are, and brokers that know each other by their certificates."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from gateway.coordinators.settings import GroupSettings
from gateway.http.peers.peers import FORWARDED, Peers
from gateway.http.settings import HttpSettings
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.fetch import FetchRequest, ReplicaState
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from gateway.tls import TlsSettings
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import SettingsError
from hot_tier.log.settings import LogSettings
from tests.gateway.kafka.wire import Wire
from tests.support.certificates import Authority, Files
from tests.support.members import Members, members
from tests.support.waiting import until
from tierlog.broker import Broker
from tierlog.listeners import plan_listeners
from tierlog.settings import Given, Settings, load_settings

RULES = ("RULE:^CN=([^,]+).*$/$1/", "DEFAULT")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def tls_of(authority: Authority, name: str, *peers: str) -> TlsSettings:
    files = authority.issue(name)
    return TlsSettings(files.certificate, files.key, authority.ca, RULES, peers)


@pytest.fixture
async def broker(tmp_path: Path, authority: Authority) -> AsyncIterator[Broker]:
    made = Broker(
        Settings(
            log=LogSettings(data_dir=str(tmp_path / "data"), min_free_bytes=0),
            kafka=KafkaSettings(port=0),
            http=HttpSettings(port=0),
            tls=tls_of(authority, "broker"),
            cluster=ClusterSettings(num_partitions=1),
            groups=GroupSettings(offsets_topic_partitions=1, initial_rebalance_delay_ms=0),
            listener={
                "kafka": ListenerSettings("tls", client_certificate="wanted"),
                "http": ListenerSettings("https", client_certificate="required"),
            },
        )
    )
    await made.start()
    yield made
    await made.stop()


def client_context(authority: Authority, files: Files | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if files is not None:
        context.load_cert_chain(*files)
    return context


async def test_librdkafka_produces_and_consumes(broker: Broker, authority: Authority) -> None:
    files = authority.issue("ada")
    common = {
        "bootstrap.servers": broker.kafka_address,
        "security.protocol": "SSL",
        "ssl.ca.location": authority.ca,
        "ssl.certificate.location": files.certificate,
        "ssl.key.location": files.key,
    }

    def use() -> list[bytes]:
        producer = Producer(common)
        for number in range(100):
            producer.produce("t", str(number))
        assert producer.flush(20) == 0
        consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = [message.value() for message in consumer.consume(100, 20)]
        consumer.close()
        return found

    assert await asyncio.to_thread(use) == [str(number).encode() for number in range(100)]


async def test_aiokafka_is_known_by_its_certificate(broker: Broker, authority: Authority) -> None:
    context = client_context(authority, authority.issue("ada"))
    at = {"bootstrap_servers": broker.kafka_address, "security_protocol": "SSL", "ssl_context": context}
    async with AIOKafkaProducer(**at) as producer:
        await producer.send_and_wait("t", b"value")
        assert {each.principal.name for each in broker.kafka.connections} == {"ada"}
        assert {each.principal.kind for each in broker.kafka.connections} == {"certificate"}
    async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **at) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"value"


async def test_where_a_certificate_is_wanted_one_may_come_without(broker: Broker, authority: Authority) -> None:
    host, _, port = broker.kafka_address.rpartition(":")
    async with Wire(host, int(port), client_context(authority)) as wire:
        assert (await wire.ask(ApiVersionsRequest(), 2)).error_code == 0
        assert [each.principal.name for each in broker.kafka.connections] == ["ANONYMOUS"]


async def test_nobody_comes_in_without_tls_or_by_another_authority(
    broker: Broker, authority: Authority, tmp_path: Path
) -> None:
    host, _, port = broker.kafka_address.rpartition(":")
    async with Wire(host, int(port)) as wire:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await wire.ask(ApiVersionsRequest(), 2)
    stranger = client_context(authority, Authority(tmp_path / "strange").issue("ada"))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ssl.SSLError)):
        async with Wire(host, int(port), stranger) as wire:
            await wire.ask(ApiVersionsRequest(), 2)
    old = client_context(authority)
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ConnectionError, ssl.SSLError)):
        async with Wire(host, int(port), old):
            pass
    await until(lambda: not broker.kafka.connections)
    assert broker.kafka.accepted == 0


async def test_https_with_and_without_a_certificate(broker: Broker, authority: Authority) -> None:
    url = f"https://{broker.http_address}"
    async with aiohttp.ClientSession() as client:
        with_one = client_context(authority, authority.issue("ada"))
        async with client.get(f"{url}/readyz", ssl=with_one) as reply:
            assert reply.status == 200
        with pytest.raises(aiohttp.ClientError):
            async with client.get(f"{url}/readyz", ssl=client_context(authority)):
                pass
        with pytest.raises(aiohttp.ClientError):
            async with client.get(f"http://{broker.http_address}/readyz"):
                pass


async def test_a_certificate_that_no_rule_fits_is_refused(tmp_path: Path, authority: Authority) -> None:
    files = authority.issue("broker")
    rules = ("RULE:^CN=(ada),.*$/$1/",)
    settings = Settings(
        log=LogSettings(data_dir=str(tmp_path / "data"), min_free_bytes=0),
        kafka=KafkaSettings(port=0),
        http=HttpSettings(port=0),
        tls=TlsSettings(files.certificate, files.key, authority.ca, rules),
        listener={
            "kafka": ListenerSettings("tls", client_certificate="required"),
            "http": ListenerSettings("https", client_certificate="required"),
        },
    )
    broker = Broker(settings)
    await broker.start()
    try:
        host, _, port = broker.kafka_address.rpartition(":")
        async with Wire(host, int(port), client_context(authority, authority.issue("ada"))) as wire:
            assert (await wire.ask(ApiVersionsRequest(), 2)).error_code == 0
        bob = client_context(authority, authority.issue("bob"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ssl.SSLError)):
            async with Wire(host, int(port), bob) as wire:
                await wire.ask(ApiVersionsRequest(), 2)
        async with aiohttp.ClientSession() as client:
            with pytest.raises(aiohttp.ClientError):
                async with client.get(f"https://{broker.http_address}/readyz", ssl=bob):
                    pass
    finally:
        await broker.stop()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("listener.kafka.protocol", "tls")], "has no certificate"),
        ([("tls.certificate", "a")], "tls.certificate and tls.key go together"),
        (
            [("listener.http.protocol", "https"), ("listener.http.certificate", "a")],
            "listener.http.certificate and listener.http.key go together",
        ),
        ([("listener.kafka.client_certificate", "required")], "client_certificate has no effect"),
        ([("listener.kafka.certificate", "a"), ("listener.kafka.key", "b")], "certificate has no effect"),
        ([("listener.kafka.ca", "a")], "ca has no effect"),
        (
            [
                ("tls.certificate", "a"),
                ("tls.key", "b"),
                ("listener.kafka.protocol", "tls"),
                ("listener.kafka.client_certificate", "wanted"),
            ],
            "asks for certificates and cannot check them",
        ),
        ([("cluster.metadata", "etcd://h:1"), ("tls.peers", "b")], "has no certificate to show"),
        (
            [("cluster.metadata", "etcd://h:1"), ("tls.peers", "b"), ("tls.certificate", "a"), ("tls.key", "b")],
            "takes peers without a certificate",
        ),
    ],
)
def test_a_broker_that_would_be_less_secure_than_asked_does_not_start(given: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        plan_listeners(load_settings(flags=[Given(key, value, f"--{key}") for key, value in given]))
    assert said in str(refused.value)


async def test_brokers_know_each_other_by_their_certificates(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients come in without TLS; replication and forwarded requests go by mutual TLS alone."""
    anywhere = "127.0.0.1:0"
    listener: dict[str, Any] = {
        "kafka": ListenerSettings(takes=("clients",)),
        "http": ListenerSettings(takes=("clients",)),
        "inside": ListenerSettings("tls", anywhere, takes=("peers",), client_certificate="required"),
        "inside-http": ListenerSettings("https", anywhere, takes=("peers",), client_certificate="required"),
    }
    tls = tls_of(authority, "broker", "broker")
    passed_on: list[str] = []
    send = Peers.send

    async def noted(peers: Peers, *asked: Any, headers: Any = (), **options: Any) -> aiohttp.ClientResponse:
        passed_on.extend(name.lower() for name, _ in headers)
        return await send(peers, *asked, headers=headers, **options)

    monkeypatch.setattr(Peers, "send", noted)
    async with members(tmp_path, listener=listener, tls=tls) as cluster:
        await cluster.make_topic("t", partitions=3, replicas=3, min_insync_replicas="3")
        for partition in range(3):
            asked = cluster.not_leading("t", partition)
            sent = await asked.post(
                "/api/v1/topics/t/messages",
                params={"partition": str(partition)},
                data=b"value",
                headers={"Authorization": "Basic YTpi", "X-Partition-Key": "k"},
            )
            assert sent.status in (200, 201), sent
        assert "x-partition-key" in passed_on
        assert "authorization" not in passed_on, "a password stays where it was checked"
        assert sum(each.api.peers.forwarded for each in cluster) == 3
        charged: list[str] = []
        for each in cluster:
            each.broker.node.quotas.charge = lambda *asked: charged.append(asked[4]) or 0
        batch = {"messages": [{"partition": partition, "value": ""} for partition in range(3)]}
        assert (await cluster[1].post("/api/v1/topics/t/messages/batch", json=batch)).status == 200
        assert set(charged) == {"ANONYMOUS"}, "a quota is the client's, whichever broker it asks"
        one = cluster[1].broker
        own = one.node.image.broker(one.node.node_id)
        assert own is not None
        kafka, http = own.endpoints["inside"], own.endpoints["inside-http"]
        asked_as = FetchRequest(replica_state=ReplicaState(2, own.epoch))
        clients = client_context(authority, authority.issue("ada"))
        async with Wire(kafka.host, kafka.port, client_context(authority, authority.issue("broker", file="b"))) as wire:
            answer = await wire.ask(asked_as, 17)
            assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH  # let in; it is not the process of broker 2
        for request in (asked_as, FetchRequest()):
            async with Wire(kafka.host, kafka.port, clients) as wire:
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await wire.ask(request, 17)
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"https://{http}/api/v1/topics", ssl=clients, headers={FORWARDED: "2@1"}) as reply,
        ):
            assert reply.status == 403


async def test_a_cluster_is_closed_broker_by_broker(tmp_path: Path, authority: Authority) -> None:
    """As docs/SECURING.md says: listeners for peers with TLS first, everywhere; then the others take no more peers."""
    anywhere = "127.0.0.1:0"
    inside: dict[str, Any] = {
        "inside": ListenerSettings("tls", anywhere, takes=("peers",), client_certificate="required"),
        "inside-http": ListenerSettings("https", anywhere, takes=("peers",), client_certificate="required"),
    }
    closed = {"kafka": ListenerSettings(takes=("clients",)), "http": ListenerSettings(takes=("clients",)), **inside}
    async with members(tmp_path) as cluster:
        await cluster.make_topic("t", partitions=3, replicas=3, min_insync_replicas="2")
        written = 0
        for settings in (
            {"listener": inside, "tls": tls_of(authority, "broker")},
            {"listener": closed, "tls": tls_of(authority, "broker", "broker")},
        ):
            cluster.settings.update(settings)
            for node_id in (1, 2, 3):
                await cluster.stop(node_id)
                await cluster.start(node_id)
                await until(lambda: in_sync(cluster), 30)
                for partition in range(3):
                    asked = cluster.not_leading("t", partition)
                    sent = await asked.post("/api/v1/topics/t/messages", params={"partition": partition}, data=b"value")
                    assert sent.status in (200, 201), sent
                    written += 1
        ends = [
            (await cluster[1].get(f"/api/v1/topics/t/partitions/{partition}/messages?offset=0")).json["messages"]
            for partition in range(3)
        ]
        assert sum(map(len, ends)) == written == 18


def in_sync(cluster: Members) -> bool:
    images = [each.broker.node.image for each in cluster]
    states = [image.partition_states(image.topic("t")) for image in images]
    return len(states) == 3 and all(len(state.isr) == 3 for seen in states for state in seen)
