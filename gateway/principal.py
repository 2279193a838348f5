"""The sender of a request, as it is known: by a certificate, a password, a token, an API key, or not at all."""

from dataclasses import dataclass
from typing import Final, Literal

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection that did not log in, as Kafka names it."""


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    kind: Literal["anonymous", "certificate", "password", "token", "api-key"]
    """How the sender proved who it is."""
    listener: str
    """The listener that it connected to."""
    address: str
    """The other side's address, without its port."""
    scope: frozenset[str] | None = None
    """The operations that its login is limited to, by Kafka's names in small letters. None: no limit."""


def anonymous(listener: str, address: str) -> Principal:
    return Principal(ANONYMOUS, "anonymous", listener, address)
