"""The groups of one partition of the offsets topic: the machine that the journal runs.

Owns the map of groups, and the groups that could not be read back. `coordinator` fills and empties it; `membership` and
`group_offsets` change the groups in it.
"""

from collections import Counter
from dataclasses import dataclass, field

from gateway.coordinators.errors import CoordinatorNotAvailable
from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.group import Group
from gateway.coordinators.groups.states import State
from gateway.coordinators.journal.writer import JournalWriter
from gateway.coordinators.offsets_topic.decoding import LoadedGroup
from gateway.coordinators.offsets_topic.values import CommittedOffset
from hot_tier.ids import TopicPartition


@dataclass(slots=True, eq=False)
class GroupEntry:
    """A group's machine beside what the machine does not know: its offsets."""

    group_id: str
    home: "GroupMap"
    group: Group
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[TopicPartition] = field(default_factory=Counter)
    """Commits that are written and not committed yet, by partition."""
    empty_since_ms: int = 0
    """When the last member left; 0 if there never was one. Counts only while the group is Empty."""
    _assigned: tuple[int, frozenset[TopicPartition]] = (-1, frozenset())

    @property
    def classic(self) -> ClassicGroup:
        """The group as one of the classic protocol, which every group is today."""
        assert isinstance(self.group, ClassicGroup)
        return self.group

    def read_partitions(self) -> frozenset[TopicPartition]:
        """Returns what members read as of the last generation that became stable. Worked out once per generation."""
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

    def check_readable(self, group_id: str) -> None:
        """Raises CoordinatorNotAvailable if the stored state of the group could not be read."""
        damaged = self.damaged.get(group_id)
        if damaged is not None:
            raise CoordinatorNotAvailable(
                f"stored state of this group is damaged: {damaged.damage}",
                where=group_id,
                hint="delete the group to start over",
            )

    def drop_if_vacant(self, entry: GroupEntry) -> None:
        """Forgets a group that holds nothing and of which nothing was ever written."""
        vacant = entry.group.is_vacant and not entry.offsets and not entry.in_flight
        if vacant and self.groups.get(entry.group_id) is entry:
            del self.groups[entry.group_id]
