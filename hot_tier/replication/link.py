"""The seam between a follower and a broker that it follows: requests out, answers in, over one connection.

A link keeps a session: a request names only the partitions whose position is new, and those that are no longer
followed; an answer tells only of partitions with news. A position that was named stands until an answer brings records,
an error or a diverging epoch for it. Answers come in the order of the requests. Once the session's first is answered,
two may be under way at a time: the first is answered when the second arrives.

`gateway.kafka.replica_client` is the link over Kafka's Fetch.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import TierlogError
from hot_tier.ids import TopicId
from hot_tier.replication.following import FetchAnswer, FetchFrom

PartitionKey = tuple[TopicId, int]


class LeaderLink(Protocol):
    def send(self, asked: Mapping[PartitionKey, FetchFrom], forgotten: Iterable[PartitionKey]) -> int:
        """Sends a request. Returns its number, one more than that of the request before."""
        ...

    def close(self) -> None:
        """Closes the link. The listener is not told."""
        ...


class LinkListener(Protocol):
    def answered(self, number: int, answers: Iterable[tuple[PartitionKey, FetchAnswer]]) -> None:
        """Takes the answer to request `number`. The records' bytes are gone when this returns."""
        ...

    def refused(self, number: int, error: TierlogError) -> None:
        """Request `number` was refused as a whole, and with it the session. Every position must be named again."""
        ...

    def lost(self, error: Exception) -> None:
        """The connection is gone. This is called once, and nothing after it."""
        ...


Connect = Callable[[BrokerInfo, str, LinkListener], Awaitable[LeaderLink]]
"""Opens a link to a broker; the text tells apart the links between the same two. OSError when it cannot."""
