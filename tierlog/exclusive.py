"""What a broker takes of its machine before anything else: its addresses and its data directory.

A port in use, or a directory on which another broker runs, is found before anything is changed. Only the broker's own
user can read what the broker writes.
"""

import errno
import fcntl
import os
import shlex
import socket
import stat
from typing import IO, Final

import structlog

from hot_tier.errors import SettingsError, StorageFailure

LOCK_FILE: Final = "broker.lock"
_NEXT: Final = {
    errno.EADDRINUSE: "stop what uses it",
    errno.EADDRNOTAVAIL: "use an address of this machine",
    errno.EACCES: "use a port from 1024 up",
}


_log = structlog.get_logger()


def keep_files_private() -> None:
    """From now on this process and its child processes make files with mode 0600 and directories with 0700."""
    os.umask(0o077)


def lock_directory(data_dir: str) -> IO[str]:
    """Locks the directory while the returned file is open. The kernel releases the lock however the process ends."""
    try:
        os.makedirs(data_dir, mode=0o700, exist_ok=True)
        file = open(os.path.join(data_dir, LOCK_FILE), "a+")  # noqa: SIM115 — the caller closes it
    except OSError as error:
        raise StorageFailure(
            f"cannot be used: {error.strerror}",
            where=data_dir,
            hint="name a directory that is writable with --data-dir",
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StorageFailure(
            f"another broker (process {holder}) runs on this data directory",
            where=data_dir,
            hint="stop it, or give this one its own --data-dir",
        ) from None
    mode = stat.S_IMODE(os.stat(data_dir).st_mode)
    if mode & 0o077:
        _log.warning(
            "other users of this machine can look into the data directory",
            where=data_dir,
            mode=f"{mode:o}",
            hint=f"chmod -R go= {shlex.quote(data_dir)}",
        )
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def bind(host: str, port: int, where: str, flag: str, *, shared: bool = False) -> socket.socket:
    """`shared`: other processes of this user may bind and listen there too, and the kernel deals connections out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno) if error.errno else error}",
            where=where,
            hint=f"{_NEXT.get(error.errno or 0, 'check the address')}, or choose another with {flag} HOST:PORT",
        ) from None
    listener.setblocking(False)
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str, name: str = "") -> str:
    """Returns an address for others: a wildcard address says where this node listens, not where others find it."""
    return (name or socket.gethostname()) if host in ("0.0.0.0", "::", "") else host
