"""Who sent a request, as its connection has established it. Nobody logs in yet: everyone is anonymous."""

from dataclasses import dataclass
from typing import Final, Literal

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection that did not log in, as Kafka names it."""


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    kind: Literal["anonymous"]
    """How it is known."""
    listener: str
    """The listener that it came in by."""
    address: str
    """The other side's address, without its port."""


def anonymous(listener: str, address: str) -> Principal:
    return Principal(ANONYMOUS, "anonymous", listener, address)
