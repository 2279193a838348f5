"""Keys for the HTTP API in cluster metadata: who a key acts as, until when, and for which operations.

A key is `tlk_<id>_<secret>`. The secret has 256 random bits and is shown once; only its hash is kept. Nobody guesses
such a secret, so the hash needs no salt and no iterations.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import orjson

from hot_tier.errors import CorruptMetadata

PREFIX: Final = "api-keys/"
MARK: Final = "tlk_"
MAX_KEYS_OF_USER: Final = 100
MAX_KEYS: Final = 20_000

OPERATIONS: Final = frozenset(
    {
        "read",
        "write",
        "create",
        "delete",
        "alter",
        "describe",
        "cluster_action",
        "describe_configs",
        "alter_configs",
        "idempotent_write",
    }
)
"""What a key can be limited to: Kafka's operations."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    user: str
    hash: bytes
    created_ms: int
    expires_ms: int | None
    """None: never."""
    scope: frozenset[str] | None
    """The operations that it may be used for. None: all that its user may do."""

    def accepts(self, secret: str) -> bool:
        return hmac.compare_digest(_hash(secret), self.hash)


class NewKey(NamedTuple):
    kept: ApiKey
    shown: str
    """The key itself."""


def make_key(user: str, created_ms: int, expires_ms: int | None, scope: frozenset[str] | None) -> NewKey:
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    return NewKey(ApiKey(key_id, user, _hash(secret), created_ms, expires_ms, scope), f"{MARK}{key_id}_{secret}")


def split_key(shown: str) -> tuple[str, str] | None:
    """Returns the id and the secret. Returns None if it cannot be a key."""
    key_id, _, secret = shown.removeprefix(MARK).partition("_")
    return (key_id, secret) if shown.startswith(MARK) and secret and shown.isascii() else None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def of_user(user: str) -> str:
    """Returns the prefix under which the store has all API keys of a user."""
    return f"{PREFIX}{quote(user, safe='')}/"


def key_of(user: str, key_id: str) -> str:
    return of_user(user) + key_id


def parse_key(key: str) -> tuple[str, str]:
    """Returns the user and the id."""
    user, _, key_id = key.removeprefix(PREFIX).partition("/")
    return unquote(user), key_id


def encode(api_key: ApiKey) -> bytes:
    return orjson.dumps(
        {
            "hash": b64encode(api_key.hash).decode(),
            "created_ms": api_key.created_ms,
            "expires_ms": api_key.expires_ms,
            "scope": None if api_key.scope is None else sorted(api_key.scope),
        }
    )


def decode(key: str, data: bytes) -> ApiKey:
    """Raises CorruptMetadata. A field that limits the key cannot be left out."""
    user, key_id = parse_key(key)
    try:
        said = orjson.loads(data)
        expires_ms, scope = said["expires_ms"], said["scope"]
        return ApiKey(
            key_id,
            user,
            b64decode(said["hash"], validate=True),
            int(said["created_ms"]),
            None if expires_ms is None else int(expires_ms),
            None if scope is None else frozenset(map(str, scope)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptMetadata(f"not an API key: {error!r}", where=key) from None
