"""Certificates of this broker: TLS at its listeners, and in its calls to other brokers.

- Files are read at the start and again when they change (`Identity.refresh`). A new certificate holds for connections
  that begin after that. A file that cannot be used changes nothing: the old certificate stays, and the log says why.
- An authority can be added without a restart. One that is taken out of its file is trusted until the restart.
- TLS 1.2 is the least; Python's own defaults choose the ciphers.
"""

import os
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import cryptography.x509 as x509
import structlog

from hot_tier.clock import wall_ms
from hot_tier.errors import SettingsError

ClientCertificate = Literal["none", "wanted", "required"]
Stamps = tuple[tuple[int, int] | None, ...]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TlsSettings:
    certificate: str = field(
        default="",
        metadata={"doc": "File (PEM) with this broker's certificate, and those between it and its authority's."},
    )
    key: str = field(default="", metadata={"doc": "File (PEM) with the private key of `tls.certificate`."})
    ca: str = field(
        default="",
        metadata={"doc": "File (PEM) with the authorities that sign the certificates of other brokers and of clients."},
    )
    principal_rules: tuple[str, ...] = field(
        default=("DEFAULT",),
        metadata={
            "doc": "How a user's name is made from the subject of a client's certificate, in Kafka's form: "
            "`RULE:pattern/replacement/`, with `L` or `U` behind it for small or large letters. The first rule that "
            "fits is taken; `DEFAULT` is the whole subject, such as `CN=ada,O=example`."
        },
    )
    peers: tuple[str, ...] = field(
        default=(),
        metadata={
            "doc": "Users that are brokers of this cluster. If there are any, nobody else may copy partitions or pass "
            "requests on, at any listener. Empty: everybody who may come in at a listener that takes peers."
        },
    )

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise SettingsError("tls.certificate and tls.key go together", hint="give both or none")


class Identity:
    """One certificate with its key, and the authorities that others are checked against."""

    def __init__(self, certificate: str, key: str, ca: str, where: str) -> None:
        """Raises SettingsError if a file cannot be used. `where` names the settings."""
        self._certificate, self._key, self._ca, self._where = certificate, key, ca, where
        self._contexts: list[ssl.SSLContext] = []
        self._seen: Stamps = self._stamps()
        self._check()

    def serve(self, client_certificate: ClientCertificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if client_certificate != "none":
            context.verify_mode = ssl.CERT_REQUIRED if client_certificate == "required" else ssl.CERT_OPTIONAL
        return self._kept(context)

    def call(self) -> ssl.SSLContext:
        return self._kept(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def refresh(self) -> None:
        """Reads the files again if one of them has changed."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._check()
        except SettingsError as error:
            _log.error("the changed certificate cannot be used, the old one stays", error=str(error))
            return
        try:
            for context in self._contexts:
                self._load(context)
        except OSError as error:
            # The files have changed since the check. Contexts may be half changed, so they are read again soon.
            self._seen = ()
            _log.error("the changed certificate has changed again while it was read", error=str(error))
            return
        _log.info("certificate read again", certificate=self._certificate, expires=self._expires.isoformat())

    def _kept(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        self._contexts.append(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._certificate, self._key)
        if self._ca:
            context.load_verify_locations(self._ca)

    def _check(self) -> None:
        """Tries the files on a context of its own: a certificate without its key would spoil one that is in use."""
        using = self._certificate
        try:
            with open(self._certificate, "rb") as file:
                found = x509.load_pem_x509_certificate(file.read())
            using = f"{self._certificate}, {self._key}"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            if self._ca:
                using = self._ca
                context.load_verify_locations(self._ca)
        except (OSError, ValueError) as error:
            raise SettingsError(_reason(error), where=f"{self._where} ({using})", hint=_HINT) from None
        now = datetime.fromtimestamp(wall_ms() / 1000, UTC)
        if not found.not_valid_before_utc <= now < found.not_valid_after_utc:
            raise SettingsError(
                f"the certificate is valid from {found.not_valid_before_utc} to {found.not_valid_after_utc}",
                where=f"{self._where} ({self._certificate})",
                hint="renew it, or set this machine's clock",
            )
        self._expires = found.not_valid_after_utc

    def _stamps(self) -> Stamps:
        return tuple(_stamp(each) for each in (self._certificate, self._key, self._ca) if each)


_HINT = "name readable PEM files: a certificate, the private key that belongs to it, without a password"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the private key is not that of the certificate"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return f"cannot be read: {error.strerror}"
    return "is not what it should be in PEM"


def _no_password() -> str:
    raise ValueError("a private key with a password")


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
