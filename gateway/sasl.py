"""SASL exchanges as the server holds them: PLAIN, SCRAM and OAUTHBEARER (RFC 4616, RFC 5802, RFC 7628). Pure: messages
in, messages out.

- What a client sends is foreign: anything that is not a message of the exchange is `LoginFailed`.
- An unknown user is answered like a known one with another password, with a salt that stays the same for its name and
  mechanism at every broker, so that nobody learns which users there are.
- Channel binding is not offered, so a client that asks for it (`p=`) is refused.
"""

import hashlib
import hmac
import os
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hot_tier.cluster.credentials import MECHANISMS, Credential, unknown_user

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SERVED: Final = (*MECHANISMS, PLAIN)
"""The mechanisms with a password."""

Find = Callable[[str], Mapping[str, Credential]]
"""Returns the credentials of a user; none for an unknown one."""

_FIRST: Final = re.compile(
    rb"(?P<header>[ny],(?P<as>a=[^,]*)?,)(?P<bare>n=(?P<user>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+))"
)
_BEARER: Final = re.compile(rb"[ny],(?:a=(?P<as>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_FINAL: Final = re.compile(rb"(?P<unproved>c=(?P<channel>[^,]*),r=(?P<nonce>[^,]*)),p=(?P<proof>[^,]*)")


class LoginFailed(Exception):
    """The client did not show that it is the user. What it is told says no more than that."""


class Step(NamedTuple):
    answer: bytes
    user: str | None
    """Who the client is, once it has shown it."""


class PlainExchange:
    def __init__(self, find: Find) -> None:
        self._find = find
        self.claimed = ""
        """Who the client says it is."""

    def step(self, message: bytes) -> Step:
        """Takes some milliseconds of a core."""
        try:
            acting_as, user, password = message.decode().split("\0")
        except ValueError:
            raise LoginFailed("not a message of PLAIN") from None
        self.claimed = user
        known = _credential(self._find, user, "SCRAM-SHA-256") or _credential(self._find, user, "SCRAM-SHA-512")
        right = (known or unknown_user(user, "SCRAM-SHA-256", b"")).accepts(password)
        if known is None or not right or acting_as not in ("", user):
            raise LoginFailed("wrong user or password")
        return Step(b"", user)


class ScramExchange:
    def __init__(self, mechanism: str, find: Find, salts: bytes) -> None:
        """`salts` is the secret that makes the salts of unknown users."""
        self._mechanism = mechanism
        self._salts = salts
        self._hash = MECHANISMS[mechanism]
        self._find = find
        self._user = ""
        self._known: Credential | None = None
        self._nonce = b""
        self._header = b""
        self._said = b""

    @property
    def claimed(self) -> str:
        """Returns who the client says it is."""
        return self._user

    def step(self, message: bytes) -> Step:
        return self._last(message) if self._nonce else self._first(message)

    def _first(self, message: bytes) -> Step:
        found = _FIRST.fullmatch(message)
        try:
            name = "" if found is None else _unescaped(found["user"].decode())
        except ValueError:
            found = None
        if found is None or (found["as"] and _unescaped(found["as"][2:].decode()) != name):
            raise LoginFailed(f"not a first message of {self._mechanism}")
        self._user = name
        self._known = _credential(self._find, name, self._mechanism)
        shown = self._known or unknown_user(name, self._mechanism, self._salts)
        self._nonce = b64encode(os.urandom(18))
        self._header = found["header"]
        answer = b"r=%b%b,s=%b,i=%d" % (found["nonce"], self._nonce, b64encode(shown.salt), shown.iterations)
        self._said = found["bare"] + b"," + answer
        return Step(answer, None)

    def _last(self, message: bytes) -> Step:
        found = _FINAL.fullmatch(message)
        try:
            fits = found is not None and b64decode(found["channel"], validate=True) == self._header
            proof = b64decode(found["proof"], validate=True) if found is not None else b""
        except NotBase64:
            fits = False
        # librdkafka before 2.6.1 puts its own nonce there twice. What counts is ours, as in Kafka: it is new each time.
        if found is None or not fits or not found["nonce"].endswith(self._nonce):
            raise LoginFailed(f"not a last message of {self._mechanism}")
        known = self._known
        signed = self._said + b"," + found["unproved"]
        if known is None or not _proves(known, signed, proof):
            raise LoginFailed("wrong user or password")
        return Step(b"v=" + b64encode(hmac.digest(known.server_key, signed, self._hash)), self._user)


class Bearer(NamedTuple):
    token: str
    acting_as: str


class BearerExchange:
    """The client sends its token. Who checks it tells the exchange: a token that is refused is answered with the reason
    first, and the login fails when the client has acknowledged that."""

    claimed: Final = ""
    """A refused token does not say who shows it."""
    refused = ""

    def token(self, message: bytes) -> Bearer:
        if self.refused:
            raise LoginFailed(self.refused)
        found = _BEARER.fullmatch(message)
        try:
            given = [] if found is None else found["pairs"].decode().split("\1")
            acting_as = "" if found is None else _unescaped((found["as"] or b"").decode())
        except ValueError:
            given, acting_as = [], ""
        shown = [each[len("auth=") :] for each in given if each.startswith("auth=")]
        if len(shown) != 1 or shown[0][:7].lower() != "bearer ":
            raise LoginFailed("not a first message of OAUTHBEARER")
        return Bearer(shown[0][7:].strip(), acting_as)

    def refuse(self, reason: str) -> bytes:
        """Returns the answer for a token that is not right, as Kafka gives it."""
        self.refused = reason
        return b'{"status":"invalid_token"}'


Exchange = PlainExchange | ScramExchange | BearerExchange


def _proves(credential: Credential, signed: bytes, proof: bytes) -> bool:
    signature = hmac.digest(credential.stored_key, signed, credential.hash)
    if len(proof) != len(signature):
        return False
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(credential.hash, client_key).digest(), credential.stored_key)


def _credential(find: Find, user: str, mechanism: str) -> Credential | None:
    return find(user).get(mechanism)


def _unescaped(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise ValueError(name)
    return name.replace("=2C", ",").replace("=3D", "=")


def new_exchange(mechanism: str, find: Find, salts: bytes) -> Exchange:
    if mechanism == OAUTHBEARER:
        return BearerExchange()
    return PlainExchange(find) if mechanism == PLAIN else ScramExchange(mechanism, find, salts)
