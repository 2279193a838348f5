"""Guards of single APIs, where what is needed depends on more than one field, or where Kafka's answer has a form of its
own."""

from collections.abc import Awaitable, Callable
from copy import copy
from functools import wraps
from typing import Any, Final

from gateway.authorizer import SOMEWHERE
from gateway.kafka.errors import ErrorCode, NotAuthorized, error_code, error_message
from gateway.kafka.guards import Guard, answer_of, refusal
from gateway.kafka.handler import HandlerFunction, RequestContext, once
from gateway.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from gateway.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from gateway.kafka.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from gateway.kafka.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from gateway.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from gateway.kafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from gateway.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from gateway.kafka.protocol.schema import NO_ID
from gateway.lane import Turn
from hot_tier.cluster.acls import Operation, ResourceType

TOPIC: Final = ResourceType.TOPIC
NAMED_BY_ID: Final = 12
"""From this version of Metadata on, a topic in the answer may have no name."""
MANY_GROUPS: Final = 8
MANY_COORDINATORS: Final = 4
ERROR_OF_ITS_OWN: Final = 2
ASKED_BY_BROKERS: Final = 4
"""From this version on, AddPartitionsToTxn comes from brokers."""

_OF_COORDINATORS: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}


def _guard(decide: Callable[[HandlerFunction, Any, RequestContext], Awaitable[Any]]) -> Guard:
    def guard(function: HandlerFunction) -> HandlerFunction:
        @wraps(function)
        def guarded(request: Any, context: RequestContext) -> Awaitable[Any]:
            return decide(function, request, context)

        return guarded

    return wraps(decide)(guard)


@_guard
async def metadata(function: HandlerFunction, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Each topic needs DESCRIBE, and one that would be made needs CREATE. All topics means those that it may see."""
    turn = context.turn()
    if request.topics is None or (not request.topics and context.api_version == 0):
        response: MetadataResponse = await answer_of(function, request, context)
        response.topics = [
            topic
            async for topic in turn.through(response.topics)
            if context.may(Operation.DESCRIBE, TOPIC, topic.name or "")
        ]
        return response
    kept, refused = [], []
    async for topic in turn.through(request.topics):
        if _may_ask(topic, request, context):
            kept.append(topic)
        else:
            by_name = topic.topic_id == NO_ID
            name = topic.name if by_name else (None if context.api_version >= NAMED_BY_ID else "")
            refused.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic.topic_id))
    allowed = copy(request)
    allowed.topics = kept
    response = await answer_of(function, allowed, context)
    # In version 0 no topics means all.
    response.topics = [*response.topics, *refused] if kept else refused
    return response


def _may_ask(topic: MetadataRequestTopic, request: MetadataRequest, context: RequestContext) -> bool:
    node = context.node
    if topic.name is None or topic.topic_id != NO_ID:
        found = node.image.find_topic_by_id(topic.topic_id)
        return found is None or context.may(Operation.DESCRIBE, TOPIC, found.name)
    if not context.may(Operation.DESCRIBE, TOPIC, topic.name):
        return False
    makes = request.allow_auto_topic_creation and node.kafka.auto_create_topics
    return (
        not makes
        or node.image.find_topic(topic.name) is not None
        or context.may(Operation.CREATE, ResourceType.CLUSTER)
        or context.may(Operation.CREATE, TOPIC, topic.name)
    )


@_guard
async def topic_partitions(
    function: HandlerFunction, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    turn = context.turn()
    named = bool(request.topics)
    asked = request.topics or [TopicRequest(topic.name) for topic in context.node.image.topics()]
    allowed, refused = copy(request), []
    allowed.topics = []
    async for topic in turn.through(once(asked, lambda topic: topic.name)):
        if context.may(Operation.DESCRIBE, TOPIC, topic.name):
            allowed.topics.append(topic)
        elif named:
            refused.append(DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.name))
    response = DescribeTopicPartitionsResponse()
    if allowed.topics:
        response = await answer_of(function, allowed, context)
    response.topics += refused
    return response


@_guard
async def fetched_offsets(
    function: HandlerFunction, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    """Each group needs DESCRIBE, and each topic too. All topics of a group means those that the sender may see."""
    if context.api_version >= MANY_GROUPS:
        return await _fetched_of_groups(function, request, context)
    if not context.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        if context.api_version >= ERROR_OF_ITS_OWN:
            return OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error = NotAuthorized(Operation.DESCRIBE, ResourceType.GROUP)
        refused: OffsetFetchResponse = await refusal(request, error, context, context.turn())
        return refused
    turn = context.turn()
    allowed = copy(request)
    allowed.topics, hidden = await _seen(request.topics, context, turn)
    response: OffsetFetchResponse = await answer_of(function, allowed, context)
    response.topics, _ = await _seen(response.topics, context, turn)
    async for topic in turn.through(hidden):
        partitions = [
            OffsetFetchResponsePartition(index, -1, metadata="", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            async for index in turn.through(topic.partition_indexes)
        ]
        response.topics.append(OffsetFetchResponseTopic(topic.name, partitions))
    return response


async def _fetched_of_groups(
    function: HandlerFunction, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    turn = context.turn()
    allowed = copy(request)
    allowed.groups, refused, hidden = [], [], {}
    async for group in turn.through(once(request.groups, lambda group: group.group_id)):
        if context.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            asked = copy(group)
            asked.topics, hidden[group.group_id] = await _seen(group.topics, context, turn)
            allowed.groups.append(asked)
        else:
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
    response: OffsetFetchResponse = await answer_of(function, allowed, context)
    async for answer in turn.through(response.groups):
        answer.topics, _ = await _seen(answer.topics, context, turn)
        if answer.error_code:
            continue
        async for topic in turn.through(hidden[answer.group_id]):
            partitions = [
                OffsetFetchResponsePartitions(index, -1, metadata="", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                async for index in turn.through(topic.partition_indexes)
            ]
            answer.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
    response.groups += refused
    return response


async def _seen(topics: Any, context: RequestContext, turn: Turn) -> tuple[Any, list[Any]]:
    """Returns the topics that the sender may see, and the others. None stays None: it means all topics."""
    if topics is None:
        return None, []
    seen: list[Any] = []
    hidden: list[Any] = []
    async for topic in turn.through(topics):
        (seen if context.may(Operation.DESCRIBE, TOPIC, topic.name) else hidden).append(topic)
    return seen, hidden


@_guard
async def found_coordinators(
    function: HandlerFunction, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    kind = _OF_COORDINATORS.get(request.key_type)
    if kind is None:  # The handler refuses it.
        response: FindCoordinatorResponse = await answer_of(function, request, context)
        return response
    error = NotAuthorized(Operation.DESCRIBE, kind)
    code, said = error_code(error), error_message(error)
    if context.api_version < MANY_COORDINATORS:
        if not context.may(Operation.DESCRIBE, kind, request.key):
            return FindCoordinatorResponse(error_code=code, error_message=said, node_id=-1, port=-1)
        single: FindCoordinatorResponse = await answer_of(function, request, context)
        return single
    allowed, refused = copy(request), []
    allowed.coordinator_keys = []
    async for key in context.turn().through(dict.fromkeys(request.coordinator_keys)):
        if context.may(Operation.DESCRIBE, kind, key):
            allowed.coordinator_keys.append(key)
        else:
            refused.append(Coordinator(key, node_id=-1, port=-1, error_code=code, error_message=said))
    response = await answer_of(function, allowed, context)
    response.coordinators += refused
    return response


@_guard
async def created_topics(
    function: HandlerFunction, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """The answer shows a new topic's settings only to who may see them."""
    response: CreateTopicsResponse = await answer_of(function, request, context)
    async for made in context.turn().through(response.topics):
        if not made.error_code and not context.may(Operation.DESCRIBE_CONFIGS, TOPIC, made.name):
            made.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            made.num_partitions = made.replication_factor = -1
            made.configs = []
    return response


@_guard
async def deleted_topics(
    function: HandlerFunction, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Needs DELETE, and DESCRIBE: who may not see a topic is not told the name that belongs to an id."""
    image = context.node.image
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    kept, refused = [], []
    async for topic in context.turn().through(asked):
        name = topic.name
        if name is None and (found := image.find_topic_by_id(topic.topic_id)) is not None:
            name = found.name
        sees = name is None or context.may(Operation.DESCRIBE, TOPIC, name)
        if name is None or (sees and context.may(Operation.DELETE, TOPIC, name)):
            kept.append(topic)
        else:
            shown = name if sees else topic.name
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused.append(DeletableTopicResult(shown, topic.topic_id, code, "Topic authorization failed."))
    response = DeleteTopicsResponse()
    if kept:
        allowed = copy(request)
        allowed.topics, allowed.topic_names = kept, []
        response = await answer_of(function, allowed, context)
    response.responses += refused
    return response


@_guard
async def init_producer_id(
    function: HandlerFunction, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """An idempotent producer needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
    if request.transactional_id is None:
        may = context.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        may = may or context.may(Operation.WRITE, TOPIC, SOMEWHERE)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    else:
        may = context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not may:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    response: InitProducerIdResponse = await answer_of(function, request, context)
    return response


@_guard
async def added_partitions(
    function: HandlerFunction, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Brokers ask in version 4 and up. A client needs WRITE on its transactional id; the handler asks for its topics,
    because one that is refused keeps the others from being added."""
    if context.api_version >= ASKED_BY_BROKERS:
        if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        turn = context.turn()
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(index, code) async for index in turn.through(topic.partitions)],
                )
                async for topic in turn.through(request.v3_and_below_topics)
            ]
        )
    response: AddPartitionsToTxnResponse = await answer_of(function, request, context)
    return response


@_guard
async def altered_log_dirs(
    function: HandlerFunction, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    if context.may(Operation.ALTER, ResourceType.CLUSTER):
        response: AlterReplicaLogDirsResponse = await answer_of(function, request, context)
        return response
    turn = context.turn()
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    named = (topic for directory in request.dirs for topic in directory.topics)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name,
                [AlterReplicaLogDirPartitionResult(index, code) async for index in turn.through(topic.partitions)],
            )
            async for topic in turn.through(named)
        ]
    )
