"""The audit as its readers meet it: who did what, from where, with which result, and what nobody can do to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import duckdb
import orjson
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from gateway.audit.events import LIFECYCLE, START, STOP
from gateway.audit.settings import AuditSettings
from gateway.coordinators.settings import GroupSettings
from gateway.http.peers.peers import FORWARDED
from gateway.http.settings import HttpSettings
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from gateway.logins import LoginSettings
from gateway.record_stream import RecordStream
from gateway.tls import TlsSettings
from hot_tier.cluster.model import Topic, initial_state, new_topic_id
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import InvalidTopicName, SettingsError
from hot_tier.log.settings import LogSettings
from offloader.settings import OffloadSettings
from tests.gateway.audit import ocsf
from tests.support.certificates import Authority
from tests.support.members import members
from tests.support.waiting import until
from tierlog.broker import Broker
from tierlog.listeners import plan_listeners
from tierlog.settings import Given, Settings, load_settings

ROOT = Path(__file__).parents[2]
PASSWORD = "correct-horse-battery"
WRONG = "not-the-password-7391"
VALUE = b"payload-5520-secret"


def settings(directory: Path, **audit: Any) -> Settings:
    return Settings(
        log=LogSettings(data_dir=str(directory), min_free_bytes=0),
        kafka=KafkaSettings(port=0),
        http=HttpSettings(port=0),
        audit=AuditSettings(enabled=True, partitions=1, **{"interval_ms": 300, **audit}),
        cluster=ClusterSettings(num_partitions=1),
        groups=GroupSettings(offsets_topic_partitions=1, initial_rebalance_delay_ms=0),
    )


def with_logins(directory: Path, authority: Authority, **audit: Any) -> Settings:
    files = authority.issue("broker")
    plain = settings(directory, **audit)
    return Settings(
        log=plain.log,
        kafka=plain.kafka,
        http=plain.http,
        audit=plain.audit,
        cluster=plain.cluster,
        groups=plain.groups,
        tls=TlsSettings(files.certificate, files.key, authority.ca),
        login=LoginSettings("ada", PASSWORD),
        listener={
            "kafka": ListenerSettings("sasl_tls", takes=("clients",)),
            "http": ListenerSettings("https", takes=("clients",), login="required"),
        },
    )


async def events(broker: Broker) -> list[dict[str, Any]]:
    """Returns all events that are written, each checked."""
    topic = broker.node.image.find_topic("__audit")
    found: list[dict[str, Any]] = []
    for number in range(0 if topic is None else topic.partitions):
        partition = broker.node.partitions.get("__audit", number)
        stream = RecordStream(broker.node, partition, partition.log_start_offset, partition.high_watermark)
        while (chunk := await stream.next()) is not None:
            found += [orjson.loads(record.value or b"") for record in await chunk.records()]
    for event in found:
        ocsf.check(event)
    return found


async def wait_for(broker: Broker, *operations: str, seconds: float = 10) -> list[dict[str, Any]]:
    """Returns all events once these operations are among them."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = await events(broker)
        missing = set(operations) - {operation(each) for each in found}
        if not missing:
            return found
        assert asyncio.get_running_loop().time() < deadline, (missing, found)
        await asyncio.sleep(0.1)


def operation(event: dict[str, Any]) -> str:
    return str(event["api"]["operation"] if "api" in event else event.get("auth_protocol", ""))


def of(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [each for each in found if operation(each) == name]


def names(event: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["type"], each["name"]) for each in event.get("resources", ())}


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Any]:
    running: list[Broker] = []

    async def begin(asked: Settings) -> Broker:
        broker = Broker(asked)
        await broker.start()
        running.append(broker)
        return broker

    yield begin
    for each in running:
        await each.stop()


def librdkafka(broker: Broker, authority: Authority | None = None, password: str = PASSWORD) -> dict[str, Any]:
    plain = {"bootstrap.servers": broker.kafka_address, "client.id": "tests"}
    if authority is None:
        return plain
    return plain | {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.ca,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": password,
    }


async def test_who_did_what_with_which_result(start: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    broker = await start(with_logins(tmp_path / "data", authority))

    def use() -> None:
        admin = AdminClient(librdkafka(broker, authority))
        made = admin.create_topics([NewTopic("orders", 1, config={"retention.ms": "123456"})])
        made["orders"].result(10)
        with pytest.raises(KafkaException):
            admin.create_topics([NewTopic("orders", 1)])["orders"].result(10)
        producer = Producer(librdkafka(broker, authority))
        producer.produce("orders", VALUE)
        assert producer.flush(10) == 0
        wrong = AdminClient(librdkafka(broker, authority, WRONG))
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)

    await asyncio.to_thread(use)
    context = ssl.create_default_context(cafile=authority.ca)
    async with aiohttp.ClientSession(f"https://{broker.http_address}") as client:
        for password, status in ((PASSWORD, 204), (WRONG, 401)):
            shown = {"Authorization": aiohttp.encode_basic_auth("ada", password)}
            async with client.delete("/api/v1/topics/orders", headers=shown, ssl=context) as reply:
                assert reply.status == status, await reply.text()
        async with client.get("/api/v1/topics", ssl=context) as reply:
            assert reply.status == 401
    found = await wait_for(broker, "CreateTopics", "deleteTopic", "listTopics", "SCRAM-SHA-512", "basic")

    made, again = of(found, "CreateTopics")
    assert made["actor"]["user"]["name"] == "ada" and made["status_id"] == 1
    assert made["src_endpoint"]["ip"] == "127.0.0.1" and made["unmapped"]["client_id"] == "tests"
    assert names(made) == {("topic", "orders"), ("config", "retention.ms")}
    assert again["status_code"] == "TOPIC_ALREADY_EXISTS" and again["unmapped"]["outcome"] == "failed"
    assert again["resources"][0]["data"] == {"error": "TOPIC_ALREADY_EXISTS"}

    logins = of(found, "SCRAM-SHA-512")
    assert {(each["status_id"], each["user"]["name"]) for each in logins} == {(1, "ada"), (2, "ada")}
    (refused,) = {each["unmapped"]["outcome"] for each in logins if each["status_id"] == 2}
    assert refused == "refused"
    assert {each["status_id"] for each in of(found, "basic")} == {1, 2}
    (deleted,) = of(found, "deleteTopic")
    assert names(deleted) == {("topic", "orders")} and deleted["http_response"]["code"] == 204
    assert deleted["http_request"]["url"]["path"] == "/api/v1/topics/orders"
    (listed,) = of(found, "listTopics")
    assert listed["unmapped"]["outcome"] == "refused" and listed["status_code"] == "login-needed"

    assert not of(found, "Produce"), "not one of the kinds that are asked for"
    text = orjson.dumps(found).decode()
    for secret in (PASSWORD, WRONG, VALUE.decode(), "123456"):
        assert secret not in text, secret


async def test_reads_and_writes_are_counted_and_not_told_one_by_one(start: Any, tmp_path: Path) -> None:
    kinds = ("produce", "consume", "group")
    broker = await start(settings(tmp_path, kinds=kinds, excluded_topics=("noise",), interval_ms=2_000))

    def use() -> None:
        producer = Producer(librdkafka(broker) | {"linger.ms": 0, "batch.num.messages": 1})
        for number in range(200):
            producer.produce(("orders", "noise")[number % 2], VALUE)
            producer.poll(0)
        assert producer.flush(10) == 0
        consumer = Consumer(librdkafka(broker) | {"group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert len(consumer.consume(100, 20)) == 100
        consumer.close()

    await asyncio.to_thread(use)
    found = await wait_for(broker, "Produce", "Fetch", "JoinGroup", "OffsetCommit")
    await asyncio.sleep(2.5)
    found = await events(broker)
    written = of(found, "Produce")
    assert {tuple(names(each)) for each in written} == {(("topic", "orders"),)}
    assert sum(each["count"] for each in written) == 100 and len(written) <= 2
    assert names(of(found, "Fetch")[0]) == {("topic", "orders")}
    assert ("group", "readers") in names(of(found, "JoinGroup")[0])
    assert len(found) < 40, "not one event for each request"


async def test_nobody_writes_changes_or_deletes_it(start: Any, tmp_path: Path) -> None:
    broker = await start(settings(tmp_path))
    await until(lambda: broker.node.image.find_topic("__audit") is not None, 10)

    def attack() -> None:
        admin = AdminClient(librdkafka(broker))
        errors: list[Any] = []
        producer = Producer(librdkafka(broker) | {"acks": "all"})
        producer.produce("__audit", b'{"forged": true}', on_delivery=lambda error, _: errors.append(error))
        producer.flush(10)
        assert errors[0].name() == "TOPIC_EXCEPTION"
        for change in ("cleanup.policy", "retention.ms"):
            entry = ConfigEntry(change, {"cleanup.policy": "compact"}.get(change, "1"), incremental_operation=SET)
            resource = ConfigResource(ResourceType.TOPIC, "__audit", incremental_configs=[entry])
            with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
                admin.incremental_alter_configs([resource])[resource].result(10)
        with pytest.raises(KafkaException, match="TOPIC_EXCEPTION"):
            admin.delete_topics(["__audit"])["__audit"].result(10)
        cut = TopicPartition("__audit", 0, 1)
        with pytest.raises(KafkaException):
            admin.delete_records([cut])[cut].result(10)

    SET = AlterConfigOpType.SET
    await asyncio.to_thread(attack)
    async with aiohttp.ClientSession(f"http://{broker.http_address}") as client:
        forged = {"messages": [{"partition": 0, "value": "forged"}]}
        for headers in ({}, {FORWARDED: "2@1;alone"}):
            sent = client.post("/api/v1/topics/__audit/messages/batch", json=forged, headers=headers)
            async with sent as reply:
                assert reply.status == 409, await reply.text()
        async with client.patch("/api/v1/topics/__audit", json={"config": {"retention.ms": "1"}}) as reply:
            assert reply.status == 409, await reply.text()
        async with client.delete("/api/v1/topics/__audit") as reply:
            assert reply.status == 409
    found = await wait_for(broker, "Produce", "IncrementalAlterConfigs", "DeleteTopics", "postMessages", "changeTopic")
    assert b"forged" not in orjson.dumps(found)
    assert {each["unmapped"]["outcome"] for each in of(found, "Produce") + of(found, "postMessages")} == {"refused"}
    assert {each["unmapped"]["outcome"] for each in of(found, "IncrementalAlterConfigs")} == {"refused"}
    settled = broker.node.partitions.config(broker.node.image.topic("__audit"))
    assert settled.cleanup_policy == ("delete",) and settled.retention_ms == AuditSettings().retention_ms
    assert settled.remote_storage_enable, "archived like any topic"


async def test_what_is_written_survives_and_the_end_of_a_run_is_told(start: Any, tmp_path: Path) -> None:
    first = Broker(settings(tmp_path))
    await first.start()
    url = f"http://{first.http_address}/api/v1/topics"
    async with aiohttp.ClientSession() as client, client.post(url, json={"name": "late"}) as reply:
        assert reply.status == 201
    await first.stop()  # at once: the event is still in the queue
    second = await start(settings(tmp_path, retention_ms=5_000_000))
    found = await wait_for(second, "createTopic")
    lives = [each["activity_id"] for each in found if each["class_uid"] == 6002]
    assert lives[:2] == [3, 4]
    assert names(of(found, "createTopic")[0]) == {("topic", "late")}
    uids = [each["metadata"]["uid"] for each in found]
    assert len(set(uids)) == len(uids)
    await until(lambda: second.node.partitions.config(second.node.image.topic("__audit")).retention_ms == 5_000_000, 10)


@pytest.mark.parametrize("on_full", ["refuse", "drop"])
async def test_when_it_cannot_be_written(
    start: Any, tmp_path: Path, on_full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start(settings(tmp_path, on_full=on_full, queue_bytes=64 * 1024))
    await until(lambda: broker.node.image.find_topic("__audit") is not None, 10)
    audit = broker.node.audit
    assert audit is not None
    partition = broker.node.partitions.get("__audit", 0)
    append = type(partition).append

    def fails(self: Any, *arguments: Any) -> Any:
        if self.tp.topic == "__audit":
            raise OSError("no")
        return append(self, *arguments)

    monkeypatch.setattr(type(partition), "append", fails)
    seen = set()
    async with aiohttp.ClientSession(f"http://{broker.http_address}") as client:
        for number in range(200):
            async with client.post("/api/v1/topics", json={"name": f"t{number % 3}"}) as reply:
                seen.add(reply.status)
                if reply.status == 503:
                    assert (await reply.json())["type"].endswith("audit-full")
                    assert reply.headers["Retry-After"]
        async with client.get("/api/v1/topics") as reply:
            assert reply.status == 200, "not one of the kinds that are written"
        async with client.get("/metrics") as reply:
            metrics = await reply.text()
    assert audit.queued_bytes <= 2 * 64 * 1024
    if on_full == "refuse":
        assert seen == {201, 409, 503} and audit.dropped == 0

        def create() -> None:
            admin = AdminClient(librdkafka(broker))
            with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"):
                admin.create_topics([NewTopic("refused", 1)])["refused"].result(10)

        await asyncio.to_thread(create)
        assert broker.node.image.find_topic("refused") is None, "nothing is done that cannot be noted"
    else:
        assert seen == {201, 409} and audit.dropped > 0
        assert f"tierlog_audit_dropped_total {float(audit.dropped)}" in metrics
    monkeypatch.undo()
    found = await wait_for(broker, "createTopic", seconds=20)
    await until(lambda: audit.queued_bytes == 0, 20)
    assert not audit.refusing and len(found) > 50


async def test_a_request_that_names_thousands_of_things_is_a_small_event(start: Any, tmp_path: Path) -> None:
    broker = await start(settings(tmp_path))

    def delete() -> None:
        admin = AdminClient(librdkafka(broker))
        for each in admin.delete_topics([f"missing-{n}" for n in range(5_000)]).values():
            with pytest.raises(KafkaException):
                each.result(20)

    await asyncio.to_thread(delete)
    (event,) = of(await wait_for(broker, "DeleteTopics"), "DeleteTopics")
    assert len(event["resources"]) == 20 and event["unmapped"]["more_resources"] == 4_980
    assert len(orjson.dumps(event)) < 4_000


async def test_duckdb_says_who_was_refused_what(start: Any, tmp_path: Path) -> None:
    """The query of docs/SECURING.md, on the archive."""
    plain = settings(tmp_path, segment_ms=1_000)
    broker = await start(replace(plain, archive=OffloadSettings(check_ms=100)))
    await until(lambda: broker.node.image.find_topic("__audit") is not None, 10)
    page = (ROOT / "docs" / "SECURING.md").read_text().partition("## Audit")[2]
    query = page.partition("```sql\n")[2].partition("```")[0].replace("bucket/", f"{tmp_path}/bucket/")
    async with aiohttp.ClientSession(f"http://{broker.http_address}") as client:
        for _ in range(3):
            async with client.post("/api/v1/topics/__audit/messages", data=b"x") as reply:
                assert reply.status == 409
            await wait_for(broker, "postMessage")
            await asyncio.sleep(1.1)
    await until(lambda: any(tmp_path.glob("bucket/topic=__audit/*/*.parquet")), 20)
    rows = await asyncio.to_thread(lambda: duckdb.sql(query).fetchall())
    _, who, source, what, name, why = rows[0]
    assert (who, source, what) == ("ANONYMOUS", "127.0.0.1", "postMessage")
    assert (name, why) == ("__audit", "invalid-topic-name")


async def test_a_broker_that_leads_none_of_it_sends_its_events_to_one_that_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    anywhere = "127.0.0.1:0"
    listener: dict[str, Any] = {
        "kafka": ListenerSettings(takes=("clients",)),
        "http": ListenerSettings(takes=("clients",)),
        "inside": ListenerSettings("tls", anywhere, takes=("peers",), client_certificate="required"),
        "inside-http": ListenerSettings("https", anywhere, takes=("peers",), client_certificate="required"),
    }
    files = authority.issue("broker")
    rules = ("RULE:^CN=([^,]+).*$/$1/", "DEFAULT")
    tls = TlsSettings(files.certificate, files.key, authority.ca, rules, ("broker",))
    audit = AuditSettings(enabled=True, partitions=1, interval_ms=500)
    async with members(tmp_path, listener=listener, tls=tls, audit=audit) as cluster:
        await until(lambda: cluster[1].broker.node.image.find_topic("__audit") is not None, 20)
        await cluster.agree()
        other = cluster.not_leading("__audit", 0)
        # One that is forwarded too: it is told by the broker that was asked, and not by the one that did it.
        for name in ("one", "two"):
            assert (await other.post("/api/v1/topics", json={"name": name})).status == 201
        leader = cluster[cluster.leader_of("__audit", 0)].broker
        await wait_for(leader, "createTopic", seconds=20)
        await until(lambda: other.broker.node.audit.waiting == 0, 20)
        made = of(await events(leader), "createTopic")
        assert [each["unmapped"]["node_id"] for each in made] == [other.node_id] * 2
        assert {each["src_endpoint"]["ip"] for each in made} == {"127.0.0.1"}
        left = other.node_id
        await cluster.stop(left)
        told = {
            (each["unmapped"]["node_id"], each["activity_id"])
            for each in await events(leader)
            if each["class_uid"] == LIFECYCLE
        }
        assert {(1, START), (2, START), (3, START), (left, STOP)} <= told


async def test_a_topic_that_a_client_made_cannot_hold_it(tmp_path: Path) -> None:
    old = Broker(replace(settings(tmp_path), audit=AuditSettings()))
    await old.start()
    try:
        with pytest.raises(InvalidTopicName):
            await old.node.admin.create_topic("__audit", 1)
        # As a version made it for which the name was a name like any other.
        states = [initial_state((old.node.node_id,))]
        await old.node.admin.restore_topic(Topic("__audit", new_topic_id(), 1, 1, {}, 0), states)
    finally:
        await old.stop()
    with pytest.raises(SettingsError, match="made by a client"):
        await Broker(settings(tmp_path)).start()


def test_the_audit_of_a_cluster_asks_for_known_brokers() -> None:
    with pytest.raises(SettingsError, match=r"tls\.peers"):
        flags = [("cluster.metadata", "etcd://127.0.0.1:1"), ("audit.enabled", "true"), ("store.bucket", "file:///b")]
        plan_listeners(load_settings(flags=[Given(key, value, f"--{key}") for key, value in flags]))
