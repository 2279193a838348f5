"""Which format a data directory is in, and whether an older version has run on it since this one did.

`<data_dir>/format`, sealed text:

    1                    the format; a directory without the file is in format 1
    <data id> <runs>     as in `data-id` when a version that knows this file last began to run here

- A version refuses a directory in a format that it does not know, before it changes anything.
- 0.1.0 does not know the file, but counts its runs in `data-id`: where the two differ, it has run here since. What it
  does not keep up to date is then not believed: it writes leader epochs only with a sync, so that batches in an epoch
  that the log does not know are no damage.
- `data-id` is written before `format`: a stop in between is taken for a run of 0.1.0, which only forgets.
"""

import os
from typing import Final

import structlog

from hot_tier.cluster.directory import IDENTITY_FILE, write_identity
from hot_tier.cluster.model import Identity
from hot_tier.errors import CorruptLog, UnknownFormat
from hot_tier.log import names
from hot_tier.log.files import replace_synced
from hot_tier.log.log_start import read_log_start
from hot_tier.log.sealed_text import read_sealed_text, write_sealed_text

FORMAT: Final = 1
FORMAT_FILE: Final = "format"

_log = structlog.get_logger()


def check_format(data_dir: str) -> None:
    """Raises UnknownFormat if a newer version has changed the directory."""
    lines = _read(data_dir)
    if lines is not None and int(lines[0]) > FORMAT:
        raise UnknownFormat(
            f"the data directory is in format {lines[0]}, this version knows {FORMAT}",
            where=data_dir,
            hint="start the version that wrote it; docs/UPGRADING.md says how to go back",
        )


def begin_run(data_dir: str, identity: Identity) -> None:
    """Writes down that this version runs here: before the cluster hears of it, and before the logs are opened."""
    lines = _read(data_dir)
    if _content(os.path.join(data_dir, IDENTITY_FILE)) != (None if lines is None else f"{lines[1]}\n".encode()):
        _forget(data_dir)
    write_identity(data_dir, identity)
    noted = [str(FORMAT), f"{identity.data_id} {identity.runs}"]
    replace_synced(os.path.join(data_dir, FORMAT_FILE), write_sealed_text(FORMAT_FILE, noted))


def _read(data_dir: str) -> list[str] | None:
    path = os.path.join(data_dir, FORMAT_FILE)
    content = _content(path)
    if content is None:
        return None
    lines = read_sealed_text(FORMAT_FILE, content)
    if lines is None or len(lines) < 2 or not lines[0].isdecimal():
        raise CorruptLog(
            "does not say which format the data directory is in",
            where=path,
            hint="remove it if no newer version has run on this directory",
        )
    return lines


def _forget(data_dir: str) -> None:
    """Leaves of each log's start what 0.1.0 knows of it."""
    forgotten = 0
    logs = os.path.join(data_dir, names.LOGS)
    for directory, _, files in os.walk(logs):
        if names.LOG_START not in files:
            continue
        path = os.path.join(directory, names.LOG_START)
        start = read_log_start(_content(path) or b"")
        if start.local is not None:
            replace_synced(path, write_sealed_text(names.LOG_START, [str(start.offset)]))
            forgotten += 1
    if forgotten:
        _log.info("an older version has run on this data directory", where=data_dir, logs=forgotten)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
