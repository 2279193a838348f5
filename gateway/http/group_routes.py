"""Consumer groups over HTTP: commit and read offsets, reset them, look at groups, delete them.

A group is the same whether its consumers speak Kafka or HTTP. While it has members that joined through Kafka, they
alone say where it stands: commits and resets from here are refused.
"""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from gateway.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.fetch.reader import Isolation
from gateway.http.api import Api
from gateway.http.operation import JSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import GROUP, TOPIC_NAME_SCHEMA, Parameter, topic_name
from gateway.http.read_routes import out_of_range
from gateway.http.schemas import (
    AssignedTopic,
    Committed,
    GroupDescription,
    GroupOffset,
    GroupOffsets,
    Groups,
    GroupSummary,
    Member,
    NewCommit,
    OffsetReset,
)
from hot_tier.errors import NotLeader, OffsetOutOfRange, UnknownPartition, UnknownTopic
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.replication.partition import Partition

OF_TOPIC: Final = Parameter("topic", "query", "Only offsets of this topic.", TOPIC_NAME_SCHEMA, topic_name)


async def list_groups(call: Call) -> web.StreamResponse:
    listed = sorted(call.api.node.groups.list_groups(), key=lambda each: each.group_id)
    return json_response(
        Groups(
            groups=[
                GroupSummary(
                    group=each.group_id,
                    state=each.state.value,
                    protocol_type=each.protocol_type,
                    members=each.members,
                )
                for each in listed
            ]
        )
    )


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
    partition = call.api.node.partitions.get(asked.topic, asked.partition)
    if asked.offset > partition.log.log_end_offset:
        refused = OffsetOutOfRange(f"offset {asked.offset} is beyond the end of the log", where=str(partition.tp))
        raise out_of_range(refused, partition)
    await call.api.node.groups.commit_offsets(call.values["group"], {partition.tp: (asked.offset, asked.metadata)})
    return json_response(Committed())


async def get_offsets(call: Call) -> web.StreamResponse:
    return json_response(_offsets(call.api, call.values["group"], call.values["topic"]))


async def reset_offsets(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, OffsetReset)
    api, group = call.api, call.values["group"]
    topic = api.node.image.topic(asked.topic)
    numbers = range(topic.partitions) if asked.partition is None else (asked.partition,)
    targets = {}
    for number in numbers:
        partition = api.node.partitions.get(topic.name, number)
        targets[partition.tp] = (await _reset_target(api, partition, asked.to), "")
    await api.node.groups.commit_offsets(group, targets)
    return json_response(_offsets(api, group, topic.name))


async def _reset_target(api: Api, partition: Partition, to: int | str) -> int:
    if to == "earliest":
        return partition.log.log_start_offset
    if isinstance(to, int):
        found = await api.node.reader.offset_for_timestamp(partition, to, Isolation.READ_COMMITTED)
        if found is not None:
            return found.offset
    return partition.last_stable_offset


def _offsets(api: Api, group: str, topic: str | None) -> GroupOffsets:
    committed = api.node.groups.fetch_offsets(group)
    shown = [_offset(api, tp, committed[tp]) for tp in sorted(committed) if topic is None or tp.topic == topic]
    return GroupOffsets(group=group, offsets=shown, lag=sum(each.lag or 0 for each in shown))


def _offset(api: Api, tp: TopicPartition, committed: CommittedOffset) -> GroupOffset:
    measured: Mapping[str, int | None]
    try:
        partition = api.node.partitions.get(tp.topic, tp.partition)
        start, end = partition.log.log_start_offset, partition.high_watermark
        # Where it would go on: behind what retention took.
        lag = max(0, end - max(start, committed.offset))
        measured = {"log_start_offset": start, "high_watermark": end, "lag": lag}
    except (NotLeader, UnknownTopic, UnknownPartition):
        measured = {"log_start_offset": None, "high_watermark": None, "lag": None}
    return GroupOffset(
        topic=tp.topic,
        partition=tp.partition,
        offset=committed.offset,
        metadata=committed.metadata,
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
        answers={200: Answer("The groups that this node coordinates, by name.", {JSON: Groups})},
    ),
    Operation(
        name="describeGroup",
        method="GET",
        path="/api/v1/consumer-groups/{group}",
        tag="groups",
        summary="Describe a group and its members",
        handler=describe_group,
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
        parameters=(GROUP, OF_TOPIC),
        answers={200: Answer("None for a group that has committed nothing.", {JSON: GroupOffsets})},
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
        parameters=(GROUP,),
        body=Document(OffsetReset),
        answers={200: Answer("The group's offsets of this topic.", {JSON: GroupOffsets})},
        problems=(404, 409, 413, 415, 503),
    ),
)
