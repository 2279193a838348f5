"""Which data directory this is, and which boot of the machine: what a broker must know before it trusts its logs.

A directory gets a random name at its first use, kept in a file inside it together with the number of times it was used.
An emptied or exchanged directory has another name; one that was put back from an older copy has been used fewer times
than the cluster remembers. Either way the broker on it no longer holds what it is known to hold.
"""

import os
import uuid
from typing import Final

from hot_tier.cluster.model import Identity
from hot_tier.errors import CorruptLog
from hot_tier.log import names
from hot_tier.log.files import replace_synced

IDENTITY_FILE: Final = "data-id"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def read_identity(data_dir: str) -> Identity:
    """Returns the identity in the directory. If there is none, makes a new one."""
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


def write_identity(data_dir: str, identity: Identity) -> None:
    """Writes the identity to disk, before the cluster hears of it."""
    replace_synced(os.path.join(data_dir, IDENTITY_FILE), f"{identity.data_id} {identity.runs}\n".encode())


def new_identity() -> Identity:
    """Returns a new identity. The directory is another one from now on, whatever copies of it exist."""
    return Identity(uuid.uuid4().hex, 1)


def boot_id() -> str:
    """Returns the id of this boot of the machine. It is empty if the system does not tell; then no two boots are the
    same."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def stopped_cleanly(data_dir: str) -> bool:
    """Returns whether the last broker here closed its logs. Call it before the logs are opened again."""
    return os.path.exists(os.path.join(data_dir, names.CLEAN_SHUTDOWN))
