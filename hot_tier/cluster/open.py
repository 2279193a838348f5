"""Which metadata store the settings name.

sqlite                                  a file in the data directory: one node
unix:/PATH                              of the service that started this broker as a worker: its socket
etcd://HOST[:PORT][,HOST[:PORT]…][/NAME]   a cluster; NAME keeps apart those that share an etcd
"""

import os
import re
import ssl
from typing import Final

from hot_tier.cluster.etcd import DEFAULT_PREFIX, EtcdStore
from hot_tier.cluster.etcd_settings import EtcdSettings
from hot_tier.cluster.socket_store import SocketStore
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.errors import SettingsError

METADATA_FILE: Final = "metadata.db"
SOCKET_FILE: Final = "metadata.sock"
SOCKET_SCHEME: Final = "unix:"
ETCD_SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379

_ENDPOINT: Final = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>\d{1,5}))?")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


def metadata_store(
    where: str, etcd: EtcdSettings, data_dir: str, tls: ssl.SSLContext | None = None
) -> SqliteStore | SocketStore | EtcdStore:
    """Returns the store, not opened yet. Raises SettingsError if `where` is none of the above or a file of `etcd`
    cannot be used. `tls` has those files, where the caller reads them again when they change."""
    if where == "sqlite":
        return SqliteStore(os.path.join(data_dir, METADATA_FILE))
    if where.startswith(SOCKET_SCHEME):
        return SocketStore(where.removeprefix(SOCKET_SCHEME))
    if not where.startswith(ETCD_SCHEME):
        raise _bad_address(where)
    addresses, prefix = parse_etcd_address(where)
    if tls is None and etcd.ca:
        tls = _tls(etcd)
    scheme = "http" if tls is None else "https"
    endpoints = [f"{scheme}://{address}" for address in addresses]
    return EtcdStore(endpoints, prefix, tls=tls, user=etcd.user, password=etcd.password)


def parse_etcd_address(text: str) -> tuple[list[str], str]:
    """Returns `HOST:PORT` of every endpoint, and the prefix of all keys."""
    hosts, _, name = text.removeprefix(ETCD_SCHEME).partition("/")
    addresses = []
    for part in hosts.split(","):
        found = _ENDPOINT.fullmatch(part)
        port = int(found["port"] or DEFAULT_PORT) if found else 0
        if found is None or not 0 < port < 65536:
            raise _bad_address(text)
        addresses.append(f"{found['host']}:{port}")
    if name and not _NAME.fullmatch(name):
        raise _bad_address(text)
    return addresses, f"/{name}/" if name else DEFAULT_PREFIX


def _bad_address(text: str) -> SettingsError:
    return SettingsError(
        f"cluster.metadata cannot be {text!r}",
        where="cluster.metadata",
        hint="it is sqlite or etcd://HOST:PORT[,HOST:PORT…][/NAME]",
    )


def _tls(etcd: EtcdSettings) -> ssl.SSLContext:
    using = "etcd.ca"
    try:
        context = ssl.create_default_context(cafile=etcd.ca)
        if etcd.cert:
            using = "etcd.cert, etcd.key"
            context.load_cert_chain(etcd.cert, etcd.key)
    except OSError as error:
        raise SettingsError(f"cannot be used: {error.strerror or error}", where=using) from None
    return context
