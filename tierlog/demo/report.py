"""What the user sees of the demo: acts, figures, and checks that hold or do not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Check:
    claim: str
    holds: bool
    detail: str


class Report:
    def __init__(self, *, quiet: bool) -> None:
        self.checks: list[Check] = []
        self.figures: dict[str, Any] = {}
        self._console = Console(highlight=False, quiet=quiet, soft_wrap=True)
        self._acts = 0

    def opening(self, title: str, text: str) -> None:
        self._console.print()
        self._console.print(Text(title, "bold cyan"))
        self._console.print(text)

    def act(self, title: str, why: str) -> None:
        self._acts += 1
        self._console.print()
        self._console.print(Text.assemble((f" {self._acts} ", "reverse cyan"), " ", (title, "bold")))
        self._console.print(Text(why, "dim"))

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False)

    def show(self, text: str) -> None:
        """Shows what was sent or came back, cut to one line."""
        most = max(self._console.width, 80) - 6
        self._console.print(Text(f"    {text if len(text) <= most else text[: most - 1] + '…'}", "dim"))

    def figure(self, name: str, value: float) -> None:
        """Adds a figure for `--json`. What people should see goes through `say`."""
        self.figures[name] = round(value, 3)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False))

    def check(self, claim: str, holds: bool, detail: str = "") -> None:
        self.checks.append(Check(claim, holds, detail))
        mark = ("✓ ", "bold green") if holds else ("✗ ", "bold red")
        self._console.print(Text.assemble("  ", mark, claim, (f"  {detail}" if detail else "", "dim")))

    @property
    def failed(self) -> int:
        return sum(not check.holds for check in self.checks)

    def closing(self, lines: Sequence[str]) -> None:
        held = len(self.checks) - self.failed
        style = "bold red" if self.failed else "bold green"
        self._console.print()
        self._console.print(Text(f"{held} of {len(self.checks)} checks hold", style))
        for line in lines:
            self._console.print(f"  {line}", markup=False)
        self._console.print()

    def document(self) -> dict[str, Any]:
        return {
            "ok": not self.failed,
            "checks": [{"claim": each.claim, "ok": each.holds, "detail": each.detail} for each in self.checks],
            "figures": self.figures,
        }
