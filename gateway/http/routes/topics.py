"""Topics over HTTP: make, list, describe, change, delete."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from gateway.http.figures.merged import Merged
from gateway.http.figures.values import ReadFigures
from gateway.http.listings import Topics, TopicSummary
from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.paging import (
    DESCENDING,
    FIGURES,
    LIMIT,
    SEARCH,
    SKIP,
    page_of,
    sort_parameter,
    truth,
)
from gateway.http.parameters import TOPIC, Parameter
from gateway.http.peers.cluster_view import Bounds, Refusal
from gateway.http.permissions import SEEN_TOPICS, Need, on_topic
from gateway.http.schemas import NewTopic, PartitionDescription, SettingDescription, TopicChange, TopicDescription
from gateway.off_loop import off_loop
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.cluster.admin import DEFAULT
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.cluster.model import NO_NODE, PartitionState, Topic
from hot_tier.errors import InvalidConfig
from hot_tier.log.config import describe_topic_config

BY_FIGURES: Final = (
    "size_bytes",
    "records",
    "in_bytes_per_s",
    "out_bytes_per_s",
    "backlog_bytes",
    "stored_bytes",
    "lag",
)
SORT: Final = sort_parameter(("name", "partitions", *BY_FIGURES), "name")
INTERNAL: Final = Parameter(
    "internal",
    "query",
    "Whether to list topics of the service.",
    {"type": "boolean", "default": True},
    truth,
    default=True,
)


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
    values, search = call.values, call.values["search"]
    seen = [
        topic
        async for topic in call.api.node.lane.turn().through(list(call.api.node.image.topics()))
        if search in topic.name.lower()
        and (values["internal"] or not topic.internal)
        and call.may(Permitted.DESCRIBE, ResourceType.TOPIC, topic.name)
    ]
    figures = await call.api.totals.get() if values["figures"] or values["sort"] in BY_FIGURES else None
    page = await off_loop(len(seen), page_of, seen, values, _name, _order(values["sort"], figures))
    rows = [_summary(topic, figures) async for topic in call.api.node.lane.turn().through(page)]
    body = await off_loop(len(rows), Topics.model_dump_json, Topics(topics=rows, total=len(seen)), exclude_none=True)
    return web.Response(body=body.encode(), content_type=JSON)


def _name(topic: Topic) -> str:
    return topic.name


def _order(column: str, figures: Merged | None) -> Callable[[Topic], Any]:
    if column == "name" or figures is None:
        return _name
    if column == "partitions":
        return lambda topic: topic.partitions
    if column in ReadFigures.model_fields:
        return lambda topic: getattr(figures.reads.get(topic.name), column, None)
    return lambda topic: getattr(figures.topics.get(topic.name), column, None)


def _summary(topic: Topic, figures: Merged | None) -> TopicSummary:
    return TopicSummary(
        name=topic.name,
        id=str(topic.id),
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        internal=topic.internal,
        figures=None if figures is None else figures.topics.get(topic.name),
        reads=None if figures is None else figures.reads.get(topic.name),
    )


async def describe_topic(call: Call) -> web.StreamResponse:
    return json_response(await describe(call, call.api.node.image.topic(call.values["topic"])))


async def change_topic(call: Call) -> web.StreamResponse:
    """Changes settings first: all of them are changed or refused, and after a refusal the partitions are unchanged."""
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
    """Refuses a `min.insync.replicas` that can never be met. Kafka accepts it and then refuses every write."""
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
    if not call.may(Permitted.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        settings = []
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
    """Offsets and sizes are null if the leader does not tell them now."""
    measured = bounds._asdict() if isinstance(bounds, Bounds) else dict.fromkeys(Bounds._fields)
    return PartitionDescription(
        partition=index,
        leader=None if state.leader == NO_NODE else state.leader,
        leader_epoch=state.leader_epoch,
        replicas=list(state.replicas),
        isr=list(state.isr),
        **measured,
    )


def _to_make(call: Call) -> str | None:
    """Whoever may create topics in the cluster needs no rule for the topic."""
    if call.may(Permitted.CREATE, ResourceType.CLUSTER):
        return None
    name: str = call.body.name
    return name


def _to_grow(call: Call) -> str | None:
    return None if call.body.partitions is None else call.values["topic"]


def _to_change(call: Call) -> str | None:
    return call.values["topic"] if call.body.config else None


OPERATIONS: Final = (
    Operation(
        name="createTopic",
        method="POST",
        path="/api/v1/topics",
        tag="topics",
        summary="Create a topic",
        handler=create_topic,
        needs=(Need(Permitted.CREATE, ResourceType.TOPIC, _to_make, of_body=True),),
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
        needs=(SEEN_TOPICS,),
        parameters=(SEARCH, INTERNAL, SORT, DESCENDING, SKIP, LIMIT, FIGURES),
        answers={200: Answer("The topics, and how many there are before the page was cut.", {JSON: Topics})},
    ),
    Operation(
        name="describeTopic",
        method="GET",
        path="/api/v1/topics/{topic}",
        tag="topics",
        summary="Describe a topic",
        handler=describe_topic,
        needs=(on_topic(Permitted.DESCRIBE),),
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
        needs=(
            on_topic(Permitted.DESCRIBE),
            Need(Permitted.ALTER, ResourceType.TOPIC, _to_grow, of_body=True),
            Need(Permitted.ALTER_CONFIGS, ResourceType.TOPIC, _to_change, of_body=True),
        ),
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
        needs=(on_topic(Permitted.DELETE),),
        parameters=(TOPIC,),
        answers={204: Answer("It is gone.")},
        problems=(404, 409, 503),
    ),
)
