"""What every kind of group is to the rest of the coordinator, whatever protocol its members use.

The map of groups, offsets, retention and the driver of effects use only this interface. The calls of one protocol
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
        """Whether the group has no members and no pending ones."""
        ...

    @property
    def is_vacant(self) -> bool:
        """Whether the group is idle and always was. Then it need not be remembered."""
        ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics that members subscribe to; None if that is unknown."""
        ...

    def read_partitions(self) -> frozenset[TopicPartition]:
        """Returns the partitions that members are assigned, as far as that is known."""
        ...

    def commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, in_transaction: bool = False
    ) -> Refusal:
        """Returns why this sender may not commit offsets; None if it may."""
        ...

    def persisted(self, number: int, failure: Refusal, now_ms: int) -> None:
        """Tells the group that the write of `Persist.number` is committed, or has failed."""
        ...

    def timer_fired(self, timer: Timer, now_ms: int) -> None: ...

    def end(self, refusal: type[CoordinatorError]) -> None:
        """Makes the group Dead and answers everyone who waits with the refusal."""
        ...

    def take_effects(self) -> list[Effect]:
        """Returns the effects since the last call. It is called after every other call that changes the group."""
        ...
