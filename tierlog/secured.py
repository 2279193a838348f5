"""What `tierlog serve --secure` and `tierlog cluster up --secure` make, and the settings that then keep strangers out.

    DIR/secure/                  while it is there, the directory is served closed, also by a start without --secure
        ca.pem, ca.key           a development authority (`tierlog.certificates`)
        NAME.pem, NAME.key       a certificate for each broker
        admin.password           of the user `admin`, who is made at the first start
    DIR/client.properties        for Java's clients, with that password
    DIR/librdkafka.properties    for librdkafka, which refuses Java's names of login and authority

- All of it is for its owner alone. Files of clients are written at each start, for the address of that start.
- The settings take the place of defaults. If the user sets one of them otherwise, and a listener for clients would then
  let in somebody unknown, the broker does not start.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from hot_tier.cluster.endpoints import SECURE
from hot_tier.errors import SettingsError
from hot_tier.secrets import resolve_secret
from tierlog.access import Access, leave_note, remove_note
from tierlog.certificates import RENEW_BEFORE, Wanted, prepare_certificates, this_machine
from tierlog.listeners import logs_in, plan_listeners
from tierlog.settings import Given, Settings, parse_address
from tierlog.whole_files import write_whole

FOLDER: Final = "secure"
USER: Final = "admin"
PASSWORD_FILE: Final = "admin.password"
JAVA_FILE: Final = "client.properties"
LIBRDKAFKA_FILE: Final = "librdkafka.properties"
MADE_HERE: Final = ("tls.certificate", "tls.key", "tls.ca", "login.first_user", "login.first_password")
_LOGIN: Final = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
_REQUIRED: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"

_log = structlog.get_logger()


def is_secured(directory: Path) -> bool:
    return (directory / FOLDER).exists()


class Secured:
    """One directory: of a broker, or of all brokers of a cluster on this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.folder = self.directory / FOLDER
        self._password_file = self.folder / PASSWORD_FILE

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def files(self, name: str) -> tuple[Path, Path]:
        """Returns the certificate of this name and its key."""
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def prepare(self, wanted: Iterable[Wanted]) -> None:
        """Makes what is missing. Raises SettingsError if what is there cannot be used."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.ca.exists() and not self._password_file.exists():
                write_whole(self._password_file, f"{secrets.token_urlsafe(24)}\n".encode())
        except OSError as error:
            raise SettingsError(f"cannot be used: {error.strerror}", where=str(self.folder)) from None
        self._password()
        authority, *issued = prepare_certificates(self.folder, wanted)
        for each in issued:
            if each.what == "renewed":
                _log.info("a certificate is renewed", certificate=str(each.path), until=each.until.isoformat())
            if authority.until - RENEW_BEFORE <= each.until:
                _log.warning(
                    "the authority ends, and is not renewed",
                    where=str(authority.path),
                    until=authority.until.isoformat(),
                )

    def settings(self, broker: str, peers: Sequence[str] = ()) -> Mapping[str, str]:
        """Returns settings by their keys. `peers` are all brokers of a cluster; none: the broker is alone."""
        certificate, key = self.files(broker)
        closed = {
            "tls.certificate": str(certificate),
            "tls.key": str(key),
            "tls.ca": str(self.ca),
            "login.first_user": USER,
            "login.first_password": f"file:{self._password_file}",
            "listener.kafka.protocol": "sasl_tls",
            "listener.kafka.takes": "clients",
            "listener.http.protocol": "https",
            "listener.http.login": "required",
            "listener.http.takes": "clients",
            "authorization.enabled": "true",
            "authorization.super_users": USER,
            "audit.enabled": "true",
        }
        if not peers:
            return closed
        inside = {"takes": "peers", "client_certificate": "required", "bind": "127.0.0.1:0"}
        closed["tls.peers"] = ",".join(peers)
        closed["tls.principal_rules"] = "RULE:^CN=(.*)$/$1/"
        for name, protocol in (("inside", "tls"), ("inside-http", "https")):
            closed |= {f"listener.{name}.{key}": value for key, value in {"protocol": protocol, **inside}.items()}
        return closed

    def librdkafka(self) -> dict[str, str]:
        """Returns the settings by which a client of librdkafka comes in as the first user."""
        return {**_LOGIN, "sasl.username": USER, "sasl.password": self._password(), "ssl.ca.location": str(self.ca)}

    def announce(self, kafka: str, servers: Sequence[str]) -> list[str]:
        """Writes what clients need for these addresses. Returns what to tell the person at the terminal."""
        login = json.dumps(self._password())
        java = {
            **_LOGIN,
            "sasl.jaas.config": f'{_REQUIRED} username="{USER}" password={login};',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        for name, own in ((JAVA_FILE, java), (LIBRDKAFKA_FILE, self.librdkafka())):
            lines = [f"{key}={value}" for key, value in {"bootstrap.servers": kafka, **own}.items()]
            head = "# Written at each start of the broker. It has a password."
            write_whole(self.directory / name, "\n".join((head, *lines, "")).encode())
        urls = [f"https://{server}" for server in servers]
        for server in servers:
            self._leave_note(server)
        password_file = self._password_file
        return [
            f"export TIERLOG_SERVER={','.join(urls)}",
            f"# only the user {USER} may come in; the command line of this user does so by itself: tierlog topic list",
            f"# kcat -F {self.directory / LIBRDKAFKA_FILE} -L",
            f'# curl --cacert {self.ca} -u "{USER}:$(cat {password_file})" {urls[0]}/api/v1/topics',
        ]

    def _leave_note(self, server: str) -> None:
        access = Access(f"https://{server}", str(self.ca), USER, f"file:{self._password_file}")
        try:
            leave_note(server, access)
        except OSError as error:
            _log.warning("the command line will not find this broker by itself", error=str(error))

    def _password(self) -> str:
        password = resolve_secret(f"file:{self._password_file}", f"password of the user {USER}")
        if any(sign in password for sign in '"\\\n') or not password.isprintable() or password != password.strip():
            raise SettingsError("cannot be put into clients' files", where=str(self._password_file), hint="use others")
        return password


def forget(servers: Iterable[str]) -> None:
    for server in servers:
        remove_note(server)


def close_alone(closed: Secured, given: Settings, load: Callable[..., Settings]) -> Settings:
    """Returns the settings of a machine that is its own cluster, with every door closed. Workers have one certificate,
    by which they know each other. `load` reads what the user gave,
    as it was read for `given`."""
    if not given.cluster.embedded:
        raise SettingsError(
            "--secure is for one machine alone: brokers on several machines need certificates of one authority",
            where="--secure, cluster.metadata",
            hint="docs/SECURING.md closes a cluster; `tierlog cluster up --secure` runs a closed one on this machine",
        )
    for name in MADE_HERE:
        section, key = name.split(".")
        if getattr(getattr(given, section), key):
            raise SettingsError(
                f"this data directory has {name} of its own, by --secure",
                where=name,
                hint=f"leave it out; or give all settings of docs/SECURING.md yourself, and delete {closed.folder}",
            )
    closed.prepare([Wanted("broker", _hosts(given))])
    peers = ["broker"] if given.cluster.workers else []
    beneath = [Given(key, value, "--secure") for key, value in closed.settings("broker", peers).items()]
    settings = load(beneath=beneath)
    refuse_open(settings, closed.folder)
    return settings


def _hosts(settings: Settings) -> tuple[str, ...]:
    """Returns every name and address under which clients are told to come."""
    kafka, more = settings.kafka, settings.listener.values()
    told = [kafka.host, kafka.advertised_host, settings.http.host]
    told += [parse_address(text, "listener")[0] for each in more for text in (each.bind, each.advertised) if text]
    return this_machine(host for host in told if host not in ("", "0.0.0.0", "::"))


def refuse_open(settings: Settings, folder: Path) -> None:
    """Raises SettingsError if somebody could come in whom the broker does not know."""
    for plan in plan_listeners(settings):
        if plan.protocol in SECURE and (logs_in(plan, settings) or plan.said.client_certificate == "required"):
            continue
        raise SettingsError(
            f"the listener {plan.name!r} would let in anybody, and this data directory is served closed",
            where=f"listener.{plan.name}",
            hint=f"give it TLS and a login, or delete {folder} to serve the directory openly",
        )


def on_this_machine(address: str) -> str:
    """Returns where clients on this machine find a listener with this address."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("0.0.0.0", "[::]") else address
