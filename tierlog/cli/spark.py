"""`tierlog spark JOB`: runs the Spark jobs by name. Each has its own flags, which its `--help` shows.

A job is the module `spark.jobs.<name>` with `main(argv)`. It is loaded when it is called, because PySpark takes a
while.
"""

from collections.abc import Callable
from importlib import import_module

import typer

from hot_tier.errors import SettingsError
from spark import jobs
from tierlog.cli.help import Commands

JOBS = {
    "audit": "Check the whole bucket against manifests, indexes and checksums. Ends with 1 if anything is wrong.",
    "stats": "Show volume per topic, partition, hour and key. Also skew, and the wait for the archive.",
    "export": "Write a topic with typed columns, as Parquet or to Iceberg.",
    "replay": "Copy a range, filtered by SQL, into a topic or out to files.",
    "compact": "Merge small archived files. Keep the latest of each key where a topic is compacted.",
    "iceberg": "Register archived files in Iceberg tables, without a copy. Needs no Java.",
}


def register(app: typer.Typer) -> None:
    group = Commands(no_args_is_help=True, help="Run Spark jobs over the archive.")
    for name, what in JOBS.items():
        group.command(
            name,
            help=what,
            add_help_option=False,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_runner(name))
    app.add_typer(group, name="spark")


def _runner(name: str) -> Callable[[typer.Context], None]:
    def job(context: typer.Context) -> None:
        try:
            import pyspark  # noqa: F401
        except ModuleNotFoundError:
            raise SettingsError("PySpark is not installed", hint="pip install 'tierlog[spark]'") from None
        raise typer.Exit(import_module(f"{jobs.__name__}.{name}").main(context.args))

    return job
