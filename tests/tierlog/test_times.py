"""Times as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.cli.times import NotATime, parse_time, show_time

NOW = 1_772_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("-1h", NOW - 3_600_000),
        ("-90m", NOW - 5_400_000),
        ("-2d", NOW - 172_800_000),
        ("-1w", NOW - 604_800_000),
        ("-250ms", NOW - 250),
        ("1772000000123", 1_772_000_000_123),
        ("2026-03-01", 1_772_323_200_000),
        ("2026-03-01T08:30:00", 1_772_353_800_000),
        ("2026-03-01T08:30:00Z", 1_772_353_800_000),
        ("2026-03-01T09:30:00+01:00", 1_772_353_800_000),
        ("2026-03-01 08:30:00.250", 1_772_353_800_250),
    ],
)
def test_a_time(text: str, expected: int) -> None:
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-h", "-1y", "1h", "2026-13-01", "-1.5h", "²"])
def test_what_is_no_time_says_what_is(text: str) -> None:
    with pytest.raises(NotATime, match="write -1h"):
        parse_time(text, NOW)


@given(st.integers(0, 4_000_000_000_000))
def test_what_is_shown_is_read_back(ms: int) -> None:
    assert parse_time(show_time(ms), NOW) == ms
