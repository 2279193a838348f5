"""A broker's disk: what it holds of each partition, and what of that survives.

A killed process leaves everything it wrote. When the power goes only what was synced is sure to stay; of the rest a
part from the front may be there, because recovery cuts a log at the first batch that is not whole. Each record is a
batch of its own. The history of leader epochs and the producers' sequences are the real ones.
"""

import random
from typing import NamedTuple

from hot_tier.ids import NO_PRODUCER, LeaderEpoch, Offset
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.producers import ProducerState
from hot_tier.record.batch import BatchHeader


class Record(NamedTuple):
    epoch: LeaderEpoch
    value: int
    producer: int = NO_PRODUCER
    sequence: int = -1


class Log:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.log_start_offset = Offset(0)
        self.synced = Offset(0)
        self.cuts = 0
        """How often its end was taken away: a sync that was under way then says nothing."""
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()

    @property
    def local_log_start_offset(self) -> Offset:
        return self.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self.log_start_offset + len(self.records))

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.epochs.latest

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_of(epoch, self.log_end_offset)

    def at(self, offset: int) -> Record:
        return self.records[offset - self.log_start_offset]

    def read(self, start: int, end: int) -> list[Record]:
        return self.records[start - self.log_start_offset : end - self.log_start_offset]

    def stored_at(self, producer: int, sequence: int) -> int | None:
        """Where a batch that comes again is; OutOfOrderSequence when it cannot be next."""
        header = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, producer, 0, sequence, 1)
        stored = self.producers.check(header)
        return None if stored is None else stored.base_offset

    def append(self, record: Record) -> Offset:
        offset = self.log_end_offset
        self.records.append(record)
        self.epochs.assign(record.epoch, offset)
        if record.producer != NO_PRODUCER:
            self.producers.wrote(record.producer, 0, record.sequence, offset, offset, 0, 0)
        return offset

    def truncate_to(self, offset: Offset) -> None:
        """Certain at once, as the real cut is."""
        self.cuts += 1
        del self.records[offset - self.log_start_offset :]
        self.synced = min(self.synced, offset)
        self.epochs.truncate_end(offset)
        self._learn_producers()

    def reset_to(self, offset: Offset) -> None:
        self.cuts += 1
        self.records.clear()
        self.log_start_offset = self.synced = offset
        self.epochs = LeaderEpochs()
        self._learn_producers()

    def trim_to(self, offset: Offset) -> None:
        """The log starts here from now on; what producers wrote before stays known, as in the real snapshots."""
        if self.log_start_offset < offset <= self.log_end_offset:
            del self.records[: offset - self.log_start_offset]
            self.log_start_offset = offset
            self.synced = max(self.synced, offset)
            if self.epochs.latest >= 0:
                self.epochs.truncate_start(offset)

    def lose_unsynced(self, chance: random.Random) -> None:
        self.truncate_to(Offset(chance.randint(self.synced, self.log_end_offset)))
        self.synced = self.log_end_offset

    def _learn_producers(self) -> None:
        self.producers = ProducerState()
        for offset, record in enumerate(self.records, self.log_start_offset):
            if record.producer != NO_PRODUCER:
                self.producers.wrote(record.producer, 0, record.sequence, offset, offset, 0, 0)


class Disk:
    """`data_id` names the directory; `tail_doubtful` is what a broker finds out by comparing boot ids."""

    def __init__(self, data_id: int, sync_ms: float) -> None:
        self.data_id = data_id
        self.tail_doubtful = False
        self.logs: dict[int, Log] = {}
        self._usual_sync_ms = self.sync_ms = sync_ms

    def log(self, partition: int) -> Log:
        return self.logs.setdefault(partition, Log())

    def lose_power(self, chance: random.Random) -> None:
        self.tail_doubtful = True
        for log in self.logs.values():
            log.lose_unsynced(chance)

    def recover(self) -> None:
        """A slow disk is as fast again as it was."""
        self.sync_ms = self._usual_sync_ms

    def wipe(self) -> None:
        self.data_id += 1
        self.tail_doubtful = False
        self.logs.clear()
