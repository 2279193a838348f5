"""A user's password as it is kept: for each SCRAM mechanism a salt, a number of iterations and two keys (RFC 5802).

The password itself is kept nowhere. The stored key checks a password or a proof of it; the server key proves to a
client that the server knows the user. Whoever reads both can pretend to be the server, but not to be the user.
"""

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from hot_tier.errors import CorruptMetadata

MECHANISMS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Kafka's bounds."""
ITERATIONS: Final = 8192
SALT_BYTES: Final = 24


@dataclass(frozen=True, slots=True)
class Credential:
    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @property
    def hash(self) -> str:
        return MECHANISMS[self.mechanism]

    def accepts(self, password: str) -> bool:
        """Returns whether this is the password. It takes some milliseconds of a core, on purpose."""
        salted = salted_password(self.hash, password, self.salt, self.iterations)
        return hmac.compare_digest(
            from_salted(self.mechanism, salted, self.salt, self.iterations).stored_key, self.stored_key
        )


def make_credential(mechanism: str, password: str) -> Credential:
    salt = os.urandom(SALT_BYTES)
    salted = salted_password(MECHANISMS[mechanism], password, salt, ITERATIONS)
    return from_salted(mechanism, salted, salt, ITERATIONS)


def from_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    name = MECHANISMS[mechanism]
    stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return Credential(mechanism, salt, iterations, stored, hmac.digest(salted, b"Server Key", name))


def salted_password(name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)


def encode(credentials: Mapping[str, Credential]) -> bytes:
    return orjson.dumps({mechanism: as_json(each) for mechanism, each in credentials.items()})


def decode(key: str, data: bytes) -> dict[str, Credential]:
    """Returns a user's credentials by mechanism. Raises CorruptMetadata if they are not what they should be."""
    try:
        return {name: from_json(name, value) for name, value in orjson.loads(data).items() if name in MECHANISMS}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptMetadata(f"not a user: {error!r}", where=key) from None


def unknown_user(user: str, mechanism: str, secret: bytes) -> Credential:
    """Returns a credential that no password fits: the same for the same name, at every broker that has the secret."""
    salt = hmac.digest(secret, f"{mechanism} {user}".encode(errors="replace"), "sha512")[:SALT_BYTES]
    return Credential(mechanism, salt, ITERATIONS, b"", b"")


def new_salts() -> bytes:
    return orjson.dumps({"secret": b64encode(os.urandom(32)).decode()})


def decode_salts(key: str, data: bytes) -> bytes:
    """Returns the secret. Raises CorruptMetadata if it is none."""
    try:
        return b64decode(orjson.loads(data)["secret"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptMetadata(f"not a secret for salts: {error!r}", where=key) from None


def as_json(credential: Credential) -> dict[str, Any]:
    return {
        "salt": b64encode(credential.salt).decode(),
        "iterations": credential.iterations,
        "stored_key": b64encode(credential.stored_key).decode(),
        "server_key": b64encode(credential.server_key).decode(),
    }


def from_json(mechanism: str, value: Mapping[str, Any]) -> Credential:
    """Raises KeyError, TypeError or ValueError if it is not a credential."""
    return Credential(
        mechanism,
        b64decode(value["salt"], validate=True),
        int(value["iterations"]),
        b64decode(value["stored_key"], validate=True),
        b64decode(value["server_key"], validate=True),
    )
