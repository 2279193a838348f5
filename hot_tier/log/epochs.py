"""Where each leader epoch starts in a log: what tells two replicas where their histories part.

Epochs and their start offsets both rise strictly. The list is saved in `leader-epochs` before the first batch of
a new epoch counts as synced; what a crash leaves out is found again in the batches themselves.
"""

from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset
from hot_tier.log.names import LEADER_EPOCHS
from hot_tier.log.sealed_text import read_sealed_text, write_sealed_text

History = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Where epochs start and which they are, as the kernels take it."""

_NOTHING: Final = np.empty(0, np.int64)
NO_HISTORY: Final[History] = (_NOTHING, _NOTHING)
"""Any epoch may be."""


class LeaderEpochs:
    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or ()]
        self._starts = [start for _, start in entries or ()]
        self._history: History | None = None

    @property
    def latest(self) -> LeaderEpoch:
        return LeaderEpoch(self._epochs[-1]) if self._epochs else NO_EPOCH

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def history(self) -> History:
        history = self._history
        if history is None:
            history = self._history = (np.array(self._starts, np.int64), np.array(self._epochs, np.int64))
        return history

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes a batch of `epoch` at `start_offset`. Returns whether it starts a new epoch."""
        if self._epochs and epoch <= self._epochs[-1]:
            return False
        self._history = None
        while self._starts and self._starts[-1] >= start_offset:
            # The epoch before wrote nothing: its place is the new one's.
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def end_of(self, epoch: int, log_end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest epoch at or below `epoch`, and where it ends; (-1, -1) if `epoch` is not known here yet.

        Below the first epoch it returns `epoch` itself, which ends where the log's history begins.
        """
        if not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, Offset(-1)
        if epoch < self._epochs[0]:
            return LeaderEpoch(epoch), Offset(self._starts[0])
        at = bisect_right(self._epochs, epoch) - 1
        end = self._starts[at + 1] if at + 1 < len(self._starts) else log_end_offset
        return LeaderEpoch(self._epochs[at]), Offset(end)

    def epoch_at(self, offset: int) -> LeaderEpoch:
        at = bisect_right(self._starts, offset) - 1
        return LeaderEpoch(self._epochs[at]) if at >= 0 else NO_EPOCH

    def truncate_end(self, offset: int) -> bool:
        """Forgets epochs that start at or after `offset`."""
        keep = bisect_left(self._starts, offset)
        changed = keep < len(self._starts)
        self._history = None
        del self._epochs[keep:], self._starts[keep:]
        return changed

    def truncate_start(self, offset: int) -> bool:
        """Forgets epochs that end at or before `offset`; the one that holds it starts there now."""
        drop = bisect_right(self._starts, offset) - 1
        if drop < 0 or self._starts[drop] == offset == self._starts[0]:
            return False
        del self._epochs[:drop], self._starts[:drop]
        self._starts[0] = offset
        self._history = None
        return True

    def write(self) -> bytes:
        return write_sealed_text(LEADER_EPOCHS, [f"{epoch} {start}" for epoch, start in self.entries()])


def read_epochs(content: bytes) -> LeaderEpochs | None:
    lines = read_sealed_text(LEADER_EPOCHS, content)
    if lines is None:
        return None
    return LeaderEpochs([(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)])
