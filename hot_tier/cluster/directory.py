"""Which data directory this is, and which boot of the machine: what a broker must know before it trusts its logs.

A directory gets a random name at its first use, kept in a file inside it. An emptied or exchanged directory has
another name, or none: the broker on it no longer holds what it is known to hold.
"""

import os
import uuid
from typing import Final

from hot_tier.log import names
from hot_tier.log.files import replace_synced

DATA_ID_FILE: Final = "data-id"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def data_id(data_dir: str) -> str:
    path = os.path.join(data_dir, DATA_ID_FILE)
    try:
        with open(path, encoding="ascii") as file:
            found = file.read().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        found = ""
    if not found:
        found = uuid.uuid4().hex
        replace_synced(path, f"{found}\n".encode())
    return found


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
