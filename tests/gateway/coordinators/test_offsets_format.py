"""The bytes of `__consumer_offsets`: golden records of every version, round trips, and whatever else may be there."""

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.coordinators.groups.messages import GroupSnapshot, MemberSnapshot
from gateway.coordinators.groups.subscription import assigned_partitions, subscribed_topics
from gateway.coordinators.journal.partitioning import java_hash, partition_of
from gateway.coordinators.offsets_topic.keys import GroupKey, OffsetKey, read_key, write_key
from gateway.coordinators.offsets_topic.values import (
    CommittedOffset,
    GroupRecord,
    read_group,
    read_offset,
    write_group,
    write_offset,
)
from hot_tier.errors import CorruptLog


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value.encode())) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


# Which partition


@pytest.mark.parametrize(
    ("name", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("console-consumer-12345", None),
        ("Ω", 937),
        ("😀", 1772899),  # two UTF-16 units: 0xD83D * 31 + 0xDE00
    ],
)
def test_the_hash_is_javas(name, hash_code):
    if hash_code is None:
        value = 0
        for character in name:
            value = 31 * value + ord(character)
        hash_code = (value + (1 << 31)) % (1 << 32) - (1 << 31)
    assert java_hash(name) == hash_code


def test_negative_hashes_count_by_their_absolute_value_and_the_least_one_as_zero():
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_of("polygenelubricants", 50) == 0
    negative = next(name for name in map("orders-app-{}".format, range(1000)) if java_hash(name) < 0)
    assert partition_of(negative, 50) == -java_hash(negative) % 50


@given(st.text(), st.integers(1, 200))
def test_a_partition_is_one_of_them(name, partitions):
    assert 0 <= partition_of(name, partitions) < partitions


# Keys


def test_golden_keys():
    offset = struct.pack(">h", 1) + text("orders-app") + text("orders") + struct.pack(">i", 7)
    assert write_key(OffsetKey("orders-app", "orders", 7)) == offset
    assert read_key(offset) == OffsetKey("orders-app", "orders", 7)
    assert read_key(struct.pack(">h", 0) + offset[2:]) == OffsetKey("orders-app", "orders", 7)
    group = struct.pack(">h", 2) + text("orders-app")
    assert write_key(GroupKey("orders-app")) == group
    assert read_key(group) == GroupKey("orders-app")


def test_keys_of_newer_kinds_of_groups_are_left_alone():
    for version in (3, 5, 100):
        assert read_key(struct.pack(">h", version) + text("g")) is None


# Values

OFFSET = CommittedOffset(1234567890123, 5, "where I was", 1_700_000_000_000)


@pytest.mark.parametrize("version", range(4))
def test_golden_offsets(version):
    data = struct.pack(">hq", version, OFFSET.offset)
    data += struct.pack(">i", OFFSET.leader_epoch) if version == 3 else b""
    data += text(OFFSET.metadata) + struct.pack(">q", OFFSET.commit_ms)
    data += struct.pack(">q", 42) if version == 1 else b""
    assert read_offset(data) == (OFFSET if version == 3 else OFFSET._replace(leader_epoch=-1))
    if version == 3:
        assert write_offset(OFFSET) == data


MEMBER = MemberSnapshot("m-1", "host-1", "app", "/10.0.0.1", 300_000, 45_000, b"sub", b"assigned")
GROUP = GroupSnapshot("consumer", 17, "range", "m-1", (MEMBER,))


@pytest.mark.parametrize("version", range(4))
def test_golden_groups(version):
    data = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 17) + text("range") + text("m-1")
    data += struct.pack(">q", 99) if version >= 2 else b""
    data += struct.pack(">i", 1) + text("m-1")
    data += text("host-1") if version >= 3 else b""
    data += text("app") + text("/10.0.0.1")
    data += struct.pack(">i", 300_000) if version >= 1 else b""
    data += struct.pack(">i", 45_000) + blob(b"sub") + blob(b"assigned")
    record = read_group(data)
    assert record.state_ms == (99 if version >= 2 else -1)
    (member,) = record.snapshot.members
    assert member.instance_id == ("host-1" if version >= 3 else None)
    assert member.rebalance_timeout_ms == (300_000 if version >= 1 else 45_000)
    assert (member.subscription, member.assignment) == (b"sub", b"assigned")
    if version == 3:
        assert record == GroupRecord(GROUP, 99)
        assert write_group(GROUP, 99) == data


def test_an_empty_group_has_neither_protocol_nor_leader():
    empty = GroupSnapshot("consumer", 18, None, None, ())
    assert read_group(write_group(empty, 5)) == GroupRecord(empty, 5)


@pytest.mark.parametrize(
    "broken",
    [
        GroupSnapshot("consumer", 1, None, "m-1", (MEMBER,)),
        GroupSnapshot("consumer", 1, "range", "somebody else", (MEMBER,)),
        GroupSnapshot("consumer", 1, "range", "m-1", (MEMBER, MEMBER)),
    ],
)
def test_groups_that_cannot_be_are_refused(broken):
    with pytest.raises(CorruptLog):
        read_group(write_group(broken, 0))


@pytest.mark.parametrize("version", [-1, 4, 99])
def test_unknown_versions_are_refused(version):
    for read in (read_offset, read_group):
        with pytest.raises(CorruptLog, match="version"):
            read(struct.pack(">h", version) + bytes(100))


names = st.text(max_size=20)
numbers = st.integers(-(1 << 31), (1 << 31) - 1)
blobs = st.binary(max_size=9)
longs = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.builds(OffsetKey, names, names, numbers) | st.builds(GroupKey, names))
def test_keys_round_trip(key):
    assert read_key(write_key(key)) == key


@given(st.builds(CommittedOffset, longs, numbers, names, longs))
def test_offsets_round_trip(offset):
    assert read_offset(write_offset(offset)) == offset


members = st.builds(MemberSnapshot, names, st.none() | names, names, names, numbers, numbers, blobs, blobs)


@given(
    st.lists(
        members,
        max_size=4,
        unique_by=(lambda m: m.member_id, lambda m: (m.instance_id, m.member_id if m.instance_id is None else "")),
    ),
    names,
    numbers,
    longs,
)
def test_groups_round_trip(listed, protocol_type, generation, state_ms):
    leader = listed[-1].member_id if listed else None
    snapshot = GroupSnapshot(protocol_type, generation, "p" if listed else None, leader, tuple(listed))
    assert read_group(write_group(snapshot, state_ms)) == GroupRecord(snapshot, state_ms)


@given(st.binary(max_size=200), st.sampled_from([b"\0\0", b"\0\1", b"\0\2", b"\0\3", b""]))
def test_any_bytes_give_a_value_or_our_error(data, start):
    for read in (read_key, read_offset, read_group):
        try:
            read(start + data)
        except CorruptLog:
            pass
    subscribed_topics(start + data)
    assigned_partitions(start + data)


@given(st.data())
def test_damage_to_a_group_record_gives_a_value_or_our_error(data):
    record = bytearray(write_group(GROUP, 7))
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] = data.draw(st.integers(0, 255))
    try:
        read_group(bytes(record[: data.draw(st.integers(0, len(record)))]))
    except CorruptLog:
        pass


# What consumers tell each other


def test_a_subscription_names_its_topics_in_every_version():
    start = struct.pack(">i", 2) + text("a") + text("b")
    for version in range(4):
        assert subscribed_topics(struct.pack(">h", version) + start + b"user data, owned partitions") == {"a", "b"}
    assert subscribed_topics(b"") is None
    assert subscribed_topics(struct.pack(">hi", 0, 5)) is None


def test_an_assignment_names_its_partitions():
    data = struct.pack(">hi", 1, 2) + text("a") + struct.pack(">iii", 2, 0, 3) + text("b") + struct.pack(">ii", 1, 9)
    assert assigned_partitions(data + struct.pack(">i", -1)) == [("a", 0), ("a", 3), ("b", 9)]
    assert assigned_partitions(b"") == []
    assert assigned_partitions(b"\0\1garbage") is None
