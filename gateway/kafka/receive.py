"""Where a connection's bytes are received, and how frames are cut out of them.

While nothing is pending, bytes land in one scratch buffer that all connections of the process share: the loop reads a
socket and hands over what it read in one step, so nobody else writes in between. What is left of it after the whole
frames were handled is copied into a buffer of the connection's own, and the rest of that frame is received straight
behind it. A connection that sends frames larger than the scratch goes on receiving into its own buffer: one copy,
kernel to user.

- A frame's length is checked before anything is made of it.
- Only a produce request may be longer than `MAX_OTHER_BYTES`: the others are copied and decoded whole.
- A buffer grows with what has arrived, at most doubling: announcing 100 MiB costs the sender 50 MiB before it costs
  us 100.
- A frame is a view that stays valid until the next call.
"""

from struct import Struct
from typing import Final

from gateway.kafka.buffers import Buffers
from gateway.kafka.errors import DecodeError

SCRATCH_BYTES: Final = 256 * 1024
FIRST_BYTES: Final = 16 * 1024
KEEP_BYTES: Final = 4 * 1024 * 1024
MAX_OTHER_BYTES: Final = 16 * 1024 * 1024
_LENGTH: Final = Struct(">i")
_API_KEY: Final = Struct(">h")
PRODUCE: Final = 0

_scratch: Final = memoryview(bytearray(SCRATCH_BYTES))


class ReceiveBuffer:
    __slots__ = ("_buffers", "_end", "_max_frame_bytes", "_own", "_start", "_view", "address", "wanted_bytes")

    def __init__(self, max_frame_bytes: int, buffers: Buffers) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffers = buffers
        self.address = ""
        self._view = _scratch
        self._own: memoryview | None = None
        self._start = 0
        self._end = 0
        self.wanted_bytes = 0
        """Of the frame being received: its whole length, prefix included; 0 until that is known."""

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._view[self._end :] if self._end else self._view

    def filled(self, nbytes: int) -> None:
        self._end += nbytes

    def next_frame(self) -> memoryview | None:
        start = self._start
        available = self._end - start
        if available < 4:
            self.wanted_bytes = 0
            return None
        (length,) = _LENGTH.unpack_from(self._view, start)
        if not 0 <= length <= self._max_frame_bytes:
            raise DecodeError(f"a request of {length} bytes", hint=f"0 to {self._max_frame_bytes} are allowed")
        if length > MAX_OTHER_BYTES and available >= 6 and _API_KEY.unpack_from(self._view, start + 4)[0] != PRODUCE:
            raise DecodeError(f"a request of {length} bytes", hint=f"all but Produce have at most {MAX_OTHER_BYTES}")
        if available < length + 4:
            self.wanted_bytes = length + 4
            return None
        self.wanted_bytes = 0
        self._start = start + length + 4
        return self._view[start + 4 : self._start]

    def settle(self) -> int:
        """After frames were taken: leave the shared scratch, and make room for the rest of a frame.

        How many bytes are here that no frame was made of.
        """
        pending = self._end - self._start
        if pending == 0:
            self._start = self._end = 0
            if self._view is self._own and len(self._own) <= SCRATCH_BYTES:
                self._view = _scratch
            if self._own is not None and (len(self._own) > KEEP_BYTES or self._buffers.scarce):
                self.release()
        elif self._view is not self._own:
            self._to_own(pending)
        elif self._end == len(self._view) or self._start + self.wanted_bytes > len(self._view):
            if self._start:
                self._view[:pending] = self._view[self._start : self._end]
                self._start, self._end = 0, pending
            if pending == len(self._view):
                self._to_own(pending)
        return pending

    def _to_own(self, pending: int) -> None:
        """Into an own buffer that has room for the frame, as far as what has arrived of it earns."""
        size = max(FIRST_BYTES, min(max(self.wanted_bytes, pending + 4), 2 * pending))
        kept = len(self._own) if self._own is not None else 0
        target = self._own
        if target is None or kept < size or target is self._view:
            if size > FIRST_BYTES:
                self._buffers.receive(self.address, size - kept)
            else:
                self._buffers.receiving.hold(self.address, size - kept)
            target = memoryview(bytearray(size))
        target[:pending] = self._view[self._start : self._end]
        self._view = self._own = target
        self._start, self._end = 0, pending

    @property
    def is_shared(self) -> bool:
        """What was received last is in the scratch: who keeps it for longer copies it."""
        return self._view is not self._own

    def release(self) -> None:
        """Back to the shared scratch; whatever was pending is gone."""
        if self._own is not None:
            self._buffers.receiving.give_back(self.address, len(self._own))
        self._view, self._own = _scratch, None
        self._start = self._end = 0

    def shrink(self) -> None:
        """Nothing has come for a while: keep no empty buffer."""
        if self._end == self._start:
            self.release()
