"""Which requests a classic group refuses, and why. Nothing here changes a group."""

from typing import TYPE_CHECKING

from gateway.coordinators.errors import (
    CoordinatorNotAvailable,
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    Refusal,
    UnknownMember,
)
from gateway.coordinators.groups.messages import GroupLimits, JoinRequest, SyncRequest
from gateway.coordinators.groups.states import SYNC_ANSWERS, State

if TYPE_CHECKING:
    from gateway.coordinators.groups.classic import ClassicGroup


def refuse_join(group: "ClassicGroup", request: JoinRequest, limits: GroupLimits) -> Refusal:
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        return InvalidSessionTimeout
    if group.state is State.DEAD:
        return CoordinatorNotAvailable
    if not _has_room_for(group, request.member_id, limits):
        return GroupFull
    if group.held_bytes + request.size_bytes - group.roster.held_by(request.member_id) > limits.max_bytes:
        return GroupFull
    if not request.protocol_type or not group.roster.supports_any(request.protocols):
        return InconsistentProtocol
    if group.state is not State.EMPTY and request.protocol_type != group.protocol_type:
        return InconsistentProtocol
    return None


def _has_room_for(group: "ClassicGroup", member_id: str, limits: GroupLimits) -> bool:
    """While a generation is formed, only members that have joined it count: the others may be gone."""
    roster = group.roster
    if group.state is State.PREPARING_REBALANCE:
        if member_id in roster and roster[member_id].join_ticket is not None:
            return True
        taken = roster.waiting
    else:
        if member_id in roster:
            return True
        taken = len(roster)
    if member_id not in roster.pending:
        taken += len(roster.pending)
    return taken < limits.max_size


def refuse_sync(group: "ClassicGroup", request: SyncRequest) -> Refusal:
    if refusal := refuse_generation(group, request.member_id, request.instance_id, request.generation):
        return refusal
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return InconsistentProtocol
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return InconsistentProtocol
    return SYNC_ANSWERS[group.state]


def refuse_generation(group: "ClassicGroup", member_id: str, instance_id: str | None, generation: int) -> Refusal:
    if group.state is State.DEAD:
        return CoordinatorNotAvailable
    if refusal := refuse_member(group, member_id, instance_id):
        return refusal
    return None if generation == group.generation else IllegalGeneration


def refuse_member(group: "ClassicGroup", member_id: str, instance_id: str | None) -> Refusal:
    roster = group.roster
    if instance_id is not None:
        holder = roster.instance(instance_id)
        if holder is not None and holder != member_id:
            return FencedInstance
        if holder is None:
            return UnknownMember
    return None if member_id in roster else UnknownMember
