"""After how many bytes the kernel wakes the loop for a connection with TLS (`SO_RCVLOWAT`).

A client may send a frame in many small pieces: librdkafka makes two TLS records of each record of an uncompressed
batch, and sends each by itself. A broker with little to do would be woken for each of them. That costs the broker more
than the bytes do, and the client as well, in whose system call the waking takes place. So while a frame is incomplete,
the loop sleeps until most of the rest is there. The end of a connection always wakes it.

A part of what is missing may be here already: decryption waits for the end of a TLS record. This part is at most one
record, so as much less is waited for.
"""

import socket
from asyncio import BaseTransport
from typing import Final

MOST_BYTES: Final = 32 * 1024
"""Half of what the kernel of a new connection takes while nobody reads: the client can go on sending."""
LEAST_BYTES: Final = 4 * 1024
TLS_RECORD_BYTES: Final = 16 * 1024 + 256 + 5
"""The longest record: its text, what a cipher adds, and its header."""


class WakeUps:
    __slots__ = ("_after", "_socket")

    def __init__(self, transport: BaseTransport) -> None:
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._after = 1

    def expect(self, missing_bytes: int) -> None:
        """Called when all received bytes are handled. `missing_bytes` complete a frame; 0 if none has begun."""
        after = min(missing_bytes - TLS_RECORD_BYTES, MOST_BYTES)
        if after < LEAST_BYTES:
            after = 1
        if after != self._after:
            self._after = after
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, after)
