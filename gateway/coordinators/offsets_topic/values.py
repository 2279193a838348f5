"""Values of the offsets topic: a committed offset or a group with its members. Reads versions 0 to 3, writes 3.

```
offset                                      group
version i16                                 version i16
offset i64                                  protocol type string
leader epoch i32        from 3 on           generation i32
metadata string                             protocol nullable string
commit time i64, ms                         leader nullable string
expiry time i64, ms     1 only, not used    time of the state i64, ms         from 2 on
                                            members: i32 count, then each
                                              member id string
                                              instance id nullable string     from 3 on
                                              client id string, client host string
                                              rebalance timeout i32, ms       from 1 on
                                              session timeout i32, ms
                                              subscription bytes, assignment bytes
```
"""

from typing import Final, NamedTuple

from gateway.coordinators.groups.messages import GroupSnapshot, MemberSnapshot
from gateway.coordinators.offsets_topic.buffer import INT16, INT32, INT64, ValueReader, bytes_, string
from hot_tier.errors import CorruptLog

VALUE_VERSION: Final = 3

_LEAST_MEMBER_BYTES: Final = 2 + 2 + 2 + 4 + 4 + 4  # a member of version 0 with every field empty


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    """Leader epoch of the last record consumed; -1 if the client did not say."""
    metadata: str
    commit_ms: int

    @property
    def position(self) -> int | None:
        """Where the group continues. None for a negative offset: clients commit one to begin by their reset policy."""
        return self.offset if self.offset >= 0 else None


def lag_of(committed: CommittedOffset | None, log_start: int, high_watermark: int) -> int | None:
    """Returns how many records are not read yet; None if nothing is committed: then only the client knows."""
    if log_start >= high_watermark:
        return 0
    position = None if committed is None else committed.position
    # The group skips records that retention has deleted.
    return None if position is None else max(0, high_watermark - max(log_start, position))


class GroupRecord(NamedTuple):
    snapshot: GroupSnapshot
    state_ms: int
    """When the group entered its state; -1 if the version does not have it."""


def write_offset(value: CommittedOffset) -> bytes:
    return b"".join(
        (
            INT16.pack(VALUE_VERSION),
            INT64.pack(value.offset),
            INT32.pack(value.leader_epoch),
            string(value.metadata),
            INT64.pack(value.commit_ms),
        )
    )


def read_offset(data: bytes) -> CommittedOffset:
    reader = ValueReader(data)
    version = _version(reader, "an offset")
    return CommittedOffset(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else -1,
        metadata=reader.string(),
        commit_ms=reader.int64(),
    )


def write_group(snapshot: GroupSnapshot, state_ms: int) -> bytes:
    parts = [
        INT16.pack(VALUE_VERSION),
        string(snapshot.protocol_type),
        INT32.pack(snapshot.generation),
        string(snapshot.protocol_name),
        string(snapshot.leader),
        INT64.pack(state_ms),
        INT32.pack(len(snapshot.members)),
    ]
    for member in snapshot.members:
        parts += (
            string(member.member_id),
            string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            bytes_(member.subscription),
            bytes_(member.assignment),
        )
    return b"".join(parts)


def read_group(data: bytes) -> GroupRecord:
    reader = ValueReader(data)
    version = _version(reader, "a group")
    protocol_type = reader.string()
    generation = reader.int32()
    protocol_name = reader.nullable_string()
    leader = reader.nullable_string()
    state_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.count(_LEAST_MEMBER_BYTES)))
    _check_members(members, protocol_name, leader)
    return GroupRecord(GroupSnapshot(protocol_type, generation, protocol_name, leader, members), state_ms)


def _check_members(members: tuple[MemberSnapshot, ...], protocol_name: str | None, leader: str | None) -> None:
    ids = {member.member_id for member in members}
    static = [member.instance_id for member in members if member.instance_id is not None]
    if len(ids) != len(members) or len(set(static)) != len(static):
        raise CorruptLog("a member is listed twice")
    if members and (protocol_name is None or leader not in ids):
        raise CorruptLog("the members have no protocol, or their leader is missing")


def _read_member(reader: ValueReader, version: int) -> MemberSnapshot:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    return MemberSnapshot(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.bytes_(),
        assignment=reader.bytes_(),
    )


def _version(reader: ValueReader, what: str) -> int:
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION:
        raise CorruptLog(
            f"{what} is written in version {version}", hint=f"this broker reads versions 0 to {VALUE_VERSION}"
        )
    return version
