"""Which data directory this is, and which boot of the machine: what a broker must know before it trusts its logs.

A directory gets a random name at its first use, kept in a file inside it together with the number of times it was used.
An emptied or exchanged directory has another name; one that was put back from an older copy has been used fewer times
than the cluster remembers. Either way the broker on it no longer holds what it is known to hold.
"""

import os
import uuid
from dataclasses import dataclass, replace
from typing import Final

from hot_tier.errors import CorruptLog
from hot_tier.log import names
from hot_tier.log.files import replace_synced

IDENTITY_FILE: Final = "data-id"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True, slots=True)
class Identity:
    data_id: str
    runs: int
    """How often a broker has registered from this directory, or was about to."""


def read_identity(data_dir: str) -> Identity:
    """Makes a new one where there is none."""
    path = os.path.join(data_dir, IDENTITY_FILE)
    try:
        with open(path, "rb") as file:
            data_id, runs = file.read().decode("ascii").split()
            return Identity(data_id, int(runs))
    except FileNotFoundError:
        return Identity(uuid.uuid4().hex, 0)
    except ValueError:
        raise CorruptLog(
            "does not say which data directory this is", where=path, hint="remove it: others will fill the directory"
        ) from None


def begin_run(data_dir: str, identity: Identity) -> Identity:
    """On disk before the cluster hears of it."""
    following = replace(identity, runs=identity.runs + 1)
    replace_synced(os.path.join(data_dir, IDENTITY_FILE), f"{following.data_id} {following.runs}\n".encode())
    return following


def boot_id() -> str:
    """Empty where the system does not tell: then no two boots are the same."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def stopped_cleanly(data_dir: str) -> bool:
    """Whether the last broker here closed its logs; to be asked before they are opened again."""
    return os.path.exists(os.path.join(data_dir, names.CLEAN_SHUTDOWN))
