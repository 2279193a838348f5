"""How much memory the connections hold, so that slow clients can never take all of it, however many they are.

There are two sums: bytes being received (incomplete requests) and bytes that clients do not read (unsent responses).
Each connection has its own limits; these here limit the sums. Over the first limit, or over an address's share of it, a
connection that needs more is closed. Over the second, fetches answer with little until clients have read their answers.
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
        """Holds more bytes for the address. Raises DecodeError if there is no room for them."""
        if not self.receiving.take(address, more_bytes):
            raise DecodeError(
                "too many bytes are being received, from this address or from all clients together",
                where=f"{self.receiving.held_by(address)} of {self.receiving.used} bytes from {address}",
                hint="raise kafka.max_receiving_bytes, or send smaller requests",
            )

    @property
    def scarce(self) -> bool:
        """Whether more than half is in use: then empty buffers are not kept, and slow requests are not waited for."""
        return self.receiving.used * 2 > self.receiving.max_bytes

    def answer_bytes(self, wanted: int) -> int:
        """Returns how many of the wanted bytes may be read into memory for a client now."""
        left = self.max_unsent_bytes - self.unsent_bytes
        return min(wanted, max(left, SMALL_ANSWER_BYTES))
