"""Draws the pictures of the reports as PNG. Matplotlib comes with the `spark` extra and is loaded on first use."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hot_tier.errors import SettingsError

if TYPE_CHECKING:
    from spark.jobs.audit import AuditReport
    from spark.jobs.stats import StatsReport

_GOOD: Final = "#3a7d44"
_HOLES: Final = "#e0a030"
_BAD: Final = "#c0392b"
_PLAIN: Final = "#31688e"
_MOST_ROWS: Final = 60
_MOST_LINES: Final = 12
_YEAR_3000_MS: Final = 32_503_680_000_000
"""Matplotlib's dates end with the year 9999, margins included, and one wrong time would squeeze all others."""


def plot_audit(report: "AuditReport", path: str) -> None:
    """Draws a line per partition and a bar per segment along its offsets: checked, with offsets left out, or wrong."""
    shown = report.partitions[:_MOST_ROWS]
    places = {(each.topic, each.topic_id, each.partition): number for number, each in enumerate(shown)}
    figure, axes = _figure(1, 1, height=1.5 + 0.35 * max(1, len(shown)))
    axis = axes[0]
    for each in report.checked:
        line = places.get((each.layout.topic, str(each.layout.topic_id), each.layout.partition))
        if line is None:
            continue
        wrong = any(finding.is_problem for finding in each.findings)
        color = _BAD if wrong else _HOLES if each.holes else _GOOD
        base, end = each.segment.base_offset, each.segment.end_offset
        axis.broken_barh([(base, end - base)], (line - 0.4, 0.8), facecolors=color, edgecolors="white", linewidth=0.5)
    axis.set_yticks(range(len(shown)), [f"{each.topic}-{each.partition}" for each in shown])
    axis.invert_yaxis()
    axis.set_xlabel("offset")
    left = len(report.partitions) - len(shown)
    more = f"; {left} more partitions are not shown" if left else ""
    axis.set_title(
        f"{len(report.checked):,} segments, {len(report.problems):,} problems{more}\n"
        "green: as written, amber: offsets without a row, red: wrong",
        fontsize=9,
        loc="left",
    )
    _save(figure, path)


def plot_stats(report: "StatsReport", path: str) -> None:
    """Draws four pictures: rows per hour, rows per partition, the most frequent keys, and the wait for the archive."""
    figure, (hours, partitions, keys, waits) = _figure(2, 2, height=8)
    for topic in report.topics[:_MOST_LINES]:
        dated = [each for each in topic.hours if each.hour_ms < _YEAR_3000_MS]
        times = [datetime.fromtimestamp(each.hour_ms / 1000, UTC) for each in dated]
        hours.plot(times, [each.rows for each in dated], marker=".", label=topic.topic)
    cut = any(each.hour_ms >= _YEAR_3000_MS for topic in report.topics for each in topic.hours)
    hours.set_title(f"rows per hour{', before the year 3000' if cut else ''}")
    if report.topics:
        hours.legend(fontsize=8)
    hours.tick_params(axis="x", labelrotation=30)
    held = [(f"{topic.topic}-{each.partition}", each.rows) for topic in report.topics for each in topic.partitions]
    _bars(partitions, held[:_MOST_ROWS], "rows per partition")
    frequent = [(f"{topic.topic}: {each.key[:24]}", each.rows) for topic in report.topics for each in topic.top_keys]
    _bars(keys, sorted(frequent, key=lambda pair: -pair[1])[:15], "rows of the most frequent keys")
    for number, share in enumerate(("p50", "p90", "p99", "max")):
        waited = [
            (place + number * 0.2, getattr(topic.latency, f"{share}_ms") / 1000)
            for place, topic in enumerate(report.topics)
            if topic.latency is not None
        ]
        waits.bar([place for place, _ in waited], [wait for _, wait in waited], width=0.2, label=share)
    waits.set_xticks(range(len(report.topics)), [topic.topic for topic in report.topics], fontsize=8)
    waits.set_title("seconds from timestamp to archive")
    waits.set_yscale("symlog")
    waits.legend(fontsize=8)
    _save(figure, path)


def _bars(axis: Any, named: Sequence[tuple[str, int]], title: str) -> None:
    axis.barh(range(len(named)), [value for _, value in named], color=_PLAIN)
    axis.set_yticks(range(len(named)), [name for name, _ in named], fontsize=7)
    axis.invert_yaxis()
    axis.set_title(title)


def _figure(rows: int, columns: int, height: float) -> tuple[Any, Sequence[Any]]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise SettingsError("Matplotlib is not installed", hint="pip install 'tierlog[spark]'") from None
    figure = Figure(figsize=(11, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _save(figure: Any, path: str) -> None:
    try:
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise SettingsError(f"the plot cannot be written: {error.strerror}", where=path) from error
