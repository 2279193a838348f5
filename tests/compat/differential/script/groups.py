"""Consumer groups: joined, synced, committed for, described, deleted; and members who are none."""

import struct
import time
from typing import Any

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from gateway.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.heartbeat import HeartbeatRequest
from gateway.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.kafka.protocol.messages.list_groups import ListGroupsRequest
from gateway.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from gateway.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.compat.differential.session import CLOSED, Session

from .making import make_topic

SESSION_MS = 30_000
SUBSCRIPTION = struct.pack(">hih6si", 0, 1, 6, b"orders", -1)
"""One topic. Kafka leaves a first member without an answer whose bytes it cannot read."""


def run(session: Session) -> None:
    _wait_for_coordinator(session)
    _coordinators(session)
    _offsets(session)
    _members(session)
    _strangers(session)
    _lists(session)


def _wait_for_coordinator(session: Session) -> None:
    """The first to ask makes the topic of offsets, and is told to ask again."""
    deadline = time.monotonic() + 20
    while session.send(FindCoordinatorRequest("billing"), 3).error_code:
        assert time.monotonic() < deadline, "no coordinator"
        time.sleep(0.1)


def _coordinators(session: Session) -> None:
    for v in session.each(ApiKey.FIND_COORDINATOR):

        def find(label: str, *keys: str, kind: int = 0, version: int = v) -> None:
            session.ask(label, FindCoordinatorRequest(keys[0] if keys else "", kind, list(keys)), version)

        find("a group", "billing")
        find("an empty name", "")
        if v >= 1:
            find("kind 7", "billing", kind=7)
        if v >= 4:
            find("two groups", "billing", "shipping")
            find("a group twice", "billing", "billing")
            find("nobody")


def _join(session: Session, group: str, v: int, member: str = "", **fields: Any) -> Any:
    request = JoinGroupRequest(
        group,
        fields.pop("session_ms", SESSION_MS),
        SESSION_MS,
        member,
        fields.pop("instance", None),
        fields.pop("protocol_type", "consumer"),
        fields.pop("protocols", [JoinGroupRequestProtocol("range", SUBSCRIPTION)]),
    )
    label = fields.pop("label", None)
    assert not fields, fields
    return session.ask(label, request, v) if label else session.send(request, v)


def _joined(session: Session, group: str, v: int) -> Any:
    """The answer to a join that went through, with the id that newer versions want first."""
    answer = _join(session, group, v)
    return _join(session, group, v, answer.member_id) if answer.error_code == 79 else answer


def _members(session: Session) -> None:
    for v in session.each(ApiKey.JOIN_GROUP):
        group = f"members-{v}"
        first = _join(session, group, v, label="the first")
        if first.error_code == 79:
            first = _join(session, group, v, first.member_id, label="the first, with its id")
        member, generation = first.member_id, first.generation_id
        beat, sync = min(v, 4), min(v, 5)
        assignment = [SyncGroupRequestAssignment(member, b"assigned")]
        named = ("consumer", "range")
        label = f"after join v{v}"
        session.ask(f"before the sync, {label}", HeartbeatRequest(group, generation, member), beat)
        session.ask(f"by nobody, {label}", SyncGroupRequest(group, generation, "nobody", None, *named, []), sync)
        session.ask(f"too late, {label}", SyncGroupRequest(group, generation + 1, member, None, *named, []), sync)
        if sync >= 5:
            wrong = SyncGroupRequest(group, generation, member, None, "consumer", "roundrobin", assignment)
            session.ask(f"another protocol, {label}", wrong, sync)
        session.ask(
            f"by the leader, {label}", SyncGroupRequest(group, generation, member, None, *named, assignment), sync
        )
        session.ask(f"again, {label}", SyncGroupRequest(group, generation, member, None, *named, []), sync)
        session.ask(f"of a member, {label}", HeartbeatRequest(group, generation, member), beat)
        session.ask(f"of another generation, {label}", HeartbeatRequest(group, generation + 7, member), beat)
        session.ask(f"of nobody, {label}", HeartbeatRequest(group, generation, "nobody"), beat)
        _join(session, group, v, "nobody", label="with an unknown id")
        _join(session, group, v, protocol_type="connect", label="of another kind")
        other = [JoinGroupRequestProtocol("roundrobin", SUBSCRIPTION)]
        _join(session, group, v, protocols=other, label="with another protocol")
        session.ask(f"with a member, {label}", DescribeGroupsRequest([group], False), min(v, 6))
        session.ask(f"with a member, {label}", DeleteGroupsRequest([group]), min(v, 2))
        leave = min(v, 5)
        session.ask(f"nobody, {label}", LeaveGroupRequest(group, [MemberIdentity("nobody")], "nobody"), leave)
        session.ask(f"the member, {label}", LeaveGroupRequest(group, [MemberIdentity(member)], member), leave)
        session.ask(f"the member again, {label}", LeaveGroupRequest(group, [MemberIdentity(member)], member), leave)
        session.ask(f"when it is empty, {label}", DescribeGroupsRequest([group], False), min(v, 6))
        session.ask(f"when it is empty, {label}", DeleteGroupsRequest([group]), min(v, 2))


def _strangers(session: Session) -> None:
    """Joins that cannot be."""
    for v in session.each(ApiKey.JOIN_GROUP):
        _join(session, "", v, label="no group name")
        _join(session, f"short-{v}", v, session_ms=10, label="a session of 10 ms")
        _join(session, f"long-{v}", v, session_ms=100_000_000, label="a session of a day")
        _join(session, f"none-{v}", v, protocols=[], label="no protocols")
        _join(session, f"kind-{v}", v, protocol_type="", label="no kind")
        if v >= 5:
            _join(session, f"static-{v}", v, instance="one", label="a static member")
            _join(session, f"unknown-{v}", v, "nobody", instance="one", label="a static member with an unknown id")


def _offsets(session: Session) -> None:
    topic = make_topic(session, "committed", 3)
    for v in session.each(ApiKey.OFFSET_COMMIT):
        group = f"offsets-{v}"

        def commit(label: str, *partitions: OffsetCommitRequestPartition, version: int = v, **fields: Any) -> None:
            topics = [OffsetCommitRequestTopic(name=fields.pop("topic", topic), partitions=list(partitions))]
            request = OffsetCommitRequest(fields.pop("group", f"offsets-{version}"), topics=topics, **fields)
            session.ask(label, request, version)

        part = OffsetCommitRequestPartition
        commit("one", part(0, 5, 3, "note"))
        commit("two, one of them unknown", part(1, 7), part(9, 7))
        commit("minus one", part(0, -1))
        commit("minus two", part(0, -2))
        commit("far ahead", part(2, 2**62))
        commit("metadata of 5,000 bytes", part(0, 5, -1, "x" * 5000))
        commit("no such topic", part(0, 5), topic=f"nobody-{v}")
        commit("no group name", part(0, 5), group="")
        commit("nobody of a generation", part(0, 5), generation_id_or_member_epoch=4, member_id="nobody")
        commit("an unknown member", part(0, 5), member_id="nobody")
        commit("a generation without a member", part(0, 5), generation_id_or_member_epoch=4)
        fetch = min(v, session.each(ApiKey.OFFSET_FETCH)[-1])  # type: ignore[index]
        _fetch_offsets(session, f"after commits v{v}", group, topic, [0, 1, 2], fetch)
    for v in session.each(ApiKey.OFFSET_FETCH):
        _fetch_offsets(session, "of nobody", "nobody", topic, [0, 7], v)
        _fetch_offsets(session, "of no name", "", topic, [0], v)
        _fetch_offsets(session, "of no topic", "offsets-5", f"nobody-{v}", [0], v)
        if v >= 2:
            _fetch_offsets(session, "of all", "offsets-5", None, [], v)
        if v >= 8:
            groups = [OffsetFetchRequestGroup(name, topics=None) for name in ("offsets-5", "offsets-6", "offsets-5")]
            session.ask("of three groups, one twice", OffsetFetchRequest(groups), v)
    for v in session.each(ApiKey.OFFSET_DELETE):

        def delete(label: str, group: str, *partitions: int, name: str = topic, version: int = v) -> None:
            wanted = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(at) for at in partitions])]
            session.ask(label, OffsetDeleteRequest(group, wanted), version)

        delete("one", "offsets-5", 0)
        delete("one that is none", "offsets-5", 0, 9)
        delete("of nobody", "nobody", 0)
        delete("of no topic", "offsets-5", 0, name="nobody")


def _fetch_offsets(session: Session, label: str, group: str, topic: str | None, partitions: list[int], v: int) -> None:
    if v >= 8:
        topics = None if topic is None else [OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
        request = OffsetFetchRequest([OffsetFetchRequestGroup(group, topics=topics)])
    else:
        old = None if topic is None else [OffsetFetchRequestTopic(topic, partitions)]
        request = OffsetFetchRequest([], group, old)
    session.ask(label, request, v)


def _lists(session: Session) -> None:
    _joined(session, "listed", 4)
    for v in session.each(ApiKey.LIST_GROUPS):

        def listed(label: str, *states: str, kinds: list[str] | None = None, version: int = v) -> None:
            answer = session.send(ListGroupsRequest(list(states), kinds or []), version)
            if answer != CLOSED:
                # Groups of other questions are there as well.
                answer.groups = [group for group in answer.groups if group.group_id == "listed"]
            session.answers[f"LIST_GROUPS {label} v{version}"] = str(answer)

        listed("all")
        if v >= 4:
            listed("by state", "CompletingRebalance")
            listed("by another state", "Empty")
            listed("by a state that is none", "Lazy")
        if v >= 5:
            listed("by kind", kinds=["classic"])
            listed("by another kind", kinds=["consumer"])
            listed("by a kind that is none", kinds=["lazy"])
    for v in session.each(ApiKey.DESCRIBE_GROUPS):
        session.ask("nobody", DescribeGroupsRequest(["nobody"], True), v)
        session.ask("no name", DescribeGroupsRequest([""], False), v)
        session.ask("one twice", DescribeGroupsRequest(["nobody", "nobody"], False), v)
        session.ask("none", DescribeGroupsRequest([], False), v)
    for v in session.each(ApiKey.DELETE_GROUPS):
        session.ask("nobody", DeleteGroupsRequest(["nobody"]), v)
        session.ask("no name", DeleteGroupsRequest([""]), v)
        session.ask("one twice", DeleteGroupsRequest(["nobody", "nobody"]), v)
        session.ask("none", DeleteGroupsRequest([]), v)
