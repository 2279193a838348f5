"""The commit decision, against its definition spelled out slowly."""

from hypothesis import given
from hypothesis import strategies as st

from hot_tier.ids import NodeId, Offset
from hot_tier.replication.watermark import high_watermark, last_stable_offset

nodes = st.integers(0, 5).map(NodeId)
offsets = st.integers(0, 50).map(Offset)
ends = st.dictionaries(nodes, offsets)


@given(offsets, ends, st.sets(nodes))
def test_committed_is_what_every_in_sync_replica_holds(
    current: Offset, ends: dict[NodeId, Offset], in_sync: set[NodeId]
) -> None:
    """Offset o is committed if it was, or if all members are known to hold it."""
    moved = high_watermark(current, ends, in_sync)
    committed = [
        offset
        for offset in range(60)
        if offset < current or (in_sync and all(node in ends and offset < ends[node] for node in in_sync))
    ]
    assert committed == list(range(moved))


@given(offsets, st.lists(st.tuples(nodes, offsets)), st.sets(nodes, min_size=1))
def test_it_never_goes_back(start: Offset, reports: list[tuple[NodeId, Offset]], in_sync: set[NodeId]) -> None:
    current = start
    ends: dict[NodeId, Offset] = {}
    for node, end in reports:
        ends[node] = end
        moved = high_watermark(current, ends, in_sync)
        assert moved >= current
        assert moved == current or moved <= min(ends[member] for member in in_sync)
        current = moved


@given(offsets, ends, st.sets(nodes, min_size=1), nodes)
def test_a_larger_set_commits_no_more(
    current: Offset, ends: dict[NodeId, Offset], in_sync: set[NodeId], joining: NodeId
) -> None:
    assert high_watermark(current, ends, in_sync | {joining}) <= high_watermark(current, ends, in_sync)


def test_examples() -> None:
    a, b, c = NodeId(1), NodeId(2), NodeId(3)
    known = {a: Offset(10), b: Offset(7), c: Offset(3)}
    assert high_watermark(Offset(0), known, [a]) == 10
    assert high_watermark(Offset(0), known, [a, b]) == 7
    assert high_watermark(Offset(5), known, [a, b, c]) == 5
    assert high_watermark(Offset(5), {a: Offset(10)}, [a, b]) == 5, "b has not reported in this epoch"
    assert high_watermark(Offset(5), known, []) == 5


def test_the_last_stable_offset_is_below_the_high_watermark_and_not_below_the_log_start() -> None:
    assert last_stable_offset(Offset(10), 4, Offset(0)) == 4
    assert last_stable_offset(Offset(10), 12, Offset(0)) == 10
    assert last_stable_offset(Offset(10), 4, Offset(7)) == 7
