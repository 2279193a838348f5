"""What every kind of group is to the rest of the coordinator, whatever its members say to it.

The map of groups, offsets, retention and the driver of effects know a group only by this. The calls of one protocol
(join, sync and heartbeat of the classic one) belong to its own class: `classic.ClassicGroup`.
"""

from typing import Protocol

from gateway.coordinators.errors import CoordinatorError, Refusal
from gateway.coordinators.groups.messages import Effect, Timer
from gateway.coordinators.groups.states import State
from hot_tier.ids import TopicPartition


class Group(Protocol):
    @property
    def state(self) -> State: ...

    @property
    def generation(self) -> int:
        """Counts the assignments that were made."""
        ...

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def size(self) -> int:
        """The number of members."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it and nobody is about to be."""
        ...

    @property
    def is_vacant(self) -> bool:
        """Whether it is idle and always was: it need not be remembered."""
        ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics that members subscribe to; None when that cannot be told."""
        ...

    def read_partitions(self) -> frozenset[TopicPartition]:
        """Returns the partitions that members are assigned, as far as that can be told."""
        ...

    def commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Refusal:
        """Returns why this sender may not commit offsets; None if it may."""
        ...

    def persisted(self, number: int, failure: Refusal, now_ms: int) -> None:
        """The write of `Persist.number` is committed, or has failed."""
        ...

    def timer_fired(self, timer: Timer, now_ms: int) -> None: ...

    def end(self, refusal: type[CoordinatorError]) -> None:
        """Becomes Dead, and tells everybody who waits why."""
        ...

    def take_effects(self) -> list[Effect]:
        """Returns what is to be done since the last call. Called after every other call that changes the group."""
        ...
