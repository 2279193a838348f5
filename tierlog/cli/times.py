"""Times as people write them: `-90m`, `now`, `2026-03-01`, `2026-03-01T08:30:00+01:00`, milliseconds."""

import re
from datetime import UTC, datetime, timedelta

from hot_tier.errors import TierlogError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_RELATIVE = re.compile(r"-(\d+)(ms|s|m|h|d|w)")


class NotATime(TierlogError):
    pass


def parse_time(text: str, now_ms: int) -> int:
    """Returns milliseconds since the epoch. A time without a zone is UTC."""
    if text == "now":
        return now_ms
    if relative := _RELATIVE.fullmatch(text):
        return now_ms - int(relative[1]) * _UNIT_MS[relative[2]]
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise NotATime(
            f"{text!r} is not a time",
            hint="write -1h (also ms, s, m, d, w), now, 2026-03-01, 2026-03-01T08:30:00Z or milliseconds since 1970",
        ) from None
    # Without a float, in which 1.001 s would be 1000.999… ms.
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def parse_range(begin: str | None, end: str | None, now_ms: int) -> tuple[int | None, int | None]:
    """Returns the times that `--from` and `--to` give."""
    from_ms = None if begin is None else parse_time(begin, now_ms)
    to_ms = None if end is None else parse_time(end, now_ms)
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise NotATime(f"--to is before --from: {end} before {begin}", hint="swap them")
    return from_ms, to_ms


def parse_duration(text: str) -> int:
    """Returns the milliseconds of `30d`, `90m`, `12h`."""
    if found := _RELATIVE.fullmatch(f"-{text}"):
        return int(found[1]) * _UNIT_MS[found[2]]
    raise NotATime(f"{text!r} is not a length of time", hint="write 30d (also ms, s, m, h, w)")


def show_time(ms: int) -> str:
    """Returns the time in UTC with milliseconds. `parse_time` can read it."""
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
