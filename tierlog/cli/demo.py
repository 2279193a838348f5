"""`tierlog demo`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tierlog.cli import output
from tierlog.cli.options import Json


def register(app: typer.Typer) -> None:
    app.command("demo", help="Start a broker, send orders, replay, kill -9 it, and read the archive with Spark.")(demo)


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use this directory and leave everything there.")
    ] = None,
    json: Json = False,
) -> None:
    from tierlog.demo.report import Report
    from tierlog.demo.story import tell

    report = Report(quiet=json)
    with tempfile.TemporaryDirectory(prefix="tierlog-demo-") as scratch:
        directory = keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        tell(directory, report)
    if json:
        output.print_json(report.document())
    else:
        report.closing(
            [
                "Try it yourself:",
                "tierlog serve                              a service on 127.0.0.1:9092 (Kafka) and :8080 (HTTP)",
                "tierlog topic create orders --partitions 4",
                "echo hello | tierlog produce orders",
                "tierlog consume orders --from -1h --json",
            ]
        )
    raise typer.Exit(1 if report.failed else 0)
