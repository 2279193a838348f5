"""`tierlog demo`."""

import shlex
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hot_tier.errors import SettingsError
from tierlog.cli import output
from tierlog.cli.options import Json

CONSOLE = "http://127.0.0.1:8080/console      the console, in a browser"
NODE = (
    "Try it yourself:",
    "tierlog serve                              a service on 127.0.0.1:9092 (Kafka) and :8080 (HTTP)",
    "tierlog topic create orders --partitions 4",
    "echo hello | tierlog produce orders",
    "tierlog consume orders --from -1h --json",
    CONSOLE,
)
CLUSTER = (
    "Try it yourself:",
    "tierlog cluster up --brokers 3             etcd and three brokers, until Ctrl-C",
    "tierlog topic create orders --partitions 6 --config min.insync.replicas=2",
    "tierlog cluster status",
    CONSOLE,
)


def _served(kept: Path) -> tuple[str, str]:
    data = shlex.quote(str(kept.absolute() / "data"))
    return f"tierlog serve --data-dir {data}", "http://127.0.0.1:8080/console#/topics/orders/tiers"


def register(app: typer.Typer) -> None:
    app.command("demo", help="Send orders, replay, kill -9, recover, read with Spark.")(demo)


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use this directory and leave everything there.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Three brokers and etcd instead; a leader is killed under load.")
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="With --cluster: TLS, logins, permissions and an audit.")
    ] = False,
    json: Json = False,
) -> None:
    if secure and not cluster:
        raise SettingsError("--secure is for the demo of a cluster", where="--secure", hint="add --cluster")
    from tierlog.demo import failover, story
    from tierlog.demo.report import Report
    from tierlog.exclusive import keep_files_private

    keep_files_private()
    tell = partial(failover.tell, secure=secure) if cluster else story.tell
    report = Report(quiet=json)
    with tempfile.TemporaryDirectory(prefix="tierlog-demo-") as scratch:
        directory = (keep or Path(scratch)).absolute()
        directory.mkdir(parents=True, exist_ok=True)
        tell(directory, report)
    if json:
        output.print_json(report.document())
    else:
        kept = () if keep is None or cluster else ("What the demo left, as the console shows it:", *_served(keep))
        report.closing((*kept, *(CLUSTER if cluster else NODE)))
    raise typer.Exit(1 if report.failed else 0)
