"""Consumer groups over HTTP: commit and read offsets, reset them, describe groups, delete them.

A group is the same whether its consumers speak Kafka or HTTP. While it has members that joined through Kafka, only they
change its offsets: commits and resets over HTTP are refused.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web

from gateway.coordinators.coordinator import GroupListing
from gateway.coordinators.errors import CoordinatorLoading
from gateway.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from gateway.coordinators.offsets_topic.values import CommittedOffset, lag_of
from gateway.http.figures.values import GroupFigures
from gateway.http.listings import GroupRow, Groups, TopicGroup, TopicGroups
from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.paging import DESCENDING, FIGURES, LIMIT, SEARCH, SKIP, page_of, sort_parameter
from gateway.http.parameters import GROUP, TOPIC, TOPIC_NAME_SCHEMA, Parameter, topic_name
from gateway.http.peers.cluster_view import Bounds, Refusal
from gateway.http.peers.forwarding import at_coordinator, at_new_coordinator
from gateway.http.permissions import SEEN_TOPICS, Shown, on_group, on_topic, on_topic_in_body
from gateway.http.problems import MOVED_ON, Problem
from gateway.http.routes.reading import out_of_range
from gateway.http.schemas import (
    AssignedTopic,
    Committed,
    GroupDescription,
    GroupOffset,
    GroupOffsets,
    Member,
    NewCommit,
    OffsetReset,
)
from gateway.off_loop import off_loop
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.errors import OffsetOutOfRange, TierlogError
from hot_tier.ids import PartitionId, TopicPartition

OF_TOPIC: Final = Parameter("topic", "query", "Only offsets of this topic.", TOPIC_NAME_SCHEMA, topic_name)


BY_FIGURES: Final = ("lag", "topics")
SORT_OF_TOPIC: Final = sort_parameter(("group", "state", "members", "lag"), "group")
SORT: Final = sort_parameter(("group", "state", "members", *BY_FIGURES), "group")


async def list_groups(call: Call) -> web.StreamResponse:
    values = call.values
    own = [
        _Listed(each.group_id, each.state.value, each.protocol_type, each.members)
        async for each in call.api.node.lane.turn().through(_known(call))
    ]
    groups = await _of_all_brokers(call, own, _Listed)
    figures = (await call.api.totals.get()).groups if values["figures"] or values["sort"] in BY_FIGURES else {}
    page = await off_loop(len(groups), page_of, groups, values, _name, _order(values["sort"], figures))
    turn = call.api.node.lane.turn()
    rows = [GroupRow(**each._asdict(), figures=figures.get(each.group)) async for each in turn.through(page)]
    body = await off_loop(len(rows), Groups.model_dump_json, Groups(groups=rows, total=len(groups)), exclude_none=True)
    return web.Response(body=body.encode(), content_type=JSON)


async def list_topic_groups(call: Call) -> web.StreamResponse:
    values, topic = call.values, call.api.node.image.topic(call.values["topic"])
    lags = call.api.sampler.lag.measured.readers.get(topic.name, {})
    own = [
        _Reader(each.group_id, each.state.value, each.members, lags[each.group_id])
        async for each in call.api.node.lane.turn().through(_known(call))
        if each.group_id in lags
    ]
    groups = await _of_all_brokers(call, own, _Reader)
    page = await off_loop(len(groups), page_of, groups, values, _name, attrgetter(values["sort"]))
    rows = [TopicGroup(**each._asdict()) async for each in call.api.node.lane.turn().through(page)]
    body = await off_loop(len(rows), TopicGroups.model_dump_json, TopicGroups(groups=rows, total=len(groups)))
    return web.Response(body=body.encode(), content_type=JSON)


class _Listed(NamedTuple):
    """A group as brokers tell it. Of a long list, only those on the page become documents."""

    group: str
    state: str
    protocol_type: str
    members: int


class _Reader(NamedTuple):
    """Likewise, of those that read a topic."""

    group: str
    state: str
    members: int
    lag: int | None


Row = TypeVar("Row", _Listed, _Reader)


def _known(call: Call) -> list[GroupListing]:
    if call.api.node.groups.is_loading:
        raise CoordinatorLoading("groups are being read back", hint="try again")
    return call.api.node.groups.list_groups()


async def _of_all_brokers(call: Call, own: list[Row], kind: type[Row]) -> list[Row]:
    """Returns the groups that are searched for and that the sender may see. Refuses if a broker does not tell its
    groups: a list without them would say that they are gone."""
    groups = own
    if not call.alone:
        for _, told in await call.api.view.everywhere("GET", call.request.path):
            if isinstance(told, Problem | TierlogError):
                raise told
            groups += [kind(*(each[name] for name in kind._fields)) for each in told["groups"]]
    groups = [each for each in groups if call.values["search"] in each.group.lower()]
    if not call.may(Permitted.DESCRIBE, ResourceType.CLUSTER):
        groups = [each for each in groups if call.may(Permitted.DESCRIBE, ResourceType.GROUP, each.group)]
    return groups


def _name(row: _Listed | _Reader) -> str:
    return row.group


def _order(column: str, figures: Mapping[str, GroupFigures]) -> Callable[[_Listed], Any]:
    if column in BY_FIGURES:
        return lambda row: getattr(figures.get(row.group), column, None)
    return lambda row: getattr(row, column)


async def describe_group(call: Call) -> web.StreamResponse:
    found = call.api.node.groups.describe(call.values["group"])
    consumers = found.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
    return json_response(
        GroupDescription(
            group=found.group_id,
            state=found.state.value,
            protocol_type=found.protocol_type,
            protocol=found.protocol_name,
            members=[
                Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    host=member.client_host,
                    assignment=_assignment(member.assignment) if consumers else None,
                )
                for member in found.members
            ],
        )
    )


async def delete_group(call: Call) -> web.StreamResponse:
    await call.api.node.groups.delete_group(call.values["group"])
    await call.api.dead_letters.forget_group(call.values["group"])
    return web.Response(status=204)


async def commit_offset(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, NewCommit)
    groups, group = call.api.node.groups, call.values["group"]
    tp = TopicPartition(asked.topic, PartitionId(asked.partition))
    if not call.alone:
        bounds = await call.api.view.bounds_of(tp)
        if asked.offset > bounds.log_end_offset:
            refused = OffsetOutOfRange(f"offset {asked.offset} is beyond the end of the log", where=str(tp))
            raise out_of_range(refused, bounds)
    if "expected_offset" not in asked.model_fields_set:
        await groups.commit_offsets(group, {tp: (asked.offset, asked.metadata)})
    elif not await groups.move_offset(group, tp, asked.expected_offset, asked.offset):
        raise Problem(
            MOVED_ON, f"the committed offset of {tp} is not {asked.expected_offset}, or it is being changed now"
        )
    return json_response(Committed())


async def get_offsets(call: Call) -> web.StreamResponse:
    return json_response(await _offsets(call, call.values["topic"]))


async def reset_offsets(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, OffsetReset)
    api, topic = call.api, call.api.node.image.topic(asked.topic)
    numbers = range(topic.partitions) if asked.partition is None else (asked.partition,)
    bounds = await api.view.bounds(topic, numbers)
    targets = {}
    for number in numbers:
        found, tp = bounds[number], TopicPartition(topic.name, PartitionId(number))
        if not isinstance(found, Bounds):
            raise found
        if asked.to == "earliest":
            target = found.log_start_offset
        else:
            target = await (api.view.latest(tp) if asked.to == "latest" else api.view.offset_at(tp, asked.to))
        targets[tp] = (target, "")
    if not asked.dry_run:
        await api.node.groups.commit_offsets(call.values["group"], targets)
        return json_response(await _offsets(call, topic.name))
    now_ms = api.node.clock()
    shown = [
        _offset(tp, CommittedOffset(offset, -1, metadata, now_ms), bounds[tp.partition], pending=False)
        for tp, (offset, metadata) in targets.items()
    ]
    lag = sum(each.lag or 0 for each in shown)
    return json_response(GroupOffsets(group=call.values["group"], offsets=shown, lag=lag))


async def _offsets(call: Call, of_topic: str | None) -> GroupOffsets:
    group, image = call.values["group"], call.api.node.image
    positions = call.api.node.groups.positions(group)
    chosen = {
        tp: positions[tp]
        for tp in sorted(positions)
        if of_topic in (None, tp.topic) and call.may(Permitted.DESCRIBE, ResourceType.TOPIC, tp.topic)
    }
    by_topic: dict[str, list[int]] = {}
    for tp in chosen:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    bounds: dict[str, dict[int, Bounds | Refusal]] = {}
    for name, numbers in by_topic.items():
        topic = image.find_topic(name)
        bounds[name] = {} if topic is None else await call.api.view.bounds(topic, numbers, alone=call.alone)
    unstable = call.api.node.groups.unstable_offsets(group)
    shown = [_offset(tp, held, bounds[tp.topic].get(tp.partition), tp in unstable) for tp, held in chosen.items()]
    lags = [each.lag for each in shown if bounds[each.topic]]
    known = [lag for lag in lags if lag is not None]
    return GroupOffsets(group=group, offsets=shown, lag=sum(known) if lags and len(known) == len(lags) else None)


def _offset(
    tp: TopicPartition, committed: CommittedOffset | None, bounds: Bounds | Refusal | None, pending: bool
) -> GroupOffset:
    """The lag is null if the partition's leader does not tell its bounds now, or if nothing is committed."""
    measured: Mapping[str, int | None] = {"log_start_offset": None, "high_watermark": None, "lag": None}
    if isinstance(bounds, Bounds):
        start, end = bounds.log_start_offset, bounds.high_watermark
        lag = lag_of(committed, start, end)
        measured = {"log_start_offset": start, "high_watermark": end, "lag": lag}
    return GroupOffset(
        topic=tp.topic,
        partition=tp.partition,
        offset=None if committed is None else committed.offset,
        metadata="" if committed is None else committed.metadata,
        pending=pending,
        **measured,
    )


def _assignment(assignment: bytes) -> list[AssignedTopic] | None:
    partitions = assigned_partitions(assignment)
    if partitions is None:
        return None
    by_topic: dict[str, list[PartitionId]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return [AssignedTopic(topic=topic, partitions=list(numbers)) for topic, numbers in by_topic.items()]


OPERATIONS: Final = (
    Operation(
        name="listGroups",
        method="GET",
        path="/api/v1/consumer-groups",
        tag="groups",
        summary="List consumer groups",
        handler=list_groups,
        needs=(Shown(Permitted.DESCRIBE, ResourceType.GROUP),),
        parameters=(SEARCH, SORT, DESCENDING, SKIP, LIMIT, FIGURES),
        answers={200: Answer("The groups of all brokers, and how many before the page was cut.", {JSON: Groups})},
    ),
    Operation(
        name="listTopicGroups",
        method="GET",
        path="/api/v1/topics/{topic}/groups",
        tag="groups",
        summary="List the consumer groups that read a topic, with their lag in it",
        description="A few seconds old: a group is shown once its lag was measured.",
        handler=list_topic_groups,
        needs=(on_topic(Permitted.DESCRIBE), Shown(Permitted.DESCRIBE, ResourceType.GROUP)),
        parameters=(TOPIC, SEARCH, SORT_OF_TOPIC, DESCENDING, SKIP, LIMIT),
        answers={
            200: Answer("Groups that have committed an offset, or have a member that reads it.", {JSON: TopicGroups})
        },
        problems=(404, 503),
    ),
    Operation(
        name="describeGroup",
        method="GET",
        path="/api/v1/consumer-groups/{group}",
        tag="groups",
        summary="Describe a group and its members",
        handler=describe_group,
        needs=(on_group(Permitted.DESCRIBE),),
        place=at_coordinator,
        parameters=(GROUP,),
        answers={200: Answer("The group.", {JSON: GroupDescription})},
        problems=(404, 503),
    ),
    Operation(
        name="deleteGroup",
        method="DELETE",
        path="/api/v1/consumer-groups/{group}",
        tag="groups",
        summary="Delete a group without members, and its offsets",
        handler=delete_group,
        needs=(on_group(Permitted.DELETE),),
        place=at_coordinator,
        parameters=(GROUP,),
        answers={204: Answer("It is gone.")},
        problems=(404, 409, 503),
    ),
    Operation(
        name="commitOffset",
        method="POST",
        path="/api/v1/consumer-groups/{group}/offsets",
        tag="groups",
        summary="Commit the offset to read next",
        handler=commit_offset,
        needs=(on_group(Permitted.READ), on_topic_in_body(Permitted.READ)),
        place=at_new_coordinator,
        parameters=(GROUP,),
        body=Document(NewCommit),
        answers={200: Answer("It is stored.", {JSON: Committed})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="getOffsets",
        method="GET",
        path="/api/v1/consumer-groups/{group}/offsets",
        tag="groups",
        summary="Committed offsets and lag",
        handler=get_offsets,
        needs=(on_group(Permitted.DESCRIBE), SEEN_TOPICS),
        place=at_coordinator,
        parameters=(GROUP, OF_TOPIC),
        answers={200: Answer("None for a group that has committed nothing and has no members.", {JSON: GroupOffsets})},
        problems=(503,),
    ),
    Operation(
        name="resetOffsets",
        method="POST",
        path="/api/v1/consumer-groups/{group}/offsets/reset",
        tag="groups",
        summary="Move a group to the earliest or latest record, or to a time",
        description="To a time: the first record with that timestamp or a later one, or the end if there is none.",
        handler=reset_offsets,
        needs=(on_group(Permitted.READ), on_topic_in_body(Permitted.READ)),
        place=at_new_coordinator,
        parameters=(GROUP,),
        body=Document(OffsetReset),
        answers={200: Answer("The group's offsets of this topic.", {JSON: GroupOffsets})},
        problems=(404, 409, 413, 415, 503),
    ),
)
