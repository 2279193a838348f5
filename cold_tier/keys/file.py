"""The key file: named 256-bit keys with versions, as JSON. docs/formats/key-file.md describes it.

Only its owner may read the file; one that others may read is refused. A key that was destroyed keeps its name in the
file, so that a reader can tell "destroyed" from "not here". Changes are made by the command line, one at a time. A
changed file is written anew, synced, and put in the place of the old one, whose bytes are overwritten. That is the most
that a file system allows: a copy-on-write file system, an SSD or a backup may keep old bytes.
"""

import base64
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from hot_tier.errors import SettingsError

_VERSION: Final = 1
_KEY_BYTES: Final = 32
_MOST_BYTES: Final = 4 << 20
KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class NamedKey:
    versions: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    """Empty after the key was destroyed."""
    shredded_ms: int | None = None

    @property
    def newest(self) -> int:
        return max(self.versions)


KeySet = Mapping[str, NamedKey]


def read_key_file(path: str) -> KeySet:
    """Raises SettingsError if the file cannot be used: missing, readable by others, not a key file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SettingsError(
            f"the key file cannot be read: {error.strerror}", where=path, hint="`tierlog keys new` makes one"
        ) from error
    with open(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise SettingsError(
                f"others than its owner may use the key file (mode {stat.S_IMODE(mode):o})",
                where=path,
                hint=f"chmod 600 {path}",
            )
        content = file.read(_MOST_BYTES + 1)
    try:
        return _parsed(content)
    except (ValueError, KeyError, TypeError, AttributeError):
        # The error itself may quote a key.
        raise SettingsError(
            "this is not a key file, or it is damaged", where=path, hint="put it back from its backup"
        ) from None


def _parsed(content: bytes) -> KeySet:
    if len(content) > _MOST_BYTES:
        raise ValueError("too large")
    document: dict[str, Any] = orjson.loads(content)
    if document["version"] != _VERSION:
        raise ValueError("version")
    found: dict[str, NamedKey] = {}
    for name, each in document["keys"].items():
        versions = {int(number): base64.b64decode(key, validate=True) for number, key in each["versions"].items()}
        shredded_ms = each["shredded_ms"]
        whole = all(number > 0 and len(key) == _KEY_BYTES for number, key in versions.items())
        if not KEY_NAME.fullmatch(name) or not whole or bool(versions) == (shredded_ms is not None):
            raise ValueError("key")
        found[name] = NamedKey(versions, shredded_ms)
    return found


def new_key(path: str, name: str) -> None:
    """Adds a key, and makes the file if there is none."""
    if not KEY_NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r} cannot name a key", hint="use letters, digits, dots, dashes and underscores, 100 at most"
        )
    with _changing(path, create=True) as change:

        def add(keys: KeySet) -> KeySet:
            if name in keys:
                raise SettingsError(
                    f"there is, or was, a key {name!r}",
                    where=path,
                    hint="`tierlog keys rotate` gives it a new version; a destroyed key's name is not used again",
                )
            return {**keys, name: NamedKey({1: secrets.token_bytes(_KEY_BYTES)})}

        change(add)


def rotate_key(path: str, name: str) -> int:
    """Adds a version to a key and returns its number. Older versions stay, for what they encrypted."""
    made = 0
    with _changing(path) as change:

        def add(keys: KeySet) -> KeySet:
            nonlocal made
            known = _known(path, keys, name)
            made = known.newest + 1
            return {**keys, name: replace(known, versions={**known.versions, made: secrets.token_bytes(_KEY_BYTES)})}

        change(add)
    return made


def shred_key(path: str, name: str, now_ms: int) -> None:
    """Destroys all versions of a key. It does nothing to a key that is destroyed already."""
    with _changing(path) as change:

        def remove(keys: KeySet) -> KeySet:
            if name in keys and keys[name].shredded_ms is not None:
                return keys
            _known(path, keys, name)
            return {**keys, name: NamedKey({}, now_ms)}

        change(remove)


def _known(path: str, keys: KeySet, name: str) -> NamedKey:
    known = keys.get(name)
    if known is None or known.shredded_ms is not None:
        what = f"there is no key {name!r}" if known is None else f"the key {name!r} is destroyed"
        raise SettingsError(what, where=path, hint="`tierlog keys list` shows the keys")
    return known


@contextmanager
def _changing(path: str, create: bool = False) -> Iterator[Callable[[Callable[[KeySet], KeySet]], None]]:
    """Gives a function that changes the file. Two commands never change it at the same time."""
    folder = os.path.dirname(os.path.abspath(path))
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)

        def change(decide: Callable[[KeySet], KeySet]) -> None:
            there = os.path.exists(path)
            _write(path, decide(read_key_file(path) if there or not create else {}), fd)

        yield change
    finally:
        os.close(fd)


def _write(path: str, keys: KeySet, folder: int) -> None:
    document = {
        "version": _VERSION,
        "keys": {
            name: {
                "versions": {str(number): base64.b64encode(key).decode() for number, key in each.versions.items()},
                "shredded_ms": each.shredded_ms,
            }
            for name, each in keys.items()
        },
    }
    temporary = f"{os.path.realpath(path)}.{secrets.token_hex(8)}.tmp"
    before = os.open(path, os.O_RDWR | os.O_CLOEXEC) if os.path.exists(path) else None
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2))
            file.flush()
            os.fsync(fd)
        os.replace(temporary, os.path.realpath(path))
        os.fsync(folder)
        if before is not None:
            size = os.fstat(before).st_size
            os.pwrite(before, bytes(size), 0)
            os.fsync(before)
    finally:
        if before is not None:
            os.close(before)
        if os.path.exists(temporary):
            os.unlink(temporary)
