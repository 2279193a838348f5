"""The root command, and the exit code for each way of ending.

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed; the message says why |
| 2 | wrong usage: a flag, a value, a setting, a request that the node calls malformed |
| 3 | what was named does not exist |
| 4 | refused because of what exists: it exists already, it has members, the offset is out of range |
| 5 | no node, bucket or etcd answers, or it cannot serve now: try again |
| 130 | interrupted |
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from cold_tier.errors import NoSuchBucket, StoreMisconfigured, StoreUnavailable
from hot_tier.errors import (
    MetadataUnavailable,
    PolicyViolation,
    SettingsError,
    TierlogError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from tierlog.cli import (
    acls,
    api_keys,
    archive,
    cluster,
    consume,
    cost,
    demo,
    groups,
    keys,
    output,
    plan,
    produce,
    replay,
    serve,
    spark,
    sql,
    tls,
    topics,
    transactions,
    users,
)
from tierlog.cli.help import HELP_FLAGS, Commands
from tierlog.cli.pin import NoSuchPin
from tierlog.cli.records import BadInput
from tierlog.cli.times import NotATime
from tierlog.client import BadServer, Refused, ServerUnreachable

app = Commands(
    name="tierlog",
    no_args_is_help=True,
    context_settings={"help_option_names": HELP_FLAGS},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A log service that Kafka clients, HTTP callers and Spark share.",
)
serve.register(app)
topics.register(app)
produce.register(app)
consume.register(app)
sql.register(app)
groups.register(app)
transactions.register(app)
users.register(app)
api_keys.register(app)
tls.register(app)
acls.register(app)
replay.register(app)
archive.register(app)
keys.register(app)
spark.register(app)
cost.register(app)
plan.register(app)
cluster.register(app)
demo.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tierlog {version('tierlog')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


HINTS = {
    "unknown-topic": "`tierlog topic list` shows the topics, `tierlog topic create NAME` makes one",
    "unknown-partition": "`tierlog topic describe NAME` shows the partitions",
    "unknown-group": "`tierlog group list` shows the groups",
    "unknown-transactional-id": "`tierlog txn list` shows the transactional ids",
    "no-open-transaction": "`tierlog txn list --open` shows what is open",
    "unknown-broker": "`tierlog cluster status` shows the brokers",
    "topic-exists": "`tierlog topic describe NAME` shows it, `tierlog topic alter NAME` changes it",
    "message-too-large": "send less, or `tierlog topic alter NAME --config max.message.bytes=BYTES`",
    "offset-out-of-range": "`tierlog topic describe NAME` shows the offsets there are",
    "bad-setting": "`tierlog topic describe NAME --json` shows what settings there are",
    "login-needed": "name a user: `user` and `password` in a profile, or TIERLOG_USER and TIERLOG_PASSWORD",
    "group-not-empty": "stop its consumers first; `tierlog group describe NAME` shows them",
}
"""What to do next, for errors whose own hint is for callers of the HTTP API."""


def run(arguments: Sequence[str]) -> int:
    try:
        app(list(arguments), prog_name="tierlog")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    except TierlogError as error:
        code = exit_code(error)
        if isinstance(error, Refused):
            about_settings = error.kind == "bad-document" and error.what.startswith("/config")
            error.hint = HINTS.get("bad-setting" if about_settings else error.kind, error.hint)
        output.report(error, code, as_json="--json" in arguments)
        return code
    except OSError as error:
        failed = TierlogError(error.strerror or str(error), where=str(error.filename or ""))
        output.report(failed, 1, as_json="--json" in arguments)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def exit_code(error: TierlogError) -> int:
    match error:
        case UnknownPartition() | UnknownTopic() | NoSuchPin() | NoSuchBucket():
            return 3
        case SettingsError() | StoreMisconfigured() | NotATime() | BadServer() | BadInput():
            return 2
        case TopicExists() | PolicyViolation():
            return 4
        case ServerUnreachable() | StoreUnavailable() | MetadataUnavailable():
            return 5
        case Refused(kind="bad-query"):
            return 2
        case Refused():
            return {400: 2, 404: 3, 409: 4, 408: 5, 413: 2, 429: 5, 503: 5}.get(error.status, 1)
        case _:
            return 1
