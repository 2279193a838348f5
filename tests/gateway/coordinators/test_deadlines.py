"""Deadlines against the plainest thing that does the same: a dict that is searched."""

import hypothesis.strategies as st
from hypothesis import example, given

from gateway.coordinators.deadlines import Deadlines

steps = st.lists(
    st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50))
    | st.tuples(st.just("clear"), st.integers(0, 5), st.just(0))
    | st.tuples(st.just("wait"), st.integers(0, 20), st.just(0)),
    max_size=60,
)


@given(steps)
@example([("set", 0, 0), ("set", 0, 1), ("set", 1, 0), ("wait", 1, 0)])
def test_as_a_dict_that_is_searched(steps):
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, int] = {}
    now = 0
    for what, which, after in steps:
        if what == "set":
            deadlines.set(which, now + after)
            plain[which] = now + after
        elif what == "clear":
            deadlines.clear(which)
            plain.pop(which, None)
        else:
            now += which
            due = deadlines.take_due(now)
            expected = {key for key, deadline in plain.items() if deadline <= now}
            assert set(due) == expected and len(due) == len(expected)
            assert [plain[key] for key in due] == sorted(plain[key] for key in due)
            for key in due:
                del plain[key]
        assert len(deadlines) == len(plain)
        next_ms = deadlines.next_ms()
        assert not plain or (next_ms is not None and next_ms <= min(plain.values()))


def test_putting_off_does_not_touch_the_heap():
    deadlines: Deadlines[str] = Deadlines()
    for now in range(100_000):
        deadlines.set("member", now + 10)
    assert len(deadlines._heap) == 1
    assert deadlines.take_due(50_000) == []
    assert deadlines.next_ms() == 99_999 + 10


def test_the_heap_does_not_grow_with_what_is_gone():
    deadlines: Deadlines[int] = Deadlines()
    for key in range(100_000):
        deadlines.set(key, 300_000)
        deadlines.clear(key)
    assert len(deadlines._heap) < 2_000
    assert len(deadlines._queued) < 2_000
