"""The sessions of this leader's followers: one for each link of each follower's broker.

A session ends when its link begins another one, or when its broker is no longer registered.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from hot_tier.ids import NodeId

if TYPE_CHECKING:
    from gateway.kafka.handlers.replica_fetch import ReplicaSession


class ReplicaSessions:
    def __init__(self) -> None:
        self._sessions: dict[tuple[NodeId, str], ReplicaSession] = {}
        self._last_id = 0
        self.heard_ms: dict[NodeId, int] = {}
        """When each broker last asked for anything, on the steady clock."""

    def find(self, broker: NodeId, link: str) -> "ReplicaSession | None":
        return self._sessions.get((broker, link))

    def begin(
        self, broker: NodeId, link: str, make: "Callable[[int], ReplicaSession]", live: Collection[NodeId]
    ) -> "ReplicaSession":
        for key in [key for key in self._sessions if key == (broker, link) or key[0] not in live]:
            self._sessions.pop(key).end()
        self._last_id += 1
        made = self._sessions[(broker, link)] = make(self._last_id)
        return made
