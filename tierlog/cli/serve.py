"""`tierlog serve`: turns flags into settings, then runs the broker until SIGTERM or Ctrl-C.

The flags in the signature are those that people use by hand. Every other setting is a flag with its own key.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hot_tier.errors import SettingsError
from tierlog.cli.help import Command

if TYPE_CHECKING:
    from tierlog.settings import Given, Settings

    Serve = Callable[[Settings, Callable[[str, str], None]], int | None]


class ServeCommand(Command):
    """Shows every setting at the end of `--help`. They are loaded only then."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from tierlog.settings import all_settings

        with formatter.section("Every setting is a flag too (docs/SETTINGS.md)"):
            formatter.write_dl([(setting.flag, setting.doc) for setting in all_settings().values()])


def register(app: typer.Typer) -> None:
    app.command(
        "serve",
        cls=ServeCommand,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        help="Run a broker until SIGTERM or Ctrl-C. With no flags it is a complete single-node service.",
    )(serve)


def serve(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Option(envvar="TIERLOG_CONFIG", metavar="FILE", help="TOML file with settings.")
    ] = None,
    data_dir: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Where the logs are kept; with --workers also several. [default: data]"),
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address for Kafka clients. [default: 127.0.0.1:9092]")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address of the HTTP API. [default: 127.0.0.1:8080]")
    ] = None,
    bucket: Annotated[
        str | None, typer.Option(metavar="URL", help="file:///path or s3://bucket/prefix. [default: DIR/bucket]")
    ] = None,
    s3_endpoint: Annotated[str | None, typer.Option(metavar="URL", help="An S3-compatible store's address.")] = None,
    node_id: Annotated[
        str | None, typer.Option(metavar="N", help="This broker's number, or the first worker's. [default: 0, or 1]")
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N|auto", help="Run a broker on each core, as one service. [default: one]")
    ] = None,
    rack: Annotated[str | None, typer.Option(metavar="NAME", help="The rack or zone of this broker.")] = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="The machine's name. [default: its own, with --workers]")
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="sqlite|etcd://…", help="Where cluster metadata is kept. [default: sqlite]")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Make certificates and an admin user, and let nobody else in from then on.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting; may be repeated.")
    ] = None,
) -> None:
    from tierlog.loading import quickly

    with quickly():
        from tierlog.settings import Given, load_settings

        short = {
            "--data-dir": ("log.data_dir", ",".join(data_dir) if data_dir else None),
            "--bucket": ("store.bucket", bucket),
            "--s3-endpoint": ("store.s3_endpoint", s3_endpoint),
            "--node-id": ("cluster.node_id", node_id),
            "--workers": ("cluster.workers", workers),
            "--rack": ("cluster.rack", rack),
            "--host": ("cluster.host", host),
            "--metadata": ("cluster.metadata", metadata),
        }
        flags = [*_given(short, {"kafka": kafka, "http": http}), *_long_flags(context.args)]
        flags += [Given(key, value, f"--set {key}") for key, value in map(_assignment, set_ or ())]
        if data_dir and len(data_dir) > 1 and not workers:
            raise SettingsError("one broker has one data directory", where="--data-dir", hint="give --workers too")
        run = _load(partial(load_settings, config=config, environment=os.environ, flags=flags), secure=secure)
    raise typer.Exit(run())


def _load(load: "Callable[..., Settings]", *, secure: bool) -> Callable[[], int]:
    """Loads the settings, then the broker or what starts its workers. The result runs it, and returns its exit code."""
    from tierlog.exclusive import keep_files_private
    from tierlog.logging import configure_logging
    from tierlog.process import print_ready
    from tierlog.secured import Secured, close_alone, forget, is_secured, on_this_machine
    from tierlog.workers.plan import data_dirs_of

    keep_files_private()
    settings = load()
    configure_logging(settings.broker.log_level, settings.broker.log_format)
    several = bool(settings.cluster.workers)
    home = Path(data_dirs_of(settings)[0] if several else settings.log.data_dir)
    closed = Secured(home) if secure or is_secured(home) else None
    if closed is not None:
        settings = close_alone(closed, settings, load)
    noted: list[str] = []

    def ready(kafka: str, http: str) -> None:
        noted.append(on_this_machine(http))
        if closed is None:
            forget(noted)
        else:
            for line in closed.announce(on_this_machine(kafka), noted):
                print(line)
        print_ready(kafka, http)

    serve_all = _workers() if several else _one_broker(settings)

    def serve_until_told() -> int:
        try:
            return serve_all(settings, ready) or 0
        finally:
            forget(noted)

    return serve_until_told


def _one_broker(settings: "Settings") -> "Serve":
    from tierlog.kernel_cache import keep_kernels

    keep_kernels(settings.log.data_dir)
    # This import loads the kernels, and compiles them if necessary.
    from tierlog.broker import run

    return run


def _workers() -> "Serve":
    from tierlog.workers.supervisor import run_workers

    return run_workers


def _given(short: Mapping[str, tuple[str, str | None]], addresses: Mapping[str, str | None]) -> list["Given"]:
    """`short`: key and value of each short flag. `addresses`: by section."""
    from tierlog.settings import Given, split_address

    flags = [Given(key, value, flag) for flag, (key, value) in short.items() if value is not None]
    for section, address in addresses.items():
        if address is not None:
            flags += split_address(address, f"--{section}", section)
    return flags


def _long_flags(arguments: Sequence[str]) -> Iterator["Given"]:
    """Yields `--section.key VALUE` and `--section.key=VALUE`. Anything else is an error."""
    from tierlog.settings import Given

    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or "." not in name:
            raise SettingsError(
                f"unexpected {argument!r}", where="tierlog serve", hint="`tierlog serve --help` lists the flags"
            )
        if not equals:
            following = next(rest, None)
            if following is None:
                raise SettingsError(f"--{name} needs a value", where="tierlog serve")
            value = following
        yield Given(name, value, f"--{name}")


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--set cannot be {text!r}", where="--set", hint="it is SECTION.KEY=VALUE")
    return key, value
