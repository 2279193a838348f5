"""A development authority and the certificates it signs, as files: made once, kept, and renewed when they run out.

    ca.pem, ca.key          the authority; whoever has ca.key can pretend to be anybody
    NAME.pem, NAME.key      each certificate that was asked for

- Keys are EC P-256 and readable by their owner alone. A file appears whole or not at all.
- What is there and good is left alone. A certificate that ends within 30 days, or lacks a name that is asked for, is
  signed anew for the same key: a broker that runs takes it up by itself.
- The authority is never replaced: all who trust it would have to be told. Once it ends, that is an error.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import cryptography.hazmat.primitives.asymmetric.ec as ec
import cryptography.hazmat.primitives.hashes as hashes
import cryptography.hazmat.primitives.serialization as serialization
import cryptography.x509 as x509
import cryptography.x509.oid as oid

from hot_tier.clock import wall_ms
from hot_tier.errors import SettingsError
from tierlog.whole_files import write_whole

CA: Final = "ca"
CA_VALID: Final = timedelta(days=5 * 365)
VALID: Final = timedelta(days=397)
"""Some clients refuse certificates that hold for longer."""
RENEW_BEFORE: Final = timedelta(days=30)
SLACK: Final = timedelta(hours=1)
"""A clock of another machine may be behind."""

_DNS_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

What = Literal["made", "renewed", "kept"]


@dataclass(frozen=True, slots=True)
class Wanted:
    name: str
    """Common name, and what its files are called."""
    hosts: tuple[str, ...] = ()
    """DNS names and addresses at which it serves; none: a client's certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    name: str
    path: Path
    what: What
    until: datetime
    hosts: tuple[str, ...] = ()

    @property
    def key(self) -> Path:
        return self.path.with_suffix(".key")


def this_machine(more: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the names and addresses by which clients on this machine and beside it reach it, and `more`."""
    usual = ("localhost", "127.0.0.1", "::1", socket.gethostname())
    return tuple(dict.fromkeys((*usual, *more)))


def prepare_certificates(directory: Path, wanted: Iterable[Wanted]) -> list[Certificate]:
    """Makes or renews what is missing, the authority first. Raises SettingsError if a file cannot be used."""
    now = datetime.fromtimestamp(wall_ms() / 1000, UTC).replace(microsecond=0)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _Authority(directory, now)
        return [authority.entry, *(authority.provide(each) for each in wanted)]
    except OSError as error:
        raise SettingsError(
            f"cannot be used: {error.strerror or error}",
            where=str(error.filename or directory),
            hint="name a directory that you may write to",
        ) from None


class _Authority:
    def __init__(self, directory: Path, now: datetime) -> None:
        self._directory, self._now = directory, now
        self._path = directory / f"{CA}.pem"
        self._key_path = directory / f"{CA}.key"
        what: What = "kept"
        if not self._path.exists():
            self._make()
            what = "made"
        self._certificate = _read_certificate(self._path)
        until = self._certificate.not_valid_after_utc
        if until <= now:
            raise SettingsError(
                f"the authority ended on {until:%Y-%m-%d}, and with it all that it signed",
                where=str(self._path),
                hint=f"move {directory} away and run this again; everybody then needs the new {self._path.name}",
            )
        self.entry = Certificate(CA, self._path, what, until)

    def provide(self, wanted: Wanted) -> Certificate:
        path = self._directory / f"{wanted.name}.pem"
        hosts = tuple(str(_general(host).value) for host in wanted.hosts)
        what: What = "made"
        if path.exists():
            found = self._checked(path)
            had = _hosts(found)
            # The authority may end earlier than a certificate would: signing anew would not help then.
            lasting = min(self._now + RENEW_BEFORE, self._certificate.not_valid_after_utc)
            if found.not_valid_after_utc >= lasting and set(hosts) <= set(had):
                return Certificate(wanted.name, path, "kept", found.not_valid_after_utc, had)
            what, hosts = "renewed", tuple(dict.fromkeys((*hosts, *had)))
        signed = self._sign(Wanted(wanted.name, hosts), _own_key(path.with_suffix(".key")))
        write_whole(path, signed.public_bytes(serialization.Encoding.PEM), 0o644)
        return Certificate(wanted.name, path, what, signed.not_valid_after_utc, hosts)

    def _checked(self, path: Path) -> x509.Certificate:
        found, key = _read_certificate(path), path.with_suffix(".key")
        if not key.exists():
            raise SettingsError(
                "has no private key beside it", where=str(path), hint=f"restore {key}, or delete {path}"
            )
        if _read_key(key).public_key() != found.public_key():
            raise SettingsError("is not the key of the certificate beside it", where=str(key), hint=f"delete {path}")
        try:
            found.verify_directly_issued_by(self._certificate)
        except Exception:  # Whatever is wrong with it, it cannot be served with this authority.
            raise SettingsError(
                f"was not signed by {self._path}", where=str(path), hint=f"delete {path}, and one is made that is"
            ) from None
        return found

    def _make(self) -> None:
        key = _own_key(self._key_path)
        # Authorities of several directories must not look the same to a client that trusts more than one.
        digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:8]
        name = _name(f"tierlog development authority {digest}")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            self._builder(name, name, key.public_key(), self._now + CA_VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        write_whole(self._path, made.public_bytes(serialization.Encoding.PEM), 0o644)

    def _sign(self, wanted: Wanted, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        authority = self._certificate
        if not self._key_path.exists():
            raise SettingsError(
                f"the authority's key is not there, so nothing can be signed for {wanted.name!r}",
                where=str(self._key_path),
                hint="put it back for this run",
            )
        signer = _read_key(self._key_path)
        if signer.public_key() != authority.public_key():
            raise SettingsError(
                f"is not the key of {self._path}", where=str(self._key_path), hint="put back the right one"
            )
        until = min(self._now + VALID, authority.not_valid_after_utc)
        # A broker serves, and calls other brokers.
        uses = [oid.ExtendedKeyUsageOID.SERVER_AUTH] if wanted.hosts else []
        builder = (
            self._builder(_name(wanted.name), authority.subject, key.public_key(), until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([*uses, oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if wanted.hosts:
            names = x509.SubjectAlternativeName([_general(host) for host in wanted.hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(signer, hashes.SHA256())

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - SLACK)
            .not_valid_after(until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode()
    except ValueError:
        name = ""
    if not _DNS_NAME.fullmatch(name):
        raise SettingsError(f"{host!r} is neither a host's name nor an address", where="--host")
    return x509.DNSName(name)


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(each.value) for each in names)


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise SettingsError("is no certificate in PEM", where=str(path), hint="restore or delete it") from None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError("is no EC key in PEM without a password", where=str(path), hint="restore or delete it")
    return key


def _own_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Returns the key in this file, which is made if it is not there."""
    if path.exists():
        return _read_key(path)
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_whole(path, key.private_bytes(serialization.Encoding.PEM, *form), 0o600)
    return key
