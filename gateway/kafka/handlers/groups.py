"""Consumer groups over the wire: join, sync, heartbeat, leave; describe, list, delete.

This module only translates: fields into requests of `gateway.coordinators`, answers into fields, and the differences
between versions.
"""

from typing import Final

from gateway.coordinators.coordinator import GroupDescription
from gateway.coordinators.errors import CoordinatorError, GroupNotFound, Refusal
from gateway.coordinators.group_members import new_member_id
from gateway.coordinators.groups.messages import JoinRequest, LeavingMember, Protocol, SyncRequest
from gateway.coordinators.groups.states import State
from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from gateway.kafka.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from gateway.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gateway.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from gateway.kafka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from gateway.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from gateway.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from hot_tier.cluster.acls import ResourceType
from hot_tier.errors import TierlogError

GROUP_TYPE: Final = "classic"
MEMBER_ID_FIRST: Final = 4
"""From this version of JoinGroup on, a newcomer first gets an id and must join again with it."""
NULL_PROTOCOL: Final = 7
SKIPS_ASSIGNMENT: Final = 9
MANY_LEAVE: Final = 3
NOT_FOUND_IS_AN_ERROR: Final = 6


async def join(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    version = context.api_version
    client_id, instance_id = context.client_id, request.group_instance_id
    rebalance_timeout_ms = request.rebalance_timeout_ms
    asked = JoinRequest(
        member_id=request.member_id,
        fresh_id=new_member_id(client_id, instance_id),
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host(context),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms >= 0 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(each.name, each.metadata) for each in request.protocols),
        must_know_id=version >= MEMBER_ID_FIRST,
        can_skip_assignment=version >= SKIPS_ASSIGNMENT,
    )
    no_protocol = None if version >= NULL_PROTOCOL else ""
    try:
        answer = await context.node.groups.join(request.group_id, asked)
    except TierlogError as error:
        return JoinGroupResponse(error_code=error_code(error), member_id=request.member_id, protocol_name=no_protocol)
    return JoinGroupResponse(
        error_code=_code(answer.error),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=no_protocol if answer.protocol_name is None else answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in answer.members
        ],
    )


async def sync(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    asked = SyncRequest(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    answer = await context.node.groups.sync(request.group_id, asked)
    return SyncGroupResponse(
        error_code=_code(answer.error),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    refusal = context.node.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=_code(refusal))


async def leave(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    groups = context.node.groups
    if context.api_version < MANY_LEAVE:
        (refusal,) = groups.leave(request.group_id, [LeavingMember(request.member_id)])
        return LeaveGroupResponse(error_code=_code(refusal))
    leaving = [LeavingMember(each.member_id, each.group_instance_id) for each in request.members]
    refusals: list[Refusal] = []
    turn = context.turn()
    async for some in turn.parts(leaving):
        refusals += groups.leave(request.group_id, some)
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=_code(refusal)
            )
            async for each, refusal in turn.through(zip(request.members, refusals, strict=True))
        ]
    )


async def describe(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    asked = context.turn().through(dict.fromkeys(request.groups))
    return DescribeGroupsResponse(groups=[_describe(group_id, request, context) async for group_id in asked])


def _describe(group_id: str, request: DescribeGroupsRequest, context: RequestContext) -> DescribedGroup:
    try:
        answer = _described(context.node.groups.describe(group_id))
    except GroupNotFound as error:
        answer = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if context.api_version >= NOT_FOUND_IS_AN_ERROR:
            answer.error_code, answer.error_message = error_code(error), str(error)
    except CoordinatorError as error:
        answer = DescribedGroup(group_id=group_id, error_code=error_code(error), error_message=str(error))
    if request.include_authorized_operations and answer.error_code == ErrorCode.NONE:
        answer.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
    return answer


def _described(group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


async def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Returns the groups known so far; while groups are still being read back, with an error that says so."""
    groups = context.node.groups
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    found = groups.list_groups() if not types or GROUP_TYPE in types else []
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if groups.is_loading else ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state.value,
                group_type=GROUP_TYPE,
            )
            async for each in context.turn().through(found)
            if not states or each.state.value.lower() in states
        ],
    )


async def delete(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    # A group that is named twice is deleted once.
    names = list(dict.fromkeys(request.groups_names))
    codes = await context.turn().gather(lambda name: _delete(name, context), names)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)]
    )


async def _delete(group_id: str, context: RequestContext) -> ErrorCode:
    try:
        await context.node.groups.delete_group(group_id)
    except TierlogError as error:
        return error_code(error)
    return ErrorCode.NONE


def client_host(context: RequestContext) -> str:
    """Returns the host as Kafka's tools show it: a slash and the address, without the port."""
    return "/" + context.host


def _code(refusal: Refusal) -> ErrorCode:
    return ErrorCode.NONE if refusal is None else error_code(refusal)


HANDLERS: Final = {
    ApiKey.JOIN_GROUP: Handler(0, 9, join),
    ApiKey.SYNC_GROUP: Handler(0, 5, sync),
    ApiKey.HEARTBEAT: Handler(0, 4, heartbeat),
    ApiKey.LEAVE_GROUP: Handler(0, 5, leave),
    ApiKey.DESCRIBE_GROUPS: Handler(0, 6, describe),
    ApiKey.LIST_GROUPS: Handler(0, 5, list_groups),
    ApiKey.DELETE_GROUPS: Handler(0, 2, delete),
}
