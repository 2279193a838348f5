"""What must hold, whatever goes wrong. Judged from what clients were told, what replicas committed, and what is stored.

The numbers are those of the project's list of invariants:
 1 acknowledged means readable at its offset          2 one offset, one value, for ever      3 no gaps
 4 a later send gets a higher offset                   5 a refused send is never read         6 each sequence once
 7 a consumer neither skips nor goes back              8 the high watermark never goes back within an epoch
10 epochs rise; one process acknowledges per epoch    11 replicas are equal in the end       16 service returns

A violation is raised where it is seen, so that the trace ends with its cause.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from hot_tier.cluster.model import NO_NODE, PartitionState
from hot_tier.ids import NO_PRODUCER, LeaderEpoch, NodeId, Offset
from tests.sim.disk import Log, Record
from tests.sim.world import World


class Violation(AssertionError):
    pass


class Checker:
    def __init__(self, world: World) -> None:
        self._world = world
        self.committed_records: dict[int, dict[int, Record]] = defaultdict(dict)
        self.told: dict[int, dict[int, int]] = defaultdict(dict)
        """Acknowledged values by partition and offset."""
        self.refused: set[int] = set()
        self.acks = 0
        self.reads = 0
        self.cold_reads = 0
        self.elections = 0
        self._committed_in: dict[int, dict[int, int]] = defaultdict(dict)
        self.committed_ends: dict[int, int] = defaultdict(int)
        self._leaders: dict[tuple[int, int], tuple[NodeId, int]] = {}
        self._high_watermarks: dict[tuple[NodeId, int, int], int] = {}

    def _violation(self, what: str) -> Violation:
        found = Violation(what)
        self._world.failed = self._world.failed or found
        return found

    # What the store says

    def stored(self, key: str, before: Any, after: Any) -> None:
        if not isinstance(after, PartitionState):
            return
        if after.leader != NO_NODE and after.leader not in after.isr:
            raise self._violation(f"10: {key} is led from outside the in-sync set: {after}")
        if not set(after.isr) <= set(after.replicas):
            raise self._violation(f"10: {key} has strangers in sync: {after}")
        if before is None:
            return
        rises = after.leader_epoch - before.leader_epoch
        if rises < 0 or (after.leader != before.leader and rises == 0):
            raise self._violation(f"10: {key} went from {before} to {after}")
        self.elections += rises

    # What brokers do

    def leads(self, node: NodeId, incarnation: int, partition: int, epoch: LeaderEpoch, log: Log) -> None:
        first = self._leaders.setdefault((partition, epoch), (node, incarnation))
        if first != (node, incarnation):
            raise self._violation(f"10: epoch {epoch} of {partition} is led by {first} and by {(node, incarnation)}")
        for offset, record in self.committed_records[partition].items():
            # A broker that was cut off may begin an epoch that is over; it need not have what was committed after it.
            if offset < log.local_log_start_offset or self._committed_in[partition].get(offset, epoch) >= epoch:
                continue
            if offset >= log.log_end_offset or log.at(offset) != record:
                raise self._violation(f"1: broker {node} leads {partition} in {epoch} without {record} at {offset}")

    def committed(self, node: NodeId, partition: int, epoch: LeaderEpoch, end: Offset, log: Log) -> None:
        before = self._high_watermarks.get((node, partition, epoch), log.log_start_offset)
        self._high_watermarks[node, partition, epoch] = end
        if not before <= end <= log.log_end_offset:
            raise self._violation(
                f"8: high watermark of {partition} from {before} to {end}, log end {log.log_end_offset}"
            )
        for offset in range(max(before, log.local_log_start_offset), end):
            self._one_value(partition, offset, log.at(offset))
            self._committed_in[partition].setdefault(offset, epoch)
        self.committed_ends[partition] = max(self.committed_ends[partition], end)

    def in_sync(self, node: NodeId, partition: int, log: Log | None, durable_end: int) -> None:
        """A member of the in-sync set may be the next leader: it must hold, durably, all that is committed."""
        last = self.committed_ends[partition] - 1
        if last < 0 or (log is not None and last < log.local_log_start_offset):
            return
        if log is None or durable_end <= last or log.at(last) != self.committed_records[partition][last]:
            record = self.committed_records[partition][last]
            raise self._violation(f"1: broker {node} is in sync with {partition} without {record} at {last}")

    def acked(self, node: NodeId, incarnation: int, partition: int, epoch: LeaderEpoch, offset: Offset) -> None:
        if self._leaders.get((partition, epoch)) != (node, incarnation):
            raise self._violation(f"10: broker {node} acknowledges {partition} in {epoch}, which it does not lead")

    # What clients see

    def was_acked(self, partition: int, offset: int, value: int, at_least: int) -> None:
        self.acks += 1
        if offset < at_least:
            raise self._violation(f"4: {value} got {offset} in {partition}, sent after {at_least - 1} was acknowledged")
        if self.told[partition].setdefault(offset, value) != value:
            raise self._violation(
                f"2: {value} acknowledged at {offset} of {partition}, {self.told[partition][offset]} before"
            )
        stored = self.committed_records[partition].get(offset)
        if stored is None or stored.value != value:
            raise self._violation(f"1: {value} acknowledged at {offset} of {partition}, {stored} is committed there")

    def was_refused(self, value: int) -> None:
        self.refused.add(value)

    def was_read(self, partition: int, offset: int, record: Record) -> None:
        self.reads += 1
        self._one_value(partition, offset, record)
        if record.value in self.refused:
            raise self._violation(f"5: {record} was refused and is at {offset} of {partition}")

    def end_of_acked(self, partition: int) -> int:
        return max(self.told[partition], default=-1) + 1

    def _one_value(self, partition: int, offset: int, record: Record) -> None:
        known = self.committed_records[partition].setdefault(offset, record)
        if known != record:
            raise self._violation(f"2: {partition} has {record} at {offset}, it was {known}")

    # What is there in the end

    def ends(self, partition: int, logs: Collection[Log]) -> None:
        """All replicas, after everything has healed and come to rest."""
        first, *others = logs
        for log in others:
            start = max(log.local_log_start_offset, first.local_log_start_offset)
            if log.read(start, log.log_end_offset) != first.read(start, first.log_end_offset):
                raise self._violation(f"11: the replicas of {partition} differ")
        for offset, value in self.told[partition].items():
            if offset >= first.local_log_start_offset and first.at(offset).value != value:
                raise self._violation(f"1: {partition} has {first.at(offset)} at {offset}, {value} was acknowledged")
        seen: set[tuple[int, int]] = set()
        last: dict[int, int] = {}
        for record in first.read(first.local_log_start_offset, first.log_end_offset):
            if record.value in self.refused:
                raise self._violation(f"5: {record} was refused and is stored")
            if record.producer == NO_PRODUCER:
                continue
            name = (record.producer, record.sequence)
            if name in seen:
                raise self._violation(f"6: {record} is stored twice")
            if record.sequence != last.get(record.producer, record.sequence - 1) + 1:
                raise self._violation(f"3: {record} follows {last[record.producer]}")
            seen.add(name)
            last[record.producer] = record.sequence
