"""The groups of one partition of the offsets topic: the machine that the journal runs.

It owns the map of groups, and the groups that could not be read back. `coordinator` fills and empties it;
`group_members` and `group_offsets` change the groups in it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.coordinators.errors import CoordinatorNotAvailable
from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.group import Group
from gateway.coordinators.groups.states import State
from gateway.coordinators.journal.writer import JournalWriter
from gateway.coordinators.offsets_topic.decoding import LoadedGroup
from gateway.coordinators.offsets_topic.values import CommittedOffset
from hot_tier.ids import TopicPartition

READ_BACK: Final = 0
"""The number of a write that an earlier leader has done. All writes here have greater ones."""
MAX_PRODUCERS: Final = 100_000
"""Of how many producers the newest connection is known. The one that has been quiet for longest is forgotten."""


class PendingCommit(NamedTuple):
    """An offset in an open transaction."""

    number: int
    """That of its write (`JournalWriter.write`), or READ_BACK."""
    offset: CommittedOffset


@dataclass(slots=True, eq=False)
class GroupEntry:
    """A group's machine and what the machine does not know: its offsets."""

    group_id: str
    home: "GroupMap"
    group: Group
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[TopicPartition] = field(default_factory=Counter)
    """Commits that are written but not committed yet, by partition."""
    pending: dict[TopicPartition, dict[int, PendingCommit]] = field(default_factory=dict)
    """Commits in open transactions, by partition and producer id. They are newer than `offsets`."""
    empty_since_ms: int = 0
    """When the last member left; 0 if there never was one. It is used only while the group is Empty."""
    _assigned: tuple[int, frozenset[TopicPartition]] = (-1, frozenset())

    @property
    def classic(self) -> ClassicGroup:
        """The group, as a group of the classic protocol. Today every group is one."""
        assert isinstance(self.group, ClassicGroup)
        return self.group

    def known_partitions(self) -> set[TopicPartition]:
        """Returns the partitions that have an offset here, or may get one by what is written already."""
        return {*self.offsets, *self.in_flight, *self.pending}

    def decided(self, partitions: Iterable[TopicPartition], number: int) -> None:
        """Forgets pending commits of these partitions that are older than the write `number`: it replaces them."""
        for tp in partitions:
            of_tp = self.pending.get(tp, {})
            for producer_id in [each for each, commit in of_tp.items() if commit.number < number]:
                del of_tp[producer_id]
            if not of_tp:
                self.pending.pop(tp, None)

    def read_partitions(self) -> frozenset[TopicPartition]:
        """Returns the partitions that members read, as of the last stable generation. Computed once per generation."""
        if not self.group.size:
            return frozenset()
        if self.group.state is State.STABLE and self._assigned[0] != self.group.generation:
            self._assigned = self.group.generation, self.group.read_partitions()
        return self._assigned[1]


@dataclass(slots=True, eq=False)
class GroupMap:
    writer: JournalWriter
    groups: dict[str, GroupEntry] = field(default_factory=dict)
    damaged: dict[str, LoadedGroup] = field(default_factory=dict)
    open: dict[int, set[GroupEntry]] = field(default_factory=dict)
    """The groups that each open transaction has committed offsets of, by producer id."""
    since_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    was_read_back: bool = False
    _connected_s: dict[int, float] = field(default_factory=dict)
    """When the newest connection of each producer began that has committed here in a transaction."""

    def check_readable(self, group_id: str) -> None:
        """Raises CoordinatorNotAvailable if the stored state of the group could not be read."""
        damaged = self.damaged.get(group_id)
        if damaged is not None:
            raise CoordinatorNotAvailable(
                f"the stored state of this group is damaged: {damaged.damage}",
                where=group_id,
                hint="delete the group to start over",
            )

    def is_late(self, producer_id: int, connected_s: float) -> bool:
        """Returns whether a producer has left the connection that began then: it has used a newer one, or had to look
        for this broker since. The transaction that its request is about may be over, and another one open."""
        known_s = self._connected_s.pop(producer_id, self.since_s if self.was_read_back else 0.0)
        self._connected_s[producer_id] = max(known_s, connected_s)
        if len(self._connected_s) > MAX_PRODUCERS:
            del self._connected_s[next(iter(self._connected_s))]
        return connected_s < known_s

    def pend(
        self, entry: GroupEntry, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset], number: int
    ) -> None:
        for tp, offset in offsets.items():
            entry.pending.setdefault(tp, {})[producer_id] = PendingCommit(number, offset)
        self.open.setdefault(producer_id, set()).add(entry)

    def end_transaction(self, producer_id: int, committed: bool) -> int:
        """Applies or drops what a transaction has committed. Returns how many offsets were applied."""
        applied = 0
        for entry in self.open.pop(producer_id, ()):
            for tp in [tp for tp, commits in entry.pending.items() if producer_id in commits]:
                number, offset = entry.pending[tp].pop(producer_id)
                if committed:
                    entry.offsets[tp] = offset
                    applied += 1
                entry.decided([tp], number if committed else 0)
            self.drop_if_vacant(entry)
        return applied

    def drop_if_vacant(self, entry: GroupEntry) -> None:
        """Forgets a group that holds nothing and was never written."""
        vacant = entry.group.is_vacant and not (entry.offsets or entry.in_flight or entry.pending)
        if vacant and self.groups.get(entry.group_id) is entry:
            del self.groups[entry.group_id]
