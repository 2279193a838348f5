"""Settings of topics and brokers, quotas, the cluster, its log directories and its moves."""

import struct
from typing import Any

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from gateway.kafka.protocol.messages.alter_configs import AlterableConfig as Plain
from gateway.kafka.protocol.messages.alter_configs import AlterConfigsRequest
from gateway.kafka.protocol.messages.alter_configs import AlterConfigsResource as PlainResource
from gateway.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from gateway.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from gateway.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from gateway.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from gateway.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gateway.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.compat.differential.session import CLOSED, Session

from .making import make_topic, settle

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def run(session: Session) -> None:
    _describe(session)
    _alter(session)
    _groups_and_brokers(session)
    _quotas(session)
    _cluster(session)
    _frames(session)


def _describe(session: Session) -> None:
    topic = make_topic(session, "described", 1, retention_ms="3600000")
    for v in session.each(ApiKey.DESCRIBE_CONFIGS):

        def ask(label: str, *resources: DescribeConfigsResource, version: int = v) -> None:
            session.ask(label, DescribeConfigsRequest(list(resources), False, False), version)

        one = DescribeConfigsResource
        keys = ["retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas", "no.such"]
        ask("some of a topic", one(TOPIC, topic, keys))
        ask("none of a topic", one(TOPIC, topic, []))
        ask("no such topic", one(TOPIC, f"nobody-{v}", None))
        ask("a bad name", one(TOPIC, "no/slashes", None))
        ask("another broker", one(BROKER, "99", ["log.retention.ms"]))
        ask("a broker that is no number", one(BROKER, "first", ["log.retention.ms"]))
        ask("kind 77", one(77, "what", None))
        ask("a topic twice", one(TOPIC, topic, keys), one(TOPIC, topic, keys))
        ask("nothing")
        answer = session.send(DescribeConfigsRequest([one(TOPIC, topic, None)], True, True), v)
        shown = {c.name: c.value for c in answer.results[0].configs} if answer != CLOSED else {}
        session.answers[f"DESCRIBE_CONFIGS all names of a topic v{v}"] = sorted(shown)
        for name, value in shown.items():
            session.answers[f"DESCRIBE_CONFIGS default of {name} v{v}"] = value


def _alter(session: Session) -> None:
    for v in session.each(ApiKey.INCREMENTAL_ALTER_CONFIGS):
        topic = make_topic(session, f"altered-{v}")

        def alter(
            label: str,
            *configs: AlterableConfig,
            version: int = v,
            kind: int = TOPIC,
            name: str = topic,
            only: bool = False,
        ) -> None:
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, list(configs))], only)
            session.ask(label, request, version)
            if name == f"altered-{version}":
                _show(session, f"{label} then shown, {name}", name)

        one = AlterableConfig
        alter("set", one("retention.ms", SET, "7200000"))
        alter("only checked", one("retention.ms", SET, "1"), only=True)
        alter("set to nonsense", one("retention.ms", SET, "soon"))
        alter("set to null", one("retention.ms", SET, None))
        alter("deleted", one("retention.ms", DELETE, None))
        alter("deleted again", one("retention.ms", DELETE, None))
        alter("appended", one("cleanup.policy", APPEND, "compact"))
        alter("appended again", one("cleanup.policy", APPEND, "compact"))
        alter("subtracted", one("cleanup.policy", SUBTRACT, "delete"))
        alter("subtracted what is not there", one("cleanup.policy", SUBTRACT, "delete"))
        alter("appended to no list", one("retention.ms", APPEND, "5"))
        alter("an operation that is none", one("retention.ms", 9, "5"))
        alter("an unknown setting", one("no.such", SET, "5"))
        alter("one setting twice", one("retention.ms", SET, "5"), one("retention.ms", SET, "6"))
        alter("one good, one bad", one("retention.ms", SET, "5"), one("segment.bytes", SET, "x"))
        alter("nothing")
        alter("no such topic", one("retention.ms", SET, "5"), name=f"nobody-{v}")
        alter("another broker", one("log.retention.ms", SET, "5"), kind=BROKER, name="99")
        alter("kind 77", one("retention.ms", SET, "5"), kind=77, name="what")
        twice = [AlterConfigsResource(TOPIC, topic, [one("retention.ms", SET, "8")])] * 2
        session.ask("a topic twice", IncrementalAlterConfigsRequest(twice, False), v)
    for v in session.each(ApiKey.ALTER_CONFIGS):
        topic = make_topic(session, f"replaced-{v}", 1, segment_bytes="1048576")

        def replace(label: str, *configs: Plain, version: int = v, name: str = topic, only: bool = False) -> None:
            session.ask(label, AlterConfigsRequest([PlainResource(TOPIC, name, list(configs))], only), version)
            if name == f"replaced-{version}":
                _show(session, f"{label} then shown, {name}", name)

        replace("only checked", Plain("retention.ms", "5"), only=True)
        replace("all", Plain("retention.ms", "7200000"))
        replace("with nonsense", Plain("retention.ms", "soon"))
        replace("with null", Plain("retention.ms", None))
        replace("with nothing")
        replace("unknown", Plain("no.such", "5"))
        replace("no such topic", Plain("retention.ms", "5"), name=f"nobody-{v}")


def _groups_and_brokers(session: Session) -> None:
    timeout = "consumer.session.timeout.ms"
    for v in session.each(ApiKey.INCREMENTAL_ALTER_CONFIGS):

        def alter(label: str, kind: int, name: str, *configs: AlterableConfig, version: int = v) -> None:
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, list(configs))], False)
            session.ask(label, request, version)

        def show(label: str, kind: int, name: str, key: str) -> None:
            settle(session)
            described = DescribeConfigsResource(kind, name, [key])
            session.ask(label, DescribeConfigsRequest([described], False, False), 4)

        one, group = AlterableConfig, f"set-{v}"
        show(f"of a group that nobody set, {group}", GROUP, group, timeout)
        alter("of a group", GROUP, group, one(timeout, SET, "50000"))
        show(f"of a group, {group}", GROUP, group, timeout)
        alter("of a group, nonsense", GROUP, group, one(timeout, SET, "soon"))
        alter("of a group, unknown", GROUP, group, one("no.such", SET, "5"))
        alter("of a group without a name", GROUP, "", one(timeout, SET, "50000"))
        alter("of a group, deleted", GROUP, group, one(timeout, DELETE, None))
        show(f"of a group, deleted, {group}", GROUP, group, timeout)
        show(f"of a group without a name v{v}", GROUP, "", timeout)
        alter("of a broker", BROKER, "1", one("num.io.threads", SET, "9"))
        show(f"of a broker, set {v}", BROKER, "1", "num.io.threads")
        alter("of a broker, nonsense", BROKER, "1", one("num.io.threads", SET, "many"))
        alter("of a broker that is no number", BROKER, "first", one("num.io.threads", SET, "9"))
        alter("of all brokers", BROKER, "", one("num.network.threads", SET, "4"))
        show(f"of all brokers, set {v}", BROKER, "", "num.network.threads")
        alter("of a broker, deleted", BROKER, "1", one("num.io.threads", DELETE, None))
        alter("of all brokers, deleted", BROKER, "", one("num.network.threads", DELETE, None))
        show(f"of a broker, deleted {v}", BROKER, "1", "num.io.threads")
        alter("of a broker, fixed", BROKER, "1", one("broker.id", SET, "9"))
        alter("of a broker, a rate", BROKER, "1", one("follower.replication.throttled.rate", SET, "9"))
        alter("of a broker, no rate", BROKER, "1", one("follower.replication.throttled.rate", DELETE, None))
    for v in session.each(ApiKey.DESCRIBE_CONFIGS):
        answer = session.send(DescribeConfigsRequest([DescribeConfigsResource(GROUP, "any", None)], True, True), v)
        session.answers[f"DESCRIBE_CONFIGS all of a group v{v}"] = sorted(
            (c.name, c.value, c.config_type) for c in answer.results[0].configs
        )


def _show(session: Session, label: str, topic: str) -> None:
    settle(session)
    described = DescribeConfigsResource(TOPIC, topic, ["retention.ms", "cleanup.policy", "segment.bytes"])
    session.ask(label, DescribeConfigsRequest([described], True, False), 4)


def _quotas(session: Session) -> None:
    for v in session.each(ApiKey.ALTER_CLIENT_QUOTAS):

        def alter(
            label: str, entity: list[RequestEntityData], *ops: OpData, version: int = v, only: bool = False
        ) -> None:
            session.ask(label, AlterClientQuotasRequest([RequestEntryData(entity, list(ops))], only), version)

        who = [RequestEntityData("client-id", f"quota-{v}")]
        alter("set", who, OpData("producer_byte_rate", 1e9, False), OpData("consumer_byte_rate", 2e9, False))
        alter("only checked", who, OpData("producer_byte_rate", 1.0, False), only=True)
        alter("an unknown key", who, OpData("no_such_rate", 1.0, False))
        alter("below 0", who, OpData("producer_byte_rate", -1.0, False))
        alter("an unknown kind", [RequestEntityData("planet", "mars")], OpData("producer_byte_rate", 1.0, False))
        alter("no entity", [], OpData("producer_byte_rate", 1.0, False))
        component = [ComponentData("client-id", 0, f"quota-{v}")]
        settle(session)
        session.ask("one", DescribeClientQuotasRequest(component, True), v)
        alter("removed", who, OpData("producer_byte_rate", 0.0, True))
        settle(session)
        session.ask("one, after one was removed", DescribeClientQuotasRequest(component, False), v)
        alter("all removed", who, OpData("consumer_byte_rate", 0.0, True))
        settle(session)
        session.ask("nobody", DescribeClientQuotasRequest(component, True), v)
        session.ask("an unknown kind", DescribeClientQuotasRequest([ComponentData("planet", 0, "mars")], True), v)
        session.ask("match 9", DescribeClientQuotasRequest([ComponentData("client-id", 9, "mars")], True), v)


def _cluster(session: Session) -> None:
    topic = make_topic(session, "placed", 2)
    for v in session.each(ApiKey.DESCRIBE_CLUSTER):
        session.ask("brokers", DescribeClusterRequest(False), v)
        session.ask("and what may be done", DescribeClusterRequest(True), v)
        if v >= 1:
            session.ask("controllers", DescribeClusterRequest(False, 2), v)
            session.ask("endpoints of kind 9", DescribeClusterRequest(False, 9), v)
    for v in session.each(ApiKey.DESCRIBE_LOG_DIRS):
        session.ask("a topic", DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0, 1])]), v)
        session.ask("no such topic", DescribeLogDirsRequest([DescribableLogDirTopic("nobody", [0])]), v)
        session.ask("nothing", DescribeLogDirsRequest([]), v)
    for v in session.each(ApiKey.ELECT_LEADERS):

        def elect(label: str, topics: list[TopicPartitions] | None, kind: int = 0, version: int = v) -> None:
            session.ask(label, ElectLeadersRequest(kind, topics, 10_000), version)

        elect("of a topic", [TopicPartitions(topic, [0, 1])])
        elect("no such partition", [TopicPartitions(topic, [9])])
        elect("no such topic", [TopicPartitions("nobody", [0])])
        if v >= 1:
            elect("unclean", [TopicPartitions(topic, [0])], 1)
    for v in session.each(ApiKey.ALTER_PARTITION_REASSIGNMENTS):

        def move(label: str, partition: int, replicas: list[int] | None, name: str = topic, version: int = v) -> None:
            wanted = [ReassignableTopic(name, [ReassignablePartition(partition, replicas)])]
            session.ask(label, AlterPartitionReassignmentsRequest(10_000, topics=wanted), version)

        move("where it is", 0, [1])
        move("nowhere", 0, [99])
        move("twice on one", 0, [1, 1])
        move("on none", 0, [])
        move("ended, but none is under way", 0, None)
        move("no such partition", 9, [1])
        move("no such topic", 0, [1], "nobody")
    for v in session.each(ApiKey.LIST_PARTITION_REASSIGNMENTS):
        session.ask("all", ListPartitionReassignmentsRequest(10_000, None), v)
        one = [ListPartitionReassignmentsTopics(topic, [0])]
        session.ask("of a topic", ListPartitionReassignmentsRequest(10_000, one), v)
        nobody = [ListPartitionReassignmentsTopics("nobody", [0])]
        session.ask("of no topic", ListPartitionReassignmentsRequest(10_000, nobody), v)


def _frames(session: Session) -> None:
    """ApiVersions, which must be answered also in a version of the future, and requests that are none."""
    for v in session.each(ApiKey.API_VERSIONS):
        for label, software in {
            "": ("tests", "1.0"),
            " with a bad name": ("§", "1.0"),
            " without a name": ("", ""),
        }.items():
            answer = session.send(ApiVersionsRequest(*software), v)
            session.answers[f"API_VERSIONS asked{label} v{v}"] = (
                answer if isinstance(answer, str) else answer.error_code
            )

    def header(api_key: int, version: int) -> bytes:
        return struct.pack(">hhih", api_key, version, 7, -1)

    answer: Any = session.exchange(header(18, 99) + b"\0")
    session.answers["RAW ApiVersions of the future"] = None if answer is None else struct.unpack_from(">ih", answer)
    session.raw("an unknown API", header(999, 0))
    session.raw("a version of the future", header(3, 99))
    session.raw("a version below 0", header(3, -1))
    session.raw("a cut header", b"\0\x03")
    session.raw("a cut body", header(3, 1))
    session.raw("2 billion topics", header(3, 1) + struct.pack(">i", 2**31 - 1))
    session.raw("bytes behind the body", header(3, 1) + struct.pack(">i", 0) + b"more")
