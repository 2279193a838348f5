"""What commands print: results to standard output, everything else to standard error.

With `--json` standard output has one JSON document (or one per line, for streams), and errors are JSON on standard
error. If the output is not a terminal, tables are never cut to a width. Rich is loaded only when a table or a progress
bar is drawn.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hot_tier.errors import TierlogError

WIDE = 100_000
"""The width of an output that is not a terminal, so that nothing is wrapped."""


def print_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Columns whose name ends in `>` are aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDE, highlight=False).print(table)


def show_bytes(count: int) -> str:
    """Returns `4.2 MB`, or the exact number below a thousand."""
    size, unit = float(count), 0
    while size >= 1000 and unit < 5:
        size /= 1000
        unit += 1
    return f"{size:.1f} {' kMGTP'[unit]}B" if unit else f"{count} B"


def note(text: str) -> None:
    """Prints a text for people. Programs read standard output."""
    print(text, file=sys.stderr)


@contextmanager
def after(seconds: float, text: str) -> Iterator[None]:
    """Prints `text` for a waiting person if the `with` block takes longer than `seconds`."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(seconds, note, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def report(error: TierlogError, code: int, *, as_json: bool) -> None:
    if as_json:
        document = {"error": error.what, "where": error.where, "hint": error.hint, "exit_code": code}
        print(json.dumps(document, ensure_ascii=False), file=sys.stderr)
        return
    where = f"{error.where}: " if error.where else ""
    print(f"error: {where}{error.what}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {error.hint}", file=sys.stderr)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows a bar on standard error if that is a terminal. Yields a function; call it with the number just done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(done: int) -> None:
            bar.advance(task, done)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.0f}/s" if speed else "")

        yield advance
