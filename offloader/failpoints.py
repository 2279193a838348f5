"""Named places where a test makes the process die or fail: `TIERLOG_FAILPOINTS=archive.rows_uploaded=kill`.

A place is one line, `failpoints.reach("archive.rows_uploaded")`, and costs a dictionary look-up. Actions: `kill` ends
the broker like kill -9, also from its worker; `fail` raises an error; `kill@3` acts the third time. `PLACES` are the
steps of archiving.
"""

import os
import signal
from typing import Final

PLACES: Final = (
    "archive.converted",
    "archive.rows_uploaded",
    "archive.index_uploaded",
    "archive.aside_uploaded",
    "archive.verified",
    "archive.before_publish",
    "archive.published",
    "archive.recorded",
    "retention.before_publish",
    "retention.published",
    "retention.local_dropped",
    "replace.before_publish",
    "replace.published",
    "garbage.before_delete",
    "garbage.deleted",
    "deleted.rows",
    "deleted.indexes",
    "deleted.manifests",
)


def _parse(text: str) -> dict[str, tuple[str, int]]:
    chosen = {}
    for entry in filter(None, text.split(",")):
        place, _, action = entry.partition("=")
        action, _, count = action.partition("@")
        if place not in PLACES or action not in ("kill", "fail"):
            raise ValueError(f"TIERLOG_FAILPOINTS: {entry!r} is not one of {PLACES} with =kill or =fail")
        chosen[place] = (action, int(count or 1))
    return chosen


_chosen = _parse(os.environ.get("TIERLOG_FAILPOINTS", ""))

broker_pid = os.getpid()
"""The worker sets this to its parent's pid: a kill ends the broker, and the worker with it."""


def reach(place: str) -> None:
    if place not in _chosen:
        return
    action, left = _chosen[place]
    _chosen[place] = (action, left - 1)
    if left == 1:
        if action == "kill":
            os.kill(broker_pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(f"failpoint {place}")
