"""Results for people: a table, a plot, and the blocks of figures in docs/PERFORMANCE.md and the README.

Also the command of benchmarks that compare brokers (`compared`), and lines of those with targets of their own.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.client.load import LoadFailed
from benchmarks.peer.jars import PeerUnavailable
from benchmarks.process import BrokerFailed
from benchmarks.results import Results, Row

DOCS = Path(__file__).resolve().parents[1] / "docs" / "PERFORMANCE.md"
RESULTS = Path(__file__).resolve().parent / "results"
BEGIN, END = "<!-- figures: written by python -m benchmarks --write-docs -->", "<!-- end of figures -->"
DOUBTFUL_SHARE = 0.05
BUSY_CORES = 0.95
STYLE = {"target met": "green", "no worse": "yellow", "falls short": "bold red"}


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def judged(results: Results) -> list[Row]:
    """Returns the rows to judge: not records per second, which say the same as MB/s, nor how busy the client was."""
    return [row for row in results.rows if row.unit not in ("records/s", "client cores")]


def values_shown(results: Results, row: Row) -> tuple[str, str]:
    ours, theirs = (shown(value) for value in row.medians)
    if row.unit != "MB/s":
        return ours, theirs
    per_second = results.row(row.group, row.job, "records/s").medians
    return f"{ours} ({per_second[0] / 1000:,.0f} k/s)", f"{theirs} ({per_second[1] / 1000:,.0f} k/s)"


def client_bound(results: Results) -> list[Row]:
    """Returns the jobs in which the client, on tierlog, kept a core busy: there the broker is not the limit."""
    return [row for row in results.rows if row.unit == "client cores" and row.medians[0] >= BUSY_CORES]


def print_table(results: Results, console: Console) -> None:
    table = Table(title="tierlog beside Apache Kafka: medians, ratio above 1 is better", title_justify="left")
    table.add_column("job", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for heading in ("tierlog", "Kafka", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    group = None
    for row in judged(results):
        if row.group != group:
            group = row.group
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        style = STYLE[row.verdict]
        ratio, verdict = f"[{style}]{row.ratio:.2f}×[/]", f"[{style}]{row.verdict}[/]"
        table.add_row(row.job, row.unit, *values_shown(results, row), ratio, verdict)
    console.print(table)
    for line in summary(results):
        console.print(line)


def summary(results: Results) -> list[str]:
    limits = results.limits
    ceiling = min(limits.page_cache_write_mb_per_s, limits.loopback_mb_per_s)
    produce, consume = results.best("produce"), results.best("consume")
    lines = [
        f"Limits here: write(2) to the page cache {shown(limits.page_cache_write_mb_per_s)} MB/s, synced "
        f"{shown(limits.synced_write_mb_per_s)} MB/s, 16 KB write + fdatasync {limits.small_sync_ms:.2f} ms, "
        f"loopback {shown(limits.loopback_mb_per_s)} MB/s.",
    ]
    if produce and consume:
        lines.append(
            f"tierlog's best produce reaches {produce / ceiling:.0%} of the lower of write(2) and loopback, its best "
            f"consume {consume / limits.loopback_mb_per_s:.0%} of loopback. The client works on the same cores."
        )
    if "tls" in results.versions:
        lines.append(f"Agreed on: {results.versions['tls']}.")
    bound = client_bound(results)
    if bound:
        lines.append(
            f"In {len(bound)} jobs the client kept a whole core busy and was the limit: "
            + "; ".join(f"{row.group}: {row.job}" for row in bound)
            + "."
        )
    short = [row for row in judged(results) if row.verdict == "falls short"]
    if short:
        lines.append(f"Falls short of Apache Kafka in {len(short)} of {len(judged(results))} figures:")
        lines += [f"  {row.group}: {row.job}, {row.unit}: {row.ratio:.2f}×" for row in short]
    else:
        lines.append("No figure falls short of Apache Kafka.")
    if results.others_cpu_share > DOUBTFUL_SHARE:
        lines.append(
            f"Doubtful: other processes used {results.others_cpu_share:.0%} of this machine's CPU during the run."
        )
    return lines


def write_plot(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = judged(results)
    figure, axes = pyplot.subplots(figsize=(10, 0.27 * len(rows) + 1.5))
    colours = {"target met": "#2a9d5c", "no worse": "#d9a520", "falls short": "#c0392b"}
    names = [f"{row.group}: {row.job} [{row.unit}]" for row in rows]
    axes.barh(names, [row.ratio for row in rows], color=[colours[row.verdict] for row in rows])
    for position, row in enumerate(rows):
        axes.text(row.ratio, position, f" {row.ratio:.2f}×", va="center", fontsize=7)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel("times better than Apache Kafka on the same machine (logarithmic)")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _markdown_row(results: Results, row: Row) -> str:
    ours, theirs = values_shown(results, row)
    mark = "**falls short**" if row.verdict == "falls short" else row.verdict
    return f"| {row.group}: {row.job} | {row.unit} | {ours} | {theirs} | {row.ratio:.2f}× | {mark} |"


def markdown_block(results: Results) -> str:
    machine, versions = results.machine, results.versions
    facts = (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {machine['file_system']}, Linux "
        f"{machine['kernel']}; tierlog {versions['tierlog']} on Python {versions['python']}, Apache Kafka "
        f"{versions['kafka']} on {versions['java']}, librdkafka {versions['librdkafka']}; "
        f"{'quick' if results.quick else 'full'} run of {results.minutes:.0f} minutes; other processes used "
        f"{results.others_cpu_share:.0%} of the CPU."
    )
    table = ["| job | unit | tierlog | Kafka | ratio | |", "|---|---|---:|---:|---:|---|"]
    table += [_markdown_row(results, row) for row in judged(results)]
    return "\n".join(
        [
            facts,
            "",
            *(f"{line}\n" for line in summary(results) if not line.startswith(("Falls", "  ", "No figure"))),
            *table,
        ]
    )


def write_docs(results: Results, page: Path, begin: str = BEGIN) -> None:
    replace_block(page, begin, markdown_block(results))


IN_SHORT = (
    ("produce", "MB/s", "produce, neither syncs before the ack"),
    ("produce, synced", "MB/s", "produce, both sync before the ack"),
    ("produce, tierlog synced and Kafka not", "MB/s", "produce, each by its own default: only tierlog syncs"),
    ("consume", "MB/s", "consume"),
    ("latency", "p99 ms", "latency from producer to consumer, p99"),
    ("produce", "broker CPU s/GB", "CPU of the broker per GB produced"),
    ("consume", "broker CPU s/GB", "CPU of the broker per GB consumed"),
    ("memory", "MB RSS", "memory of the broker"),
)
"""The README's lines: group, unit, and their name there."""


def readme_block(results: Results) -> str:
    """Returns the lowest and the highest ratio of each kind of job."""
    bound = client_bound(results)
    lines = [
        f"Beside Apache Kafka {results.versions['kafka']} on the same {results.machine['cores']} cores, same client, "
        f"same settings; lowest to highest of all jobs of a full run, above 1 tierlog is better:",
        "",
        "| | times as good as Kafka |",
        "|---|---|",
    ]
    for group, unit, name in IN_SHORT:
        ratios = sorted(row.ratio for row in results.rows if (row.group, row.unit) == (group, unit))
        if ratios:
            span = f"{ratios[0]:.2f}" if len(ratios) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            lines.append(f"| {name} | {span} |")
    if bound:
        jobs = len({(row.group, row.job) for row in results.rows if row.unit == "client cores"})
        lines += [
            "",
            f"In {len(bound)} of {jobs} jobs the client, on the same cores, was the limit and not the broker.",
        ]
    return "\n".join(lines)


def replace_block(page: Path, begin: str, text: str) -> None:
    """Puts `text` between the line `begin` and the next `END`."""
    before, found, rest = page.read_text().partition(begin)
    assert found, f"{page} has no line {begin}"
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{END}{after}")


# Commands


def figures_of(name: str) -> str:
    return f"<!-- figures: written by python -m benchmarks.{name} --write-docs -->"


def compared(name: str, about: str, quick: str, measure: Callable[[bool, Console], Results]) -> int:
    """The command of a benchmark that compares tierlog with Apache Kafka. `quick` says what a quick run leaves out."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--write-docs", action="store_true", help=f"put the figures into docs/{DOCS.name}")
    parser.add_argument("--from", dest="given", type=Path, help="show the results of an earlier run instead")
    choice = parser.parse_args()
    if choice.quick and choice.write_docs:
        parser.error("a quick run is too noisy for the docs: leave out --quick")
    console = console_of_width(120)
    try:
        results = Results.read(choice.given) if choice.given else measure(choice.quick, console)
    except (PeerUnavailable, LoadFailed, BrokerFailed, TimeoutError) as error:
        console.print(f"[bold red]The benchmark cannot go on:[/] {escape(str(error))}")
        return 1
    print_table(results, console)
    if choice.write_docs:
        write_docs(results, DOCS, figures_of(name))
        console.print(f"figures in {DOCS}")
    return 0


def console_of_width(width: int) -> Console:
    return Console() if sys.stdout.isatty() else Console(width=width)


@dataclass(frozen=True, slots=True)
class Line:
    """A figure with a target of its own."""

    what: str
    figure: str
    ratio: float
    target: str
    met: bool


def tell_lines(name: str, title: str, facts: str, lines: Sequence[Line], console: Console, page: Path | None) -> None:
    """Prints the lines, keeps them in benchmarks/results, and puts them into a page if there is one."""
    table = Table(title=title, title_justify="left")
    for heading in ("", "measured", "ratio", "target", ""):
        table.add_column(heading)
    for line in lines:
        verdict = "[green]met[/]" if line.met else "[yellow]falls short[/]"
        table.add_row(line.what, line.figure, f"{line.ratio:.2f}", line.target, verdict)
    console.print(table)
    console.print(facts)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(line) for line in lines], indent=1))
    if page is not None:
        replace_block(page, figures_of(name), "\n".join([facts, "", *_line_rows(lines)]))
        console.print(f"figures in {page}")


def _line_rows(lines: Sequence[Line]) -> Iterator[str]:
    yield from ("| | measured | ratio | target | |", "|---|---|---|---|---|")
    for line in lines:
        verdict = "target met" if line.met else "falls short"
        yield f"| {line.what} | {line.figure} | {line.ratio:.2f} | {line.target} | {verdict} |"
