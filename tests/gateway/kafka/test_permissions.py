"""Every Kafka API × (no rule, a rule that denies, a rule that allows), in every version, with the exact codes."""

import re
from pkgutil import iter_modules

import pytest

from gateway.authorizer import AuthorizationSettings
from gateway.kafka import handlers
from gateway.kafka.apis import Apis, load_handlers
from gateway.kafka.guards import Open
from gateway.kafka.permissions import PERMISSIONS
from gateway.kafka.protocol.api_keys import ApiKey, request_class
from gateway.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from gateway.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from gateway.kafka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from gateway.kafka.protocol.messages.list_groups import ListGroupsRequest
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gateway.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.schema import message_info
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType, Rule
from tests.gateway.kafka.batches import batch
from tests.gateway.kafka.node import running_node
from tests.gateway.kafka.permission_cases import CASES, CODES, GROUP, TOPIC, WHO, Case, codes, rules, strings

SEEN, GHOST = "seen-topic", "ghost-topic"


@pytest.fixture
async def guarded(tmp_path):
    """A node with authorization, a topic, and no rules."""
    settings = AuthorizationSettings(True, ("User:root",))
    async with running_node(str(tmp_path / "node"), authorization=settings) as running:
        await running.node.admin.create_topic(SEEN)
        yield running


@pytest.fixture
async def wire(guarded):
    async with guarded.connect() as connected:
        yield connected


async def only(node, *wanted: Rule) -> None:
    """Makes these the only rules."""
    await node.acls.remove(set(node.image.acls) - set(wanted))
    await node.acls.add(wanted)


def allow(operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME, pattern=Pattern.LITERAL, **also) -> Rule:
    return Rule(kind, pattern, name, WHO, "*", operation, Permission.ALLOW)._replace(**also)


def test_every_api_declares_what_it_needs():
    modules = [name for _, name, _ in iter_modules(handlers.__path__)]
    served = Apis(load_handlers()).handlers
    assert PERMISSIONS.keys() == served.keys() == set(ApiKey)
    assert all(PERMISSIONS.values()), "an API without a guard"
    without = {
        "api_versions",
        "config_resources",
        "config_view",
        "fetch_answers",
        "kept_settings",
        "leadership",
        "produced_transactions",
        "replica_fetch",
        "throttles",
    }
    without -= {name for name in without if name not in modules}
    for name in modules:
        module = __import__(f"{handlers.__name__}.{name}", fromlist=["HANDLERS"])
        assert hasattr(module, "HANDLERS") or name in without, f"{name} serves nothing: is it left out?"
    opened = {key for key, guards in PERMISSIONS.items() if any(isinstance(each, Open) for each in guards)}
    assert opened == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
    tried = {case.key for case in CASES}
    apart = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}  # their answers leave out, and have no code
    assert tried == served.keys() - opened - apart


def served_versions(case: Case) -> list[int]:
    handler = Apis(load_handlers()).handlers[case.key]
    known = message_info(request_class(case.key)).versions
    return [each for each in known if handler.min_version <= each <= handler.max_version and each in case.versions]


def without_addresses(answer) -> str:
    return re.sub("<memory at [^>]*>", "", repr(answer))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
async def test_matrix(guarded, wire, case):
    node = guarded.node
    denied = [rules((need,), SEEN, Permission.DENY)[0] for need in case.needs]
    allowed = rules(case.needs, SEEN, Permission.ALLOW)
    for version in served_versions(case):
        await only(node)
        ghost = await wire.ask(case.request(version, GHOST), version)
        seen = await wire.ask(case.request(version, SEEN), version)
        assert tuple(codes(seen)) == case.refused, f"no rule, version {version}"
        same = without_addresses(seen).replace(SEEN, GHOST) == without_addresses(ghost)
        assert same, f"version {version} tells whether a topic exists"
        for each in denied:
            await only(node, *allowed, each)
            found = set(codes(await wire.ask(case.request(version, SEEN), version)))
            assert found & CODES, f"{each} does not deny, version {version}"
        for each in allowed:
            if len(allowed) > 1:
                await only(node, each)
                found = set(codes(await wire.ask(case.request(version, SEEN), version)))
                assert found & CODES, f"{each} alone is enough, version {version}"
    for version in served_versions(case):
        await only(node, *allowed)
        answer = await wire.ask(case.request(version, SEEN), version)
        assert not set(codes(answer)) & {TOPIC, GROUP, 31}, f"allowed, version {version}: {answer}"
        if case.key is ApiKey.DELETE_TOPICS:
            await node.admin.create_topic(SEEN)


async def test_a_rule_that_is_removed_ends_at_once_on_an_open_connection(guarded, wire):
    node, may_write = guarded.node, allow(Operation.WRITE, ResourceType.TOPIC, SEEN)
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[])

    async def produce() -> int:
        request.topic_data = [TopicProduceData(name=SEEN, partition_data=[PartitionProduceData(0, batch(b"v"))])]
        return (await wire.ask(request, 9)).responses[0].partition_responses[0].error_code

    assert await produce() == TOPIC
    for _ in range(3):
        await node.acls.add([may_write])
        assert await produce() == 0
        await node.acls.remove([may_write])
        assert await produce() == TOPIC


async def test_a_fetch_that_waits_ends_when_its_rule_is_removed(guarded, wire):
    node, may_read = guarded.node, allow(Operation.READ, ResourceType.TOPIC, SEEN)
    await node.acls.add([may_read])
    topic = FetchTopic(topic=SEEN, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    await wire.send(FetchRequest(max_wait_ms=5_000, min_bytes=1, max_bytes=1 << 20, topics=[topic]), 12)
    async with guarded.connect() as other:
        await node.acls.remove([may_read])
        await node.acls.add([allow(Operation.WRITE, ResourceType.TOPIC, SEEN)])
        data = [TopicProduceData(name=SEEN, partition_data=[PartitionProduceData(0, batch(b"secret"))])]
        await other.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data), 9)
    _, answer = await wire.receive(ApiKey.FETCH, 12)
    (found,) = answer.responses[0].partitions
    assert (found.error_code, bytes(found.records or b"")) == (TOPIC, b"")


async def test_without_an_answer_to_give_the_connection_is_closed(guarded, wire):
    data = [TopicProduceData(name=SEEN, partition_data=[PartitionProduceData(0, batch(b"v"))])]
    await wire.send(ProduceRequest(acks=0, timeout_ms=5000, topic_data=data), 9)
    assert await wire.closed() == b""
    assert guarded.node.partitions.get(SEEN, 0).log_end_offset == 0


async def test_a_fetch_by_id_tells_of_an_unknown_id_and_of_a_topic_that_may_not_be_read(guarded, wire):
    topic = guarded.node.image.topic(SEEN)
    asked = [FetchTopic(topic_id=topic.id, partitions=[FetchPartition(0, partition_max_bytes=100)])]
    answer = await wire.ask(FetchRequest(max_bytes=1000, topics=asked), 13)
    assert list(codes(answer)) == [TOPIC]


async def test_nobody_is_a_replica_without_a_permission(guarded, wire):
    node = guarded.node
    await only(node, allow(Operation.READ, ResourceType.TOPIC, "*"))
    broker = node.image.broker(node.node_id)
    request = FetchRequest(replica_state=ReplicaState(node.node_id, broker.epoch), max_bytes=1000, session_epoch=0)
    assert (await wire.ask(request, 17)).error_code == 31
    await only(node, allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER))
    assert (await wire.ask(request, 17)).error_code == 0


async def test_lists_show_what_one_may_see(guarded, wire):
    node = guarded.node
    await node.admin.create_topic("other-topic")
    await node.acls.add([allow(Operation.DESCRIBE, ResourceType.TOPIC, "other", Pattern.PREFIXED)])
    for version in range(14):
        everything = await wire.ask(MetadataRequest(topics=None if version else []), version)
        assert [topic.name for topic in everything.topics] == ["other-topic"], version
        assert SEEN not in set(strings(everything))
    pages = await wire.ask(DescribeTopicPartitionsRequest(), 0)
    assert [(topic.name, topic.error_code) for topic in pages.topics] == [("other-topic", 0)]
    # In version 0 no topics means all: a request whose topics are all refused must not become such a request.
    refused = await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=SEEN)]), 0)
    assert [(topic.name, topic.error_code) for topic in refused.topics] == [(SEEN, TOPIC)]


async def test_a_topic_named_by_its_id_is_not_told_its_name(guarded, wire):
    topic = guarded.node.image.topic(SEEN)
    shown = (await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(topic.id, None)]), 12)).topics
    assert [(each.name, each.topic_id, each.error_code) for each in shown] == [(None, topic.id, TOPIC)]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic.id)])
    refused = (await wire.ask(request, 6)).responses
    assert [(each.name, each.topic_id, each.error_code) for each in refused] == [(None, topic.id, TOPIC)]
    await only(guarded.node, allow(Operation.DESCRIBE, ResourceType.TOPIC, SEEN))
    refused = (await wire.ask(request, 6)).responses
    assert [(each.name, each.error_code) for each in refused] == [(SEEN, TOPIC)]


async def test_a_topic_is_made_by_asking_only_with_the_permission_to_make_it(guarded, wire):
    node = guarded.node
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="fresh")])
    await only(node, allow(Operation.DESCRIBE, ResourceType.TOPIC, "fresh"))
    assert list(codes(await wire.ask(asked, 9))) == [TOPIC]
    assert node.image.find_topic("fresh") is None
    await node.acls.add([allow(Operation.CREATE, ResourceType.TOPIC, "fre", Pattern.PREFIXED)])
    assert list(codes(await wire.ask(asked, 9))) == []
    assert node.image.find_topic("fresh") is not None


async def test_who_may_create_in_the_cluster_may_create_any_topic_and_sees_its_settings_only_with_permission(
    guarded, wire
):
    await only(guarded.node, allow(Operation.CREATE, ResourceType.CLUSTER))
    made = (await wire.ask(CreateTopicsRequest(topics=[CreatableTopic("made", 1, 1)]), 7)).topics
    assert [(each.error_code, each.topic_config_error_code, each.num_partitions, each.configs) for each in made] == [
        (0, TOPIC, -1, [])
    ]
    await guarded.node.acls.add([allow(Operation.ALTER_CONFIGS, ResourceType.TOPIC, "*")])
    made = (await wire.ask(CreateTopicsRequest(topics=[CreatableTopic("more", 1, 1)]), 7)).topics
    assert (made[0].topic_config_error_code, made[0].num_partitions) == (0, 1) and made[0].configs


async def test_groups_and_offsets(guarded, wire):
    node = guarded.node
    await node.admin.create_topic("other-topic")
    await only(node, allow(Operation.READ, ResourceType.GROUP, "g"), allow(Operation.READ, ResourceType.TOPIC, SEEN))
    partitions = [OffsetCommitRequestPartition(0, 0)]
    both = [
        OffsetCommitRequestTopic(name=SEEN, partitions=partitions),
        OffsetCommitRequestTopic(name="other-topic", partitions=partitions),
    ]
    commit = OffsetCommitRequest("g", -1, topics=both)
    answer = await wire.ask(commit, 8)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {SEEN: 0, "other-topic": TOPIC}
    await node.acls.add([allow(Operation.READ, ResourceType.TOPIC, "other-topic")])
    await wire.ask(commit, 8)
    await node.acls.remove([allow(Operation.READ, ResourceType.TOPIC, "other-topic")])

    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    (group,) = (await wire.ask(everything, 8)).groups
    assert [topic.name for topic in group.topics] == [SEEN]
    named = [OffsetFetchRequestTopics(name=each, partition_indexes=[0]) for each in (SEEN, "other-topic")]
    (group,) = (await wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=named)]), 8)).groups
    told = {
        topic.name: (topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in group.topics
    }
    assert told == {SEEN: (0, 0), "other-topic": (-1, TOPIC)}

    listed = (await wire.ask(ListGroupsRequest(), 4)).groups
    assert [each.group_id for each in listed] == ["g"]
    await only(node)
    assert (await wire.ask(ListGroupsRequest(), 4)).groups == []
    await only(node, allow(Operation.DESCRIBE, ResourceType.CLUSTER))
    assert [each.group_id for each in (await wire.ask(ListGroupsRequest(), 4)).groups] == ["g"]


def bits(*operations: Operation) -> int:
    return sum(1 << each for each in operations)


async def test_authorized_operations(guarded, wire):
    node, R, D = guarded.node, Operation.READ, Operation.DESCRIBE
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=SEEN)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    await only(node, allow(R, ResourceType.TOPIC, SEEN), allow(R, ResourceType.GROUP, "g"))
    answer = await wire.ask(asked, 9)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (bits(R, D), 0)
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await wire.ask(cluster, 0)).cluster_authorized_operations == 0
    (group,) = (await wire.ask(DescribeGroupsRequest(["g"], True), 5)).groups
    assert group.authorized_operations == bits(R, D)
    await node.acls.add([allow(Operation.ALTER, ResourceType.CLUSTER)])
    assert (await wire.ask(cluster, 0)).cluster_authorized_operations == bits(Operation.ALTER, D)
    (page,) = (await wire.ask(DescribeTopicPartitionsRequest(), 0)).topics
    assert page.topic_authorized_operations == bits(R, D)


async def test_rules_about_hosts(guarded, wire):
    asked = MetadataRequest(topics=None)
    for host, seen in (("127.0.0.1", [SEEN]), ("10.0.0.1", []), ("*", [SEEN])):
        await only(guarded.node, allow(Operation.DESCRIBE, ResourceType.TOPIC, SEEN, host=host))
        assert [topic.name for topic in (await wire.ask(asked, 9)).topics] == seen
