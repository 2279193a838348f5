"""CreateTopics, DeleteTopics, CreatePartitions: each topic of a request on its own, with its own error.

The rules are in `hot_tier.cluster.admin`. This module handles what only the protocol knows: names given twice, topics
named by id, settings repeated in the answer.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

from gateway.kafka.configs.view import topic_entries
from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext, once
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from gateway.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from gateway.kafka.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from gateway.kafka.protocol.schema import NO_ID
from gateway.node import Node
from hot_tier.cluster.admin import DEFAULT, NewTopic
from hot_tier.cluster.model import Topic
from hot_tier.errors import InvalidConfig, InvalidRequest, PolicyViolation, TierlogError

MAX_PARTITIONS: Final = 10_000
"""Limit for all topics of one request together."""
AT_ONCE: Final = 32
"""Topics that are made together and share the store's commits."""

T = TypeVar("T")


async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    node, turn = context.node, context.turn()
    repeated = _repeated(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {
        name: _not_created(name, InvalidRequest(f"topic {name!r} is named twice in this request")) for name in repeated
    }
    wanted: list[NewTopic] = []
    async for asked in turn.through(request.topics):
        if asked.name in repeated:
            continue
        try:
            wanted.append(_new_topic(asked))
        except TierlogError as error:
            results[asked.name] = _not_created(asked.name, error)
    _check_total(wanted, node)
    shown: dict[Hashable, list[CreatableTopicConfigs]] = {}
    async for some in turn.parts(wanted, AT_ONCE):
        made = await node.admin.create_topics(some, request.validate_only)
        async for new, result in turn.through(zip(some, made, strict=True)):
            results[new.name] = (
                _not_created(new.name, result)
                if isinstance(result, TierlogError)
                else _created(result, node, request.validate_only, shown)
            )
    return CreateTopicsResponse(topics=list(results.values()))


def _check_total(wanted: Iterable[NewTopic], node: Node) -> None:
    """Applies Kafka's limit. Topics that are too large by themselves are not made and do not count."""
    settings = node.admin.settings
    counts = (settings.num_partitions if new.partitions == DEFAULT else new.partitions for new in wanted)
    total = sum(count for count in counts if 0 < count <= settings.max_partitions_per_topic)
    if total > MAX_PARTITIONS:
        raise PolicyViolation(
            f"the request makes {total} partitions", hint=f"one request makes at most {MAX_PARTITIONS}: send several"
        )


def _new_topic(asked: CreatableTopic) -> NewTopic:
    config: dict[str, str] = {}
    for entry in asked.configs:
        if entry.value is None:
            raise InvalidConfig("the setting has no value", where=entry.name)
        config[entry.name] = entry.value
    assignment = {each.partition_index: each.broker_ids for each in asked.assignments}
    if len(assignment) != len(asked.assignments):
        raise InvalidRequest("a partition is assigned twice", where=asked.name)
    return NewTopic(asked.name, asked.num_partitions, asked.replication_factor, config, assignment or None)


def _created(
    topic: Topic, node: Node, validate_only: bool, shown: dict[Hashable, list[CreatableTopicConfigs]]
) -> CreatableTopicResult:
    """Returns the result. Topics with equal settings share their entry in `shown`."""
    key = frozenset(topic.config.items())
    if key not in shown:
        shown[key] = [
            CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source)
            for entry in topic_entries(topic, node.admin.defaults)
        ]
    return CreatableTopicResult(
        name=topic.name,
        topic_id=NO_ID if validate_only else topic.id,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=shown[key],
    )


def _not_created(name: str, error: TierlogError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error_code(error), error_message=str(error))


async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    repeated = _repeated(topic.name for topic in asked if topic.name is not None)
    repeated_ids = _repeated(topic.topic_id for topic in asked if topic.topic_id != NO_ID)

    async def delete(topic: DeleteTopicState) -> DeletableTopicResult:
        try:
            if topic.name in repeated or topic.topic_id in repeated_ids:
                raise InvalidRequest("a topic is named twice in this request")
            deleted = await _delete(topic, context.node)
        except TierlogError as error:
            return DeletableTopicResult(topic.name, topic.topic_id, error_code(error), str(error))
        return DeletableTopicResult(deleted.name, deleted.id)

    asked = once(asked, lambda topic: (topic.name, topic.topic_id))
    return DeleteTopicsResponse(responses=await context.turn().gather(delete, asked))


async def _delete(asked: DeleteTopicState, node: Node) -> Topic:
    if (asked.name is None) == (asked.topic_id == NO_ID):
        raise InvalidRequest("name a topic either by its name or by its id")
    if asked.name is not None:
        return await node.admin.delete_topic(asked.name)
    return await node.admin.delete_topic(node.image.topic_by_id(asked.topic_id).name, asked.topic_id)


async def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    repeated = _repeated(topic.name for topic in request.topics)

    async def grow(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        # With a null assignment we choose the brokers. Clients also send an empty one, with the same meaning.
        assignment = [each.broker_ids for each in topic.assignments] if topic.assignments else None
        try:
            if topic.name in repeated:
                raise InvalidRequest(f"topic {topic.name!r} is named twice in this request")
            await context.node.admin.add_partitions(topic.name, topic.count, assignment, request.validate_only)
        except TierlogError as error:
            return CreatePartitionsTopicResult(topic.name, error_code(error), str(error))
        return CreatePartitionsTopicResult(topic.name, ErrorCode.NONE)

    topics = once(request.topics, lambda topic: topic.name)
    return CreatePartitionsResponse(results=await context.turn().gather(grow, topics))


def _repeated(names: Iterable[T]) -> set[T]:
    return {name for name, times in Counter(names).items() if times > 1}


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.CREATE_TOPICS: Handler(2, 7, create_topics),
    ApiKey.DELETE_TOPICS: Handler(1, 6, delete_topics),
    ApiKey.CREATE_PARTITIONS: Handler(0, 3, create_partitions),
}
