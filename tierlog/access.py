"""Which node the command line speaks to, and as whom.

The first of these that says so: the flag `--server` or the variable TIERLOG_SERVER; the profile that `--profile` or
TIERLOG_PROFILE names, else the profile `default`; what `serve --secure` left for its own user on this machine (a note).

- Profiles are tables of `~/.config/tierlog/config.toml`, notes are files in `~/.local/state/tierlog/servers`, one for
  each address, with the same fields. Variables TIERLOG_CA, TIERLOG_USER and so on win over both.
- Who names a server and no profile gets the note of that address and no profile: a password goes to no other server
  than the one that it was written down for. It goes to none without TLS.
- A file that others can change is refused, and one with a password in it that others can read.
"""

import json
import os
import shlex
import ssl
import stat
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from hot_tier.errors import SettingsError
from hot_tier.secrets import is_reference, resolve_secret
from tierlog.whole_files import write_whole

USUAL_SERVER: Final = "http://127.0.0.1:8080"
DEFAULT_PROFILE: Final = "default"
COMMAND: Final = "command:"
COMMAND_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Access:
    server: str = ""
    """One address, or several separated by commas."""
    ca: str = ""
    """File (PEM) to check a server's certificate against; empty: SSL_CERT_FILE, else the system's authorities."""
    user: str = ""
    password: str = ""
    """In files: also `file:/path`, `env:NAME` or `command:WORDS`."""
    api_key: str = ""
    """In place of a user and a password; in files as they are."""
    certificate: str = ""
    key: str = ""
    """Files (PEM) of a certificate to show."""
    where: str = ""
    """The file and table that this was in."""

    def context(self) -> ssl.SSLContext:
        using = self.ca
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                using = f"{self.certificate}, {self.key}"
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:
            raise SettingsError(
                f"{using} cannot be used: {error.strerror or error}",
                where=self.where or "TIERLOG_CA, TIERLOG_CERTIFICATE, TIERLOG_KEY",
                hint="name readable PEM files, the key without a password",
            ) from None
        return context

    def login(self) -> tuple[str, str] | None:
        if not self.user:
            return None
        return self.user, _secret(self.password, f"{self.where or 'TIERLOG_PASSWORD'} (password)")

    def bearer(self) -> str:
        return _secret(self.api_key, f"{self.where or 'TIERLOG_API_KEY'} (api_key)")


def _secret(said: str, where: str) -> str:
    return _said(said.removeprefix(COMMAND), where) if said.startswith(COMMAND) else resolve_secret(said, where)


FIELDS: Final = tuple(each.name for each in fields(Access) if each.name != "where")
_chosen: list[str] = []
"""The profile that a flag of this run names, if one does."""


def choose_profile(name: str | None) -> None:
    _chosen[:] = [name] if name else []


def access_to(server: str = "", profile: str | None = None) -> Access:
    """Returns how to reach `server`, or the node that the profile names. None means the profile of this run."""
    name = "".join(_chosen) if profile is None else profile
    found = None
    if name:
        found = _profile(name, must_be=True)
    elif not server:
        found = _profile(DEFAULT_PROFILE, must_be=False)
    if found is None:
        found = _note(server or USUAL_SERVER) or Access(USUAL_SERVER)
        if server.startswith("http://"):
            found = Access()  # The user asked for no TLS, so no password is sent.
        elif server and "://" not in server and found.ca:
            server = ",".join(f"https://{each.strip()}" for each in server.split(","))
    return _with_variables(replace(found, server=server or found.server or USUAL_SERVER))


def _with_variables(found: Access) -> Access:
    given = {name: os.environ.get(f"TIERLOG_{name.upper()}", "") for name in FIELDS if name != "server"}
    for pair in (("user", "password"), ("certificate", "key")):
        if given[pair[0]]:  # A user and a password come from the same place.
            found = replace(found, **{name: given[name] for name in pair}, where="")
            found = replace(found, api_key="") if pair[0] == "user" else found
    if given["api_key"]:
        found = replace(found, api_key=given["api_key"], where="")
    return replace(found, ca=given["ca"]) if given["ca"] else found


# Profiles


def config_path() -> Path:
    return _home("XDG_CONFIG_HOME", ".config") / "config.toml"


def _profile(name: str, *, must_be: bool) -> Access | None:
    path = config_path()
    table = _table(path)
    if name not in table:
        if not must_be:
            return None
        there = ", ".join(sorted(table)) or "none"
        raise SettingsError(f"there is no profile {name!r}", where=str(path), hint=f"profiles there: {there}")
    found = _access(table[name], path, f"{path}: [{name}]")
    if not found.server:
        raise SettingsError("names no server", where=found.where, hint='add server = "https://HOST:8080"')
    if (found.user or found.api_key) and any(
        not each.strip().startswith("https://") for each in found.server.split(",")
    ):
        raise SettingsError(
            "its password would go unencrypted", where=found.where, hint="begin each address of `server` with https://"
        )
    return found


def _table(path: Path) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            table = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise SettingsError(f"is not TOML: {error}", where=str(path)) from None
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid not in (os.geteuid(), 0):
        raise SettingsError(
            "others can change the file, and so learn passwords", where=str(path), hint=f"chmod 600 {path}, and own it"
        )
    return table


def _access(table: Any, path: Path, where: str) -> Access:
    if not isinstance(table, dict):
        raise SettingsError("is no table", where=where, hint=f"write [NAME], and in it {', '.join(FIELDS)}")
    given = {
        name: ",".join(value) if name == "server" and isinstance(value, list) else value
        for name, value in table.items()
    }
    for name, value in given.items():
        if name not in FIELDS or not isinstance(value, str):
            raise SettingsError(
                f"{name!r} cannot be there", where=where, hint=f"there may be {', '.join(FIELDS)}, as text"
            )
    found = Access(**given, where=where)
    if bool(found.user) != bool(found.password) or bool(found.certificate) != bool(found.key):
        raise SettingsError("user and password go together, and certificate and key", where=where)
    secrets = [each for each in (found.password, found.api_key) if each]
    plain = any(not is_reference(each) and not each.startswith(COMMAND) for each in secrets)
    if plain and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise SettingsError("has a password, and others can read the file", where=str(path), hint=f"chmod 600 {path}")
    # What a file names lies beside it, wherever the command is run.
    beside = {
        name: str(path.parent / Path(text).expanduser())
        for name in ("ca", "certificate", "key")
        if (text := given.get(name))
    }
    return replace(found, **beside)


@cache
def _said(command: str, where: str) -> str:
    """Returns what a command of the user prints. It runs once, and may ask at the terminal."""
    try:
        ran = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, timeout=COMMAND_S, check=True)
        text = ran.stdout.decode().removesuffix("\n")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        what = (
            f"ended with {error.returncode}"
            if isinstance(error, subprocess.CalledProcessError)
            else type(error).__name__
        )
        raise SettingsError(
            f"the command for the password failed: {what}", where=where, hint="run it by hand"
        ) from None
    if not text:
        raise SettingsError("the command for the password printed nothing", where=where, hint="run it by hand")
    return text


# Notes


def leave_note(address: str, access: Access) -> None:
    """Tells the command line of this user how to come in at `address`. Raises OSError."""
    path = _note_path(address)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    said = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in asdict(access).items()
        if name in FIELDS and value
    ]
    write_whole(path, ("\n".join(said) + "\n").encode())


def remove_note(address: str) -> None:
    try:
        _note_path(address).unlink(missing_ok=True)
    except OSError:
        pass  # It is not this user's, so it is not looked for either.


def _note(server: str) -> Access | None:
    """Returns the note for the first of the addresses, if what it names is still there."""
    first = server.split(",")[0].strip()
    try:
        address = urlsplit(first if "://" in first else f"https://{first}").netloc
    except ValueError:
        return None  # `tierlog.client` says what is wrong with it.
    path = _note_path(address)
    table = _table(path)
    if not table:
        return None
    found = _access(table, path, str(path))
    return found if os.access(found.ca, os.R_OK) else None


def _note_path(address: str) -> Path:
    if address.startswith("localhost:"):
        address = address.replace("localhost", "127.0.0.1", 1)
    return _home("XDG_STATE_HOME", ".local/state") / "servers" / f"{quote(address, safe='')}.toml"


def _home(variable: str, usual: str) -> Path:
    set_to = os.environ.get(variable, "")
    return (Path(set_to) if os.path.isabs(set_to) else Path(os.path.expanduser("~")) / usual) / "tierlog"
