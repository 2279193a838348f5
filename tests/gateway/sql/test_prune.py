"""Pruning never drops a part that holds a row of the answer, and drops what the filter plainly excludes."""

import operator

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sql.prune import BLOCK, TIME, Known, always_true, columns_of, key_asked_for, survivors, table_schema

SCHEMA = table_schema(raw=False)
RAW = table_schema(raw=True)
NUMBERS = st.integers(0, 30)
OPERATORS = st.sampled_from([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])


def stamp(ms: int) -> pa.Scalar:
    return pa.scalar(ms * 1000, TIME)


@st.composite
def comparisons(draw):
    column = draw(st.sampled_from(["partition", "offset", "timestamp", "key"]))
    compare = draw(OPERATORS)
    if column == "key":
        return compare(pc.field("key"), draw(st.sampled_from(["a", "b", 'q"x', "offset"])))
    number = draw(NUMBERS)
    value = {"partition": pa.scalar(number % 3, pa.int32()), "offset": pa.scalar(number), "timestamp": stamp(number)}
    if draw(st.booleans()) and column != "timestamp":
        return pc.field(column).isin(pa.array([number, number + 1]).cast(SCHEMA.field(column).type))
    return compare(pc.field(column), value[column])


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.builds(operator.and_, inner, inner), st.builds(operator.or_, inner, inner), st.builds(operator.invert, inner)
    ),
    max_leaves=5,
)
KEYS = st.sampled_from(["a", "b", 'q"x', None])


@st.composite
def parts(draw):
    """A part, and rows that agree with it."""
    partition, base, count = draw(st.integers(0, 2)), draw(NUMBERS), draw(st.integers(1, 6))
    stamps = draw(st.lists(NUMBERS, min_size=count, max_size=count))
    times = (min(stamps), max(stamps)) if draw(st.booleans()) else (None, None)
    rows = {
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(range(base, base + count)),
        "timestamp": pa.array([each * 1000 for each in stamps]).cast(TIME),
        "key": pa.array(draw(st.lists(KEYS, min_size=count, max_size=count)), pa.string()),
    }
    return Known(partition, base, base + count, *times), pa.table(rows)


@given(st.lists(parts(), min_size=1, max_size=5), CONDITIONS)
def test_no_row_of_the_answer_is_dropped(given_parts, condition):
    alive = survivors([known for known, _ in given_parts], condition, SCHEMA)
    for number, (known, rows) in enumerate(given_parts):
        matching = rows.filter(condition).num_rows
        assert number in alive or matching == 0
        if number in alive and always_true(known, condition, SCHEMA):
            assert matching == rows.num_rows


@given(parts(), CONDITIONS)
def test_a_key_that_is_asked_for_is_the_only_one(part, condition):
    key = key_asked_for(condition, SCHEMA)
    if key is not None:
        found = part[1].filter(condition).column("key").to_pylist()
        assert set(found) <= {key.decode()}


@settings(deadline=None, max_examples=50)
@given(st.lists(parts(), min_size=1, max_size=4), CONDITIONS)
def test_many_parts_are_judged_as_few(given_parts, condition):
    few = [known for known, _ in given_parts]
    alive = set(survivors(few, condition, SCHEMA))
    times = 2 * BLOCK // len(few) + 1
    many = survivors(few * times, condition, SCHEMA)
    assert many == [number for number in range(len(few) * times) if number % len(few) in alive]


def test_what_is_plainly_excluded_is_dropped():
    three = [Known(0, 0, 10, 0, 9), Known(0, 10, 20, 10, 19), Known(1, 0, 10, 5, 30)]
    offset, time = pc.field("offset"), pc.field("timestamp")
    for condition, alive in (
        (None, [0, 1, 2]),
        (offset == 12, [1]),
        ((offset >= 5) & (offset < 10), [0, 2]),
        (time >= stamp(20), [2]),
        (time < stamp(5), [0]),
        (pc.field("partition") == pa.scalar(1, pa.int32()), [2]),
        ((offset == 12) | (time == stamp(30)), [1, 2]),
        (pc.field("key") == "x", [0, 1, 2]),
    ):
        assert survivors(three, condition, SCHEMA) == alive, condition


def test_the_key_is_recognized():
    key = pc.field("key")
    for condition, found in (
        (key == "ada", b"ada"),
        ((key == "ada") & (pc.field("offset") > 3), b"ada"),
        (key == 'a"b\\c) and (key == "x', b'a"b\\c) and (key == "x'),
        (key == "ä ", "ä ".encode()),
        (key.isin(["ada"]), b"ada"),
        ((key == "ada") | (pc.field("offset") > 3), None),
        (key != "ada", None),
        (key.isin(["ada", "bob"]), None),
        (pc.field("value") == "ada", None),
    ):
        assert key_asked_for(condition, SCHEMA) == found, condition
    assert key_asked_for(key == b"\x00\xff", RAW) == b"\x00\xff"
    assert key_asked_for(None, SCHEMA) is None


def test_columns_of_a_condition():
    assert columns_of((pc.field("offset") > 3) & (pc.field("key") == "value"), SCHEMA) == {"offset", "key", "value"}
