"""The bytes of `__transaction_state`: golden records of both versions, round trips, and whatever else may be there."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.coordinators.transactions.decoding import decode_transactions
from gateway.coordinators.transactions.keys import read_key, write_key
from gateway.coordinators.transactions.states import State
from gateway.coordinators.transactions.transaction import NONE, Transaction
from gateway.coordinators.transactions.values import read_transaction, write_transaction
from hot_tier.errors import CorruptLog
from hot_tier.ids import PartitionId, TopicPartition

ID = bytes.fromhex("00000000000003e8")  # 1000
EPOCH = bytes.fromhex("0007")
TIMEOUT = bytes.fromhex("0000ea60")  # 60000
UPDATED = bytes.fromhex("0000018bcfe56800")  # 1700000000000
STARTED = bytes.fromhex("0000018bcfe567ff")
UPDATED_MS = 1_700_000_000_000


def tps(topic: str, *partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, PartitionId(each)) for each in partitions}


EMPTY = Transaction(1000, 7, 60_000, State.EMPTY, UPDATED_MS)
ONGOING = Transaction(
    1000,
    7,
    60_000,
    State.ONGOING,
    UPDATED_MS,
    frozenset(tps("orders", 0, 258) | tps("t", 1)),
    UPDATED_MS - 1,
    previous_id=999,
    next_id=1001,
    tv2=True,
)

GOLDEN = {
    "empty": (EMPTY, b"\0\1" + ID + EPOCH + TIMEOUT + b"\0" + b"\0" + UPDATED + b"\xff" * 8 + b"\0"),
    "ongoing, with all that a version 1 can have": (
        ONGOING,
        b"\0\1" + ID + EPOCH + TIMEOUT + b"\1"
        # two topics: "orders" with two partitions, "t" with one
        + b"\3" + b"\7orders" + b"\3" + b"\0\0\0\0" + b"\0\0\1\2" + b"\0"
        + b"\2t" + b"\2" + b"\0\0\0\1" + b"\0"
        + UPDATED + STARTED
        # three tagged fields: the previous id, the next id, the version of transactions
        + b"\3" + b"\0\10" + bytes.fromhex("00000000000003e7")
        + b"\1\10" + bytes.fromhex("00000000000003e9")
        + b"\2\2" + b"\0\2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values_of_version_1(name):
    value, data = GOLDEN[name]
    assert write_transaction(value) == data
    assert read_transaction(data) == value


def test_golden_values_of_version_0():
    """As Kafka wrote them before TV2, and still does while the feature is off."""
    head = b"\0\0" + ID + EPOCH + TIMEOUT
    empty = head + b"\0" + b"\xff\xff\xff\xff" + UPDATED + b"\xff" * 8
    assert read_transaction(empty) == EMPTY
    prepared = head + b"\3" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\5" + UPDATED + STARTED
    expected = Transaction(1000, 7, 60_000, State.PREPARE_ABORT, UPDATED_MS, frozenset(tps("t", 0, 5)), UPDATED_MS - 1)
    assert read_transaction(prepared) == expected


def test_fields_that_a_later_version_adds_are_left_out():
    known = GOLDEN["empty"][1]
    assert read_transaction(known[:-1] + b"\1" + b"\x09\3abc") == EMPTY


def test_golden_keys():
    assert write_key("accounts") == b"\0\0\0\10accounts"
    assert read_key(b"\0\0\0\10accounts") == "accounts"
    assert read_key(b"\0\1anything") is None, "another kind of key is not ours to read"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\2" + GOLDEN["empty"][1][2:],
        b"\xff\xff" + GOLDEN["empty"][1][2:],
        GOLDEN["empty"][1][:-1],
        b"\0\1" + ID + EPOCH + TIMEOUT + b"\6" + b"\0" + UPDATED + b"\xff" * 8 + b"\0",  # Dead is never stored
        b"\0\1" + ID + EPOCH + TIMEOUT + b"\7" + b"\0" + UPDATED + b"\xff" * 8 + b"\0",
        b"\0\1" + b"\xff" * 8 + EPOCH + TIMEOUT + b"\0" + b"\0" + UPDATED + b"\xff" * 8 + b"\0",
        b"\0\1" + ID + b"\xff\xfe" + TIMEOUT + b"\0" + b"\0" + UPDATED + b"\xff" * 8 + b"\0",
        b"\0\1" + ID + EPOCH + TIMEOUT + b"\1" + b"\xff\xff\xff\xff\x0f",  # four billion topics
        b"\0\1" + ID + EPOCH + TIMEOUT + b"\1" + b"\2" + b"\3\xff\xff" + b"\1\0" + UPDATED + STARTED + b"\0",
        GOLDEN["empty"][1][:-1] + b"\1\0\2\0\0",  # a producer id of two bytes
    ],
)
def test_damaged_values(data):
    with pytest.raises(CorruptLog):
        read_transaction(data)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.builds(
    Transaction,
    st.integers(0, 2**63 - 1),
    st.integers(0, 32_767),
    st.integers(0, 2**31 - 1),
    st.sampled_from([state for state in State if state not in (State.DEAD, State.PREPARE_EPOCH_FENCE)]),
    st.integers(0, 2**62),
    st.frozensets(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=300),
    st.integers(-1, 2**62),
    previous_id=st.integers(NONE, 2**62),
    next_id=st.integers(NONE, 2**62),
    tv2=st.booleans(),
)


@given(values)
def test_what_is_written_is_read(value):
    assert read_transaction(write_transaction(value)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_damage(data):
    for prefix in (b"", b"\0\0", b"\0\1", b"\0\1" + ID + EPOCH + TIMEOUT + b"\1"):
        try:
            read_transaction(prefix + data)
        except CorruptLog:
            pass


@given(values, st.data())
def test_a_value_cut_short_is_damage(value, data):
    written = write_transaction(value)
    with pytest.raises(CorruptLog):
        read_transaction(written[: data.draw(st.integers(0, len(written) - 1))])


def test_damage_is_kept_to_its_key():
    loaded = decode_transactions(
        {write_key("good"): GOLDEN["empty"][1], write_key("bad"): b"\0\1", b"\0": b"", b"\0\5": b""}
    )
    assert loaded.transactions == {"good": EMPTY}
    assert loaded.damaged.keys() == {"bad"}
