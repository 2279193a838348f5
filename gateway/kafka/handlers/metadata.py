"""Metadata: the brokers, the topics, and the leaders of their partitions.

Clients ask as soon as they lose a leader, before a new one can be elected, and librdkafka asks again only a second
later. So an answer that names other brokers waits a moment, until this broker too can notice that one is gone, and then
until the new leader is known. A broker that has just gone stays in the list for a while, also for librdkafka: if the
old leader leaves the list in the same answer, librdkafka drops what it knows about the partition's new leader. No
answer is without brokers, as that of a broker that is not registered yet would be: librdkafka forgets the brokers that
an answer leaves out, and when it knows no broker it never asks again.

Topics are also created here: a producer that asks for an unknown topic gets one, if both the settings and the request
allow it. Then the answer waits until the topic exists.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import CloseConnection, Handler, RequestContext, once
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gateway.kafka.protocol.schema import NO_ID
from gateway.lane import Turn
from gateway.node import Node
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.cluster.admin import NewTopic, check_topic_name
from hot_tier.cluster.internal_topics import INTERNAL_TOPICS
from hot_tier.cluster.model import NO_NODE, PartitionState, Topic
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId

NULL_NAMES_SINCE: Final = 12
NOTICE_S: Final = 0.025
"""A killed process loses its connections one after the other."""
ELECTION_WAIT_S: Final = 0.5
MAX_CREATED: Final = 100
"""Topics made for one request. The others stay unknown until the client asks again."""
NOT_ASKED: Final = -(2**31)


async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    if request.topics is not None:
        request.topics = once(request.topics, lambda topic: (topic.name, topic.topic_id))
    turn = context.turn()
    if not context.node.image.brokers() or await _is_led_by_others(request, context.node, turn):
        await _wait_for_election(request, context.node)
    return await _answer(request, context, turn)


async def _is_led_by_others(request: MetadataRequest, node: Node, turn: Turn) -> bool:
    async for topic in turn.through(_asked(request, node)):
        if any(state.leader != node.node_id for state in node.image.partition_states(topic)):
            return True
    return False


async def _wait_for_election(request: MetadataRequest, node: Node) -> None:
    await asyncio.sleep(NOTICE_S)
    try:
        async with asyncio.timeout(ELECTION_WAIT_S):
            await node.image.wait_for(lambda: bool(node.image.brokers()) and not _election_expected(request, node))
    except TimeoutError:
        pass


def _election_expected(request: MetadataRequest, node: Node) -> bool:
    lost = node.image.unsettled()
    return bool(lost) and any(
        state.leader in lost or (state.leader == NO_NODE and not lost.isdisjoint(state.isr))
        for topic in _asked(request, node)
        for state in node.image.partition_states(topic)
    )


def _asked(request: MetadataRequest, node: Node) -> list[Topic]:
    if request.topics is None:
        return list(node.image.topics())
    found = (node.image.find_topic(topic.name or "") for topic in request.topics)
    return [topic for topic in found if topic is not None]


async def _answer(request: MetadataRequest, context: RequestContext, turn: Turn) -> MetadataResponse:
    node = context.node
    asked = request.topics
    if asked is None or (not asked and context.api_version == 0):
        topics = turn.through(list(node.image.topics()))
        found = [await _describe(topic, context, request, turn) async for topic in topics]
        return _response(request, context, found)
    errors: dict[str, ErrorCode] = {}
    if request.allow_auto_topic_creation and node.kafka.auto_create_topics:
        missing = {
            topic.name for topic in asked if topic.name and not _reserved(topic.name) and _missing(topic.name, node)
        }
        if missing:
            errors = await _create(sorted(missing)[:MAX_CREATED], node, turn)
    described = []
    async for topic in turn.through(asked):
        answer = await _describe_asked(topic, request, context, turn)
        code = errors.get(topic.name or "", ErrorCode.NONE)
        if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and code:
            answer.error_code = code
        described.append(answer)
    return _response(request, context, described)


async def _create(names: Sequence[str], node: Node, turn: Turn) -> dict[str, ErrorCode]:
    """Returns the errors of those that could not be made."""
    made = await turn.gather(lambda name: node.admin.create_topics([NewTopic(name)]), names)
    return {name: error_code(each) for name, (each,) in zip(names, made, strict=True) if isinstance(each, TierlogError)}


def _reserved(name: str) -> bool:
    """Returns whether this is the name of an internal topic. Its users make it themselves."""
    return name in INTERNAL_TOPICS


def _missing(name: str, node: Node) -> bool:
    return node.image.find_topic(name) is None


def _response(
    request: MetadataRequest, context: RequestContext, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = context.node.image
    brokers = context.reachable((*image.brokers(), *image.lately_gone()))
    if not brokers:
        raise CloseConnection
    return MetadataResponse(
        brokers=[MetadataResponseBroker(each.id, at.host, at.port, each.rack) for each, at in brokers],
        cluster_id=context.node.cluster_id,
        controller_id=image.controller,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _describe_asked(
    asked: MetadataRequestTopic, request: MetadataRequest, context: RequestContext, turn: Turn
) -> MetadataResponseTopic:
    node = context.node
    try:
        if asked.name is not None and asked.topic_id == NO_ID:
            check_topic_name(asked.name)
            return await _describe(node.image.topic(asked.name), context, request, turn)
        return await _describe(node.image.topic_by_id(asked.topic_id), context, request, turn)
    except TierlogError as error:
        name = asked.name if asked.name is not None or context.api_version >= NULL_NAMES_SINCE else ""
        return MetadataResponseTopic(
            error_code=error_code(error),
            name=name,
            topic_id=asked.topic_id,
            topic_authorized_operations=_operations(request, context, name or "")
            if asked.topic_id == NO_ID
            else NOT_ASKED,
        )


async def _describe(
    topic: Topic, context: RequestContext, request: MetadataRequest, turn: Turn
) -> MetadataResponseTopic:
    image = context.node.image
    alive = {broker.id for broker in image.brokers()}
    reachable = {broker.id for broker, _ in context.reachable(image.brokers())}
    states = image.partition_states(topic)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            _describe_partition(index, state, alive, reachable)
            async for index, state in turn.through(enumerate(states))
        ],
        topic_authorized_operations=_operations(request, context, topic.name),
    )


def _operations(request: MetadataRequest, context: RequestContext, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return context.authorized_operations(ResourceType.TOPIC, name)


def cluster_operations(context: RequestContext) -> int:
    """Returns what the sender may do with the cluster; nothing is told to who may not describe it."""
    if not context.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER)


def _describe_partition(
    index: int, state: PartitionState, alive: set[NodeId], reachable: set[NodeId]
) -> MetadataResponsePartition:
    led = state.leader in reachable
    why = ErrorCode.LISTENER_NOT_FOUND if state.leader in alive else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else why,
        partition_index=index,
        leader_id=state.leader if led else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in alive],
    )


HANDLERS = {ApiKey.METADATA: Handler(0, 13, handle)}
