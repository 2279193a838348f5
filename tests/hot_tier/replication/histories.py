"""A log reduced to what replication decides on: one leader epoch per offset."""

from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset
from hot_tier.log.epochs import LeaderEpochs


class EpochLog:
    def __init__(self, *epochs: int, start: int = 0) -> None:
        """The epoch of each record, from offset `start` on."""
        self.log_start_offset = self.local_log_start_offset = Offset(start)
        self.records = list(epochs)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.local_log_start_offset + len(self.records))

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.records[-1]) if self.records else NO_EPOCH

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        epochs = LeaderEpochs()
        for offset, written in enumerate(self.records, self.local_log_start_offset):
            epochs.assign(written, offset)
        return epochs.end_of(epoch, self.log_end_offset)

    def cut(self, offset: int) -> None:
        del self.records[offset - self.local_log_start_offset :]
