"""The public keys of an identity provider: a JWK set (RFC 7517), read with care.

Keys that cannot check signatures of the allowed kinds are passed over: secret ones (`oct`), those for encryption, weak
ones, and kinds that we do not know. So no public key is ever used as a secret. Private parts are not read.
"""

from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import joserfc.errors as jose_errors
import joserfc.jwk as jwk
import orjson

MAX_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
MAX_KID: Final = 256
RSA_BITS: Final = range(2048, 8193)

PUBLIC_PARTS: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}
FAMILIES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key that an algorithm needs, by its first two letters."""


class BadKeySet(Exception):
    """It is not a JWK set, or has no key that can be used."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    kid: str | None
    family: str
    algorithm: str | None
    """The only algorithm that the key is for; None: any of its family."""
    key: "jwk.Key"

    def fits(self, algorithm: str) -> bool:
        return self.family == FAMILIES[algorithm[:2]] and self.algorithm in (None, algorithm)


class KeySet:
    def __init__(self, keys: Sequence[PublicKey]) -> None:
        self.keys = tuple(keys)

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """Returns the key that signed. Without a key id, it is the only one that fits."""
        fitting = [each for each in self.keys if each.fits(algorithm) and kid in (None, each.kid)]
        return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None


def read_key_set(data: bytes) -> KeySet:
    """Raises BadKeySet."""
    if len(data) > MAX_BYTES:
        raise BadKeySet(f"a JWK set of more than {MAX_BYTES} bytes")
    try:
        said = orjson.loads(data)["keys"]
    except (ValueError, TypeError, KeyError):
        raise BadKeySet("not a JWK set: it is a JSON object with the member `keys`") from None
    if not isinstance(said, list) or len(said) > MAX_KEYS:
        raise BadKeySet(f"not a JWK set: `keys` is a list of at most {MAX_KEYS} keys")
    found = [key for each in said if (key := _read_key(each)) is not None]
    if not found:
        raise BadKeySet("the JWK set has no public key of the kinds RSA (2048 bits and more), EC or OKP for signatures")
    return KeySet(found)


def _read_key(said: Any) -> PublicKey | None:
    if not isinstance(said, dict) or said.get("use", "sig") != "sig" or said.get("kty") not in PUBLIC_PARTS:
        return None
    parts = PUBLIC_PARTS[said["kty"]]
    kid, algorithm = said.get("kid"), said.get("alg")
    texts = {name: said[name] for name in parts if isinstance(said.get(name), str)}
    if len(texts) < len(parts) or not isinstance(kid, str | None) or len(kid or "") > MAX_KID:
        return None
    try:
        if said["kty"] == "RSA" and _bits(texts["n"]) not in RSA_BITS:
            return None
        key = jwk.import_key(dict(texts))
    except (jose_errors.JoseError, ValueError, TypeError, KeyError):
        return None
    return PublicKey(kid, said["kty"], algorithm if isinstance(algorithm, str) else None, key)


def _bits(number: str) -> int:
    return int.from_bytes(urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
