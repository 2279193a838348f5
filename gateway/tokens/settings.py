"""Settings of logins with tokens: which identity provider, and what a token must say."""

from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from hot_tier.errors import SettingsError

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]

SOURCES: Final = ("discovery_url", "jwks_url", "jwks_file")
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class OauthSettings:
    discovery_url: str = field(
        default="",
        metadata={
            "doc": "Address of the identity provider's description (OpenID Connect Discovery), often "
            "`https://…/.well-known/openid-configuration`. It tells the issuer and where the keys are."
        },
    )
    jwks_url: str = field(default="", metadata={"doc": "Address of the provider's keys (a JWK set), instead."})
    jwks_file: str = field(default="", metadata={"doc": "File with the provider's keys (a JWK set), instead."})
    ca: str = field(
        default="",
        metadata={"doc": "File (PEM) with the authorities that sign the provider's certificate; empty: the system's."},
    )
    issuer: str = field(
        default="",
        metadata={"doc": "What a token must have as `iss`. With `oauth.discovery_url` it may be left empty."},
    )
    audience: tuple[str, ...] = field(
        default=(), metadata={"doc": "A token must have one of these as `aud`, or among them."}
    )
    principal_claim: str = field(default="sub", metadata={"doc": "The claim that is the user's name."})
    algorithms: tuple[Algorithm, ...] = field(
        default=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
        metadata={"doc": "How a token may be signed."},
    )
    clock_skew_ms: int = field(
        default=30_000, metadata={"doc": "By how much the provider's clock and this machine's may differ."}
    )
    refresh_ms: int = field(
        default=3_600_000,
        metadata={"doc": "How often the keys are fetched again, besides when a token names an unknown one.", "min": 1},
    )
    grace_ms: int = field(
        default=14_400_000,
        metadata={"doc": "How long keys are used on after `refresh_ms` when they cannot be fetched or read again."},
    )

    @property
    def enabled(self) -> bool:
        return any(getattr(self, name) for name in SOURCES)

    def __post_init__(self) -> None:
        given = [name for name in SOURCES if getattr(self, name)]
        if not given:
            for name in ("issuer", "audience", "ca"):
                if getattr(self, name):
                    raise SettingsError(
                        f"oauth.{name} has no effect: nothing says where the keys are",
                        hint=f"set one of oauth.{', oauth.'.join(SOURCES)}",
                    )
            return
        if len(given) > 1:
            raise SettingsError(f"oauth.{given[0]} and oauth.{given[1]} contradict each other", hint="give one of them")
        for name in ("discovery_url", "jwks_url"):
            if getattr(self, name):
                check_address(getattr(self, name), f"oauth.{name}")
        if not self.audience or not all(self.audience):
            raise SettingsError(
                f"oauth.{given[0]} needs oauth.audience: tokens for other services would be taken",
                hint="set it to what the provider writes as `aud` into tokens for this cluster",
            )
        if not self.issuer and not self.discovery_url:
            raise SettingsError(
                f"oauth.{given[0]} needs oauth.issuer", hint="set it to what the provider writes as `iss` into tokens"
            )
        if not self.algorithms or not self.principal_claim:
            raise SettingsError("oauth.algorithms and oauth.principal_claim cannot be empty", hint="leave them out")


def check_address(url: str, where: str) -> None:
    """Raises SettingsError if keys from this address could be forged on their way."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise SettingsError(f"{where} cannot be {url!r}", hint="it is https://HOST/PATH") from None
    secure = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    if not secure or not host or parts.username is not None:
        raise SettingsError(f"{where} cannot be {url!r}", hint="it is https://HOST/PATH; http only on this machine")
