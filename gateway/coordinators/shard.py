"""The groups of one partition of the offsets topic, while this broker leads it in one epoch.

Owns the map of groups, and what could not be read back. It is filled by `shards`, and run by `membership` and
`group_offsets`.
"""

from collections import Counter
from dataclasses import dataclass, field

from gateway.coordinators.errors import CoordinatorLoading, CoordinatorNotAvailable
from gateway.coordinators.groups.group import Group
from gateway.coordinators.groups.states import State
from gateway.coordinators.groups.subscription import read_partitions
from gateway.coordinators.offsets_topic.loader import LoadedGroup
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.coordinators.offsets_topic.writer import OffsetsWriter
from hot_tier.errors import TierlogError
from hot_tier.ids import LeaderEpoch, TopicPartition


@dataclass(slots=True, eq=False)
class GroupEntry:
    """A group's machine beside what the machine does not know: its offsets."""

    group_id: str
    shard: "Shard"
    group: Group
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    in_flight: Counter[TopicPartition] = field(default_factory=Counter)
    """Commits that are written and not committed yet, by partition."""
    empty_since_ms: int = 0
    """When the last member left; 0 when there never was one. Counts only while the group is Empty."""
    _assigned: tuple[int, frozenset[TopicPartition]] = (-1, frozenset())

    def read_partitions(self) -> frozenset[TopicPartition]:
        """What members read as of the last generation that became stable, worked out once for each."""
        if not self.group.roster:
            return frozenset()
        if self.group.state is State.STABLE and self._assigned[0] != self.group.generation:
            self._assigned = self.group.generation, read_partitions(self.group)
        return self._assigned[1]


@dataclass(slots=True, eq=False)
class Shard:
    number: int
    leader_epoch: LeaderEpoch
    writer: OffsetsWriter
    groups: dict[str, GroupEntry] = field(default_factory=dict)
    damaged: dict[str, LoadedGroup] = field(default_factory=dict)
    loading: bool = True
    failure: TierlogError | None = None
    """What kept the partition from being read back: none of its groups is served."""

    def check_serves(self, group_id: str) -> None:
        if self.loading:
            raise CoordinatorLoading("the offsets of this group are being read back", where=group_id, hint="try again")
        if self.failure is not None:
            raise CoordinatorNotAvailable(f"group offsets cannot be read: {self.failure}", where=group_id)
        damaged = self.damaged.get(group_id)
        if damaged is not None:
            raise CoordinatorNotAvailable(
                f"stored state of this group is damaged: {damaged.damage}",
                where=group_id,
                hint="delete the group to start over",
            )

    def drop_if_vacant(self, entry: GroupEntry) -> None:
        """Forget a group that holds nothing and never held anything that was written."""
        vacant = entry.group.is_vacant and not entry.offsets and not entry.in_flight
        if vacant and self.groups.get(entry.group_id) is entry:
            del self.groups[entry.group_id]
