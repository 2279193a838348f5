"""Topics over HTTP: make, list, describe, change, delete."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import TOPIC
from gateway.http.peers.cluster_view import Bounds, Refusal
from gateway.http.schemas import (
    NewTopic,
    PartitionDescription,
    SettingDescription,
    TopicChange,
    TopicDescription,
    Topics,
    TopicSummary,
)
from hot_tier.cluster.admin import DEFAULT
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.cluster.model import NO_NODE, PartitionState, Topic
from hot_tier.errors import InvalidConfig
from hot_tier.log.config import describe_topic_config


async def create_topic(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, NewTopic)
    admin = call.api.node.admin
    wanted = (
        asked.name,
        DEFAULT if asked.partitions is None else asked.partitions,
        DEFAULT if asked.replication_factor is None else asked.replication_factor,
        asked.config,
    )
    _check_writable(await admin.create_topic(*wanted, validate_only=True), asked.config)
    topic = await admin.create_topic(*wanted)
    return json_response(await describe(call, topic), 201, {"Location": f"/api/v1/topics/{topic.name}"})


async def list_topics(call: Call) -> web.StreamResponse:
    topics = sorted(call.api.node.image.topics(), key=lambda topic: topic.name)
    return json_response(
        Topics(
            topics=[
                TopicSummary(
                    name=topic.name,
                    id=str(topic.id),
                    partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    internal=topic.internal,
                )
                for topic in topics
            ]
        )
    )


async def describe_topic(call: Call) -> web.StreamResponse:
    return json_response(await describe(call, call.api.node.image.topic(call.values["topic"])))


async def change_topic(call: Call) -> web.StreamResponse:
    """Settings first: they are refused or done as a whole, and a refusal leaves the partitions alone."""
    asked = call.body
    assert isinstance(asked, TopicChange)
    admin = call.api.node.admin
    name = call.values["topic"]
    topic = call.api.node.image.topic(name)
    grow = asked.partitions is not None and asked.partitions != topic.partitions
    if grow and asked.partitions is not None:
        await admin.add_partitions(name, asked.partitions, validate_only=True)
    if asked.config:
        _check_writable(topic, asked.config)
        changes = [
            ConfigChange(each, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)
            for each, value in asked.config.items()
        ]
        topic = await admin.alter_config(name, changes)
    if grow and asked.partitions is not None:
        topic = await admin.add_partitions(name, asked.partitions)
    return json_response(await describe(call, topic))


def _check_writable(topic: Topic, config: Mapping[str, str | None]) -> None:
    """Kafka takes a `min.insync.replicas` that can never be met, and then refuses every write."""
    wanted = config.get("min.insync.replicas")
    if wanted is not None and int(wanted) > topic.replication_factor:
        raise InvalidConfig(
            f"min.insync.replicas {wanted} is above the replication factor {topic.replication_factor}: "
            "no write could ever be acknowledged",
            where=topic.name,
            hint="Lower min.insync.replicas, or ask for more replicas.",
        )


async def delete_topic(call: Call) -> web.StreamResponse:
    await call.api.node.admin.delete_topic(call.values["topic"])
    return web.Response(status=204)


async def describe(call: Call, topic: Topic) -> TopicDescription:
    node = call.api.node
    settings = describe_topic_config(node.partitions.config(topic), topic.config)
    bounds = await call.api.view.bounds(topic, range(topic.partitions), alone=call.alone)
    return TopicDescription(
        name=topic.name,
        id=str(topic.id),
        internal=topic.internal,
        created_ms=topic.created_ms,
        replication_factor=topic.replication_factor,
        partitions=[
            _partition(index, state, bounds[index]) for index, state in enumerate(node.image.partition_states(topic))
        ],
        config={each.name: SettingDescription(value=each.value, source=each.source) for each in settings},
    )


def _partition(index: int, state: PartitionState, bounds: Bounds | Refusal) -> PartitionDescription:
    """Offsets and sizes are null where the leader does not tell them now."""
    measured = bounds._asdict() if isinstance(bounds, Bounds) else dict.fromkeys(Bounds._fields)
    return PartitionDescription(
        partition=index,
        leader=None if state.leader == NO_NODE else state.leader,
        leader_epoch=state.leader_epoch,
        replicas=list(state.replicas),
        isr=list(state.isr),
        **measured,
    )


OPERATIONS: Final = (
    Operation(
        name="createTopic",
        method="POST",
        path="/api/v1/topics",
        tag="topics",
        summary="Create a topic",
        handler=create_topic,
        body=Document(NewTopic),
        answers={201: Answer("The topic as it was made.", {JSON: TopicDescription}, {"Location": "Its address."})},
        problems=(409, 413, 415, 503),
    ),
    Operation(
        name="listTopics",
        method="GET",
        path="/api/v1/topics",
        tag="topics",
        summary="List topics",
        handler=list_topics,
        answers={200: Answer("All topics, by name.", {JSON: Topics})},
    ),
    Operation(
        name="describeTopic",
        method="GET",
        path="/api/v1/topics/{topic}",
        tag="topics",
        summary="Describe a topic",
        handler=describe_topic,
        parameters=(TOPIC,),
        answers={200: Answer("Its partitions and settings.", {JSON: TopicDescription})},
        problems=(404,),
    ),
    Operation(
        name="changeTopic",
        method="PATCH",
        path="/api/v1/topics/{topic}",
        tag="topics",
        summary="Change settings, add partitions",
        handler=change_topic,
        parameters=(TOPIC,),
        body=Document(TopicChange),
        answers={200: Answer("The topic as it is now.", {JSON: TopicDescription})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="deleteTopic",
        method="DELETE",
        path="/api/v1/topics/{topic}",
        tag="topics",
        summary="Delete a topic and its records",
        handler=delete_topic,
        parameters=(TOPIC,),
        answers={204: Answer("It is gone.")},
        problems=(404, 409, 503),
    ),
)
