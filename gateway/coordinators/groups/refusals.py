"""Decides which requests a classic group refuses, and why. Nothing here changes a group."""

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
from gateway.coordinators.groups.messages import NO_MEMBER, GroupLimits, JoinRequest, SyncRequest
from gateway.coordinators.groups.states import COMMIT_ANSWERS, SYNC_ANSWERS, State

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
    """Returns whether the group has room. While a generation is formed, only members that joined it count."""
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


def refuse_commit(
    group: "ClassicGroup", member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool
) -> Refusal:
    """A group without members takes offsets from any non-member. In a transaction they are also taken from a sender
    that names no member, as older producers do, and while a new generation waits for its assignment."""
    if generation < 0 and group.state is State.EMPTY:
        return None
    if in_transaction and generation < 0 and member_id == NO_MEMBER and instance_id is None:
        return CoordinatorNotAvailable if group.state is State.DEAD else None
    refusal = refuse_generation(group, member_id, instance_id, generation)
    return refusal if refusal is not None or in_transaction else COMMIT_ANSWERS[group.state]


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
