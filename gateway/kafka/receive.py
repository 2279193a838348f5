"""Where a connection's bytes are received, and how they are cut into frames.

Bytes are received into one scratch buffer that all connections of the process share: the loop reads a socket and hands
over the bytes in one step, so no other connection writes in between. When the whole frames are handled, the rest is
copied into the connection's own buffer, and before the next bytes back to the front of the scratch. So each read takes
as much as there is, also by TLS, and not what the last frame left room for.
The rest of a frame that is large goes directly into the connection's own buffer: one copy, kernel to user.

- A frame's length is checked before memory is allocated for it.
- Only a produce request may be longer than `MAX_OTHER_BYTES`: the others are copied and decoded whole.
- A buffer grows with what has arrived, at most doubling: a client that announces 100 MiB must send 50 MiB before it
  costs us 100.
- A frame is a view that stays valid until the next call.
"""

from struct import Struct
from typing import Final

from gateway.kafka.buffers import Buffers
from gateway.kafka.errors import DecodeError
from gateway.kafka.wake_ups import WakeUps

SCRATCH_BYTES: Final = 256 * 1024
FIRST_BYTES: Final = 16 * 1024
LARGE_BYTES: Final = SCRATCH_BYTES // 2
KEEP_BYTES: Final = 4 * 1024 * 1024
MAX_OTHER_BYTES: Final = 16 * 1024 * 1024
FOLD_BYTES: Final = 64 * 1024
"""The most that is copied back to the scratch: a client that sends byte after byte pays no more than this for each."""
_LENGTH: Final = Struct(">i")
_API_KEY: Final = Struct(">h")
PRODUCE: Final = 0

_scratch: Final = memoryview(bytearray(SCRATCH_BYTES))


class ReceiveBuffer:
    __slots__ = (
        *("_buffers", "_end", "_folded", "_own", "_start", "_view", "_wake_ups"),
        *("address", "max_frame_bytes", "wanted_bytes"),
    )

    def __init__(self, max_frame_bytes: int, buffers: Buffers) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffers = buffers
        self.address = ""
        self._wake_ups: WakeUps | None = None
        self._view = _scratch
        self._own: memoryview | None = None
        self._start = 0
        self._end = 0
        self._folded = False
        """The pending bytes are also at the front of the scratch, and the next ones will be behind them."""
        self.wanted_bytes = 0
        """The whole length of the frame being received, with its prefix; 0 until it is known."""

    def follow(self, address: str, wake_ups: WakeUps | None) -> None:
        """Called once it is known where the bytes come from."""
        self.address, self._wake_ups = address, wake_ups

    def room(self) -> memoryview:
        """Returns the buffer for the next bytes."""
        if not self._end:
            return self._view
        pending = self._end - self._start
        self._folded = pending <= FOLD_BYTES and self.wanted_bytes <= LARGE_BYTES
        if not self._folded:
            return self._view[self._end :]
        _scratch[:pending] = self._view[self._start : self._end]
        return _scratch[pending:]

    def filled(self, nbytes: int) -> None:
        if self._folded:
            self._folded = False
            self._start, self._end = 0, self._end - self._start
            self._view = _scratch
        self._end += nbytes

    def next_frame(self) -> memoryview | None:
        start = self._start
        available = self._end - start
        if available < 4:
            self.wanted_bytes = 0
            return None
        (length,) = _LENGTH.unpack_from(self._view, start)
        if not 0 <= length <= self.max_frame_bytes:
            raise DecodeError(f"the request has {length} bytes", hint=f"0 to {self.max_frame_bytes} are allowed")
        if length > MAX_OTHER_BYTES and available >= 6 and _API_KEY.unpack_from(self._view, start + 4)[0] != PRODUCE:
            raise DecodeError(f"the request has {length} bytes", hint=f"only Produce may exceed {MAX_OTHER_BYTES}")
        if available < length + 4:
            self.wanted_bytes = length + 4
            return None
        self.wanted_bytes = 0
        self._start = start + length + 4
        return self._view[start + 4 : self._start]

    def settle(self) -> int:
        """Called after the frames were taken: leaves the shared scratch, and makes room for the rest of a frame.

        Returns how many bytes are pending.
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
        if self._wake_ups is not None:
            self._wake_ups.expect(self.wanted_bytes - pending if self.wanted_bytes else 0)
        return pending

    def _to_own(self, pending: int) -> None:
        """Moves the pending bytes into the connection's own buffer, whose size is limited by how much has arrived."""
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
        """Whether the last bytes are in the scratch: then they must be copied to be kept longer."""
        return self._view is not self._own

    def release(self) -> None:
        """Goes back to the shared scratch and drops pending bytes."""
        if self._own is not None:
            self._buffers.receiving.give_back(self.address, len(self._own))
        self._view, self._own = _scratch, None
        self._start = self._end = 0

    def shrink(self) -> None:
        """Releases an empty buffer. Called when no bytes have come for a while."""
        if self._end == self._start:
            self.release()
