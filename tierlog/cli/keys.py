"""`tierlog keys new|rotate|list` and `tierlog archive shred`: keys of encrypted topics, made and destroyed."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hot_tier.clock import wall_ms
from hot_tier.errors import PolicyViolation, SettingsError, TierlogError, UnknownTopic
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, BucketUrl, Json, S3Endpoint, Server, TopicName
from tierlog.cli.times import show_time
from tierlog.client import Client, path

if TYPE_CHECKING:
    from cold_tier.key_uses import KeyUse
    from cold_tier.objects.bucket import Bucket

KeyName = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="The key's name.")]
KeysFile = Annotated[
    str,
    typer.Option(
        "--keys-file",
        envvar="TIERLOG_STORE__KEYS_FILE",
        metavar="FILE",
        help="The key file, as the setting store.keys_file names it.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    keys = Commands(no_args_is_help=True, help="Keys of encrypted topics, in a key file.")
    keys.command("new", help="Make a key, and the file if there is none.")(new)
    keys.command("rotate", help="Give a key a new version, which new objects get.")(rotate)
    keys.command("list", help="List the keys, without what is secret.")(list_)
    app.add_typer(keys, name="keys")


def new(name: KeyName, keys_file: KeysFile = "") -> None:
    from cold_tier.keys.file import new_key

    new_key(_file(keys_file), name)
    print(f"made the key {name} in {keys_file}; keep a copy of the file: without it nobody can read what it encrypts")


def rotate(name: KeyName, keys_file: KeysFile = "") -> None:
    from cold_tier.keys.file import rotate_key

    print(f"{name} has version {rotate_key(_file(keys_file), name)}; older versions stay for what they encrypted")


def list_(keys_file: KeysFile = "", json: Json = False) -> None:
    from cold_tier.keys.file import read_key_file

    keys = read_key_file(_file(keys_file))
    if json:
        output.print_json(
            [
                {"name": name, "versions": len(each.versions), "shredded": each.shredded_ms}
                for name, each in keys.items()
            ]
        )
        return
    output.print_table(
        ("key", "versions>", "destroyed"),
        [
            (name, len(each.versions), show_time(each.shredded_ms) if each.shredded_ms else "-")
            for name, each in keys.items()
        ],
    )


def shred(
    topic: TopicName,
    bucket: BucketUrl = None,
    confirm: Annotated[
        str, typer.Option("--confirm", metavar="TOPIC", help="The topic's name again; asked for if missing.")
    ] = "",
    shared: Annotated[
        bool, typer.Option("--shared", help="Also if other topics use the key: their history is destroyed with it.")
    ] = False,
    days: Annotated[
        int, typer.Option("--days", min=7, max=30, help="How long AWS KMS waits before it deletes a key for good.")
    ] = 7,
    keys_file: KeysFile = "",
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    """The order: look for everything that uses the keys, ask, destroy, say what is left."""
    from tierlog.cli.archive import bucket_settings, run_async

    if bucket is None:
        raise SettingsError("no bucket is named", hint="--bucket says where the archive is, so that its keys are found")
    settings = bucket_settings(bucket, s3_endpoint)
    uses = run_async(_uses(settings.store))
    mine = next((each for each in uses if each.topic == topic), None)
    if mine is None:
        raise UnknownTopic(f"the archive has no topic {topic!r}", where=bucket)
    if not mine.names:
        raise SettingsError(f"the archive of {topic} is not encrypted", hint="delete the topic to delete its history")
    others = sorted(each.topic for each in uses if each.topic != topic and each.names & mine.names)
    if others and not shared:
        raise PolicyViolation(
            f"other topics use the same key: {', '.join(others)}",
            where=topic,
            hint="with --shared their history is destroyed too",
        )
    _confirm(topic, mine, others, confirm)
    _destroy(mine, keys_file, settings.store.s3_region, days)
    local = _local(server, topic)
    if json:
        output.print_json({"topic": topic, "keys": sorted(mine.names), "others": others, "local": local})
        return
    destroyed = ", ".join(sorted(mine.names))
    print(f"destroyed {destroyed}: {mine.segments} archived segments of {topic} cannot be read any more")
    for each in local or []:
        offsets = f"{each['start_offset']} to {each['end_offset'] - 1}"
        print(f"{topic}-{each['partition']}: offsets {offsets} are still on local disk")
    if local is None:
        output.note(f"no node answers at {server}: what brokers have of {topic} on local disk is still there")
    output.note("copies of the key file, of it on other brokers and in backups, can still decrypt: destroy them too")


async def _uses(store_settings: Any) -> list["KeyUse"]:
    from cold_tier.key_uses import key_uses
    from cold_tier.objects.open import open_store

    store: Bucket = open_store(store_settings)
    try:
        return await key_uses(store)
    finally:
        await store.close()


def _confirm(topic: str, mine: "KeyUse", others: list[str], confirm: str) -> None:
    if not confirm and sys.stdin.isatty():
        output.note(f"{mine.segments} archived segments of {', '.join([topic, *others])} will be unreadable for good")
        confirm = typer.prompt("The topic's name, to go on")
    if confirm != topic:
        raise SettingsError(
            f"nothing was destroyed: {confirm!r} is not the topic's name" if confirm else "nothing was destroyed",
            hint=f"--confirm {topic} says that you mean it; there is no way back",
        )


def _destroy(mine: "KeyUse", keys_file: str, region: str, days: int) -> None:
    from cold_tier.errors import KeyShredded
    from cold_tier.keys.file import read_key_file, shred_key
    from cold_tier.keys.kms import PREFIX
    from cold_tier.keys.master import MasterKeys

    held = sorted(name for name in mine.names if not name.startswith(PREFIX))
    known = read_key_file(_file(keys_file)) if held else {}
    if absent := [name for name in held if name not in known]:
        raise SettingsError(f"the key file does not have the key {absent[0]!r}", where=keys_file)
    for name in held:
        shred_key(keys_file, name, wall_ms())
    kms = MasterKeys(region=region)
    for name in sorted(mine.names - set(held)):
        try:
            kms.schedule_deletion(kms.newest(name), days)
        except KeyShredded:
            continue  # An alias and its key are two names of one thing.


def _local(server: str, topic: str) -> list[dict[str, Any]] | None:
    """Returns what a node says of the topic's local disks, or None if none answers."""
    try:
        with Client(server) as client:
            found = client.get(path("topics", topic, "archive"), limit=0)["partitions"]
    except TierlogError:
        return None
    return [{"partition": each["partition"], **each["local"]} for each in found if each["local"]]


def _file(keys_file: str) -> str:
    if not keys_file:
        raise SettingsError("no key file is named", hint="name it with --keys-file FILE or TIERLOG_STORE__KEYS_FILE")
    return os.path.abspath(keys_file)
