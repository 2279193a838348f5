"""Secrets as users name them: `file:/path`, `env:NAME`, or the secret itself.

A file's one trailing line break is no part of the secret. Errors say where the reference stands and what could not be
read, never the value.
"""

import os
from collections.abc import Mapping
from typing import Final

from hot_tier.errors import SettingsError

FILE: Final = "file:"
ENVIRONMENT: Final = "env:"
LONGEST: Final = 64 * 1024


def is_reference(text: str) -> bool:
    return text.startswith((FILE, ENVIRONMENT))


def resolve_secret(text: str, where: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the secret that `text` names or is. `where` says where `text` was given."""
    if text.startswith(FILE):
        return _read(text.removeprefix(FILE), where)
    if text.startswith(ENVIRONMENT):
        name = text.removeprefix(ENVIRONMENT)
        found = environment.get(name, "")
        if not found:
            raise SettingsError(
                f"the variable {name} is not set, or is empty", where=where, hint="set it, or use file:/path"
            )
        return found
    return text


def _read(path: str, where: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(LONGEST + 1)
        text = data.decode()
    except OSError as error:
        raise SettingsError(
            f"the file {path} cannot be read: {error.strerror}", where=where, hint="it is file:/path or env:NAME"
        ) from None
    except ValueError:
        raise SettingsError(f"the file {path} is no text in UTF-8", where=where) from None
    if len(data) > LONGEST:
        raise SettingsError(
            f"the file {path} is larger than {LONGEST} bytes", where=where, hint="is it the right file?"
        )
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SettingsError(f"the file {path} is empty", where=where)
    return text
