"""How much memory the connections of a listener hold, so that no number of slow clients can take all of it.

Two sums: what is being received (requests not whole yet) and what clients do not take (responses unsent). A single
connection is bounded by its own limits; these bound the sum. Over the first limit, or over an address's share of it, a
connection that needs more is closed; over the second, fetches answer with little until clients have read what they
asked for.
"""

from typing import Final

from gateway.budget import Budget
from gateway.kafka.errors import DecodeError

SMALL_ANSWER_BYTES: Final = 64 * 1024


class Buffers:
    __slots__ = ("max_unsent_bytes", "receiving", "unsent_bytes")

    def __init__(self, max_receiving_bytes: int, max_unsent_bytes: int) -> None:
        self.receiving = Budget("requests being received", max_receiving_bytes)
        self.max_unsent_bytes = max_unsent_bytes
        self.unsent_bytes = 0

    @property
    def receiving_bytes(self) -> int:
        return self.receiving.used

    def receive(self, address: str, more_bytes: int) -> None:
        """They are held from now on. DecodeError where there is no room for them."""
        if not self.receiving.take(address, more_bytes):
            raise DecodeError(
                "too much is being received, from this address or from all clients together",
                where=f"{self.receiving.held_by(address)} of {self.receiving.used} bytes from {address}",
                hint="raise kafka.max_receiving_bytes, or send smaller requests",
            )

    @property
    def scarce(self) -> bool:
        """Half is in use: keep no buffer only because it may be needed again, and wait for no slow request."""
        return self.receiving.used * 2 > self.receiving.max_bytes

    def answer_bytes(self, wanted: int) -> int:
        """How much of what a client would take may be read into memory for it now."""
        left = self.max_unsent_bytes - self.unsent_bytes
        return min(wanted, max(left, SMALL_ANSWER_BYTES))
