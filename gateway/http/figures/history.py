"""Figures over time in bounded memory: the last hour in steps of ten seconds, the last day in steps of five minutes.

A value stands for the time since the one before, as a rate does: on a busy machine, or with many partitions, these
are further apart than a step. After more than a minute (the process stood still) that time is a gap. Either way a
point's time follows from its place alone.
"""

from array import array
from typing import Final, NamedTuple

UNKNOWN: Final = -1
"""Stands for a gap, and for a value that was not known."""


class Resolution(NamedTuple):
    step_ms: int
    points: int


FINE: Final = Resolution(10_000, 360)
COARSE: Final = Resolution(300_000, 288)
STANDS_FOR_MS: Final = 60_000


class Series(NamedTuple):
    end_ms: int
    """The time of the last point."""
    step_ms: int
    values: list[int]


class Ring:
    """Values of one resolution. Grows up to its size, so a short history takes little memory."""

    __slots__ = ("_at", "_last", "_resolution", "_values")

    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution
        self._values = array("q")
        self._at = 0
        """Where the next value goes, once the ring is full."""
        self._last: int | None = None
        """The step of the newest value, counted since 1970."""

    def add(self, now_ms: int, value: int) -> None:
        """The last value of a step counts. A clock that went back changes the newest value."""
        step = now_ms // self._resolution.step_ms
        if self._last is not None and step <= self._last:
            self._values[(self._at - 1) % len(self._values)] = value
            return
        missed = 0 if self._last is None else min(step - self._last - 1, self._resolution.points)
        between = UNKNOWN if (missed + 1) * self._resolution.step_ms > STANDS_FOR_MS else value
        for _ in range(missed):
            self._append(between)
        self._append(value)
        self._last = step

    def series(self) -> Series:
        step_ms = self._resolution.step_ms
        end_ms = 0 if self._last is None else self._last * step_ms
        return Series(end_ms, step_ms, [*self._values[self._at :], *self._values[: self._at]])

    def _append(self, value: int) -> None:
        if len(self._values) < self._resolution.points:
            self._values.append(value)
            return
        self._values[self._at] = value
        self._at = (self._at + 1) % self._resolution.points


class History:
    __slots__ = ("_coarse", "_fine")

    def __init__(self) -> None:
        self._fine = Ring(FINE)
        self._coarse = Ring(COARSE)

    def add(self, now_ms: int, value: int | None) -> None:
        known = UNKNOWN if value is None else value
        self._fine.add(now_ms, known)
        self._coarse.add(now_ms, known)

    def last_hour(self) -> Series:
        return self._fine.series()

    def last_day(self) -> Series:
        return self._coarse.series()
