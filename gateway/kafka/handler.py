"""What a handler is: a function from a request to its response, and what it may know about the caller.

A handler module exposes `HANDLERS`, from API key to `Handler`; `gateway.kafka.apis` merges them. Requests and responses
are the classes of `gateway.kafka.protocol.messages`: one class for all versions. Fields that a version does not carry
have their defaults when read and are left out when written. `api_version` is in the context for the few places where
the behaviour differs, not only the fields.

A handler returns its response, an awaitable of it, or None when the protocol has no answer (acks=0). If the client
disconnects, a plain Future is cancelled; a coroutine runs to its end. While an awaitable is open, the connection's next
request waits (as in Apache Kafka), except after a Future of Produce and an `Overtakable`.

An exception of a handler becomes an error response: for a `TierlogError` with the code in `gateway.kafka.errors`, for
anything else UNKNOWN_SERVER_ERROR and a logged traceback. Errors of single topics or partitions belong into the
response, so a handler catches those itself. If the response has a `throttle_time_ms`, the connection is not read for
that time.

A request may name thousands of things, or one thing with thousands of parts. So a handler that goes through a list is a
coroutine and takes its turn (`RequestContext.turn`). A thing that is named twice is answered once (`once`) or refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from gateway.kafka.buffers import Buffers
from gateway.kafka.login import Login
from gateway.kafka.refusals import Refusals
from gateway.kafka.sessions.fetch import FetchSessions
from gateway.kafka.sessions.replicas import ReplicaSessions
from gateway.lane import Turn
from gateway.listener import Listener
from gateway.node import Node
from gateway.principal import Principal
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, ResourceType
from hot_tier.cluster.endpoints import Endpoint
from hot_tier.cluster.model import BrokerInfo

T = TypeVar("T")


@dataclass(slots=True)
class RequestContext:
    node: Node
    api_version: int
    client_id: str
    """Empty if the client sent none."""
    principal: Principal
    peer: str
    """The client's address and port as text."""
    listener: Listener
    buffers: Buffers
    """Shared by all listeners: how much a fetch may hold."""
    report: Callable[..., None]
    """Counts and logs a mistake of ours at one topic or partition: `report(error, topic=…, partition=…)`."""
    throttle: Callable[[int], None]
    """Stops reading from the connection for a number of milliseconds, for a request without an answer."""
    refusals: Refusals
    """The refused batches of this connection's producers."""
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    login: Login | None = None
    """None where nobody logs in."""
    guarded: bool = False
    """Whether there is anything that the sender may not do."""
    connected_s: float = 0.0
    """When the connection began, in the time of the event loop."""

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.principal.address

    def endpoint(self, broker: BrokerInfo) -> Endpoint | None:
        """Returns where this client reaches the broker: at the listener that the client uses. None if there is none."""
        return broker.endpoints.get(self.principal.listener)

    def reachable(self, brokers: Iterable[BrokerInfo]) -> list[tuple[BrokerInfo, Endpoint]]:
        """Returns the brokers that this client can reach, with their endpoints."""
        return [(each, endpoint) for each in brokers if (endpoint := self.endpoint(each)) is not None]

    def may(self, operation: Operation, kind: ResourceType, name: str | None = CLUSTER_NAME) -> bool:
        return self.node.authorizer.allows(self.principal, operation, kind, name)

    def authorized_operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        return self.node.authorizer.operations(self.principal, kind, name)

    def turn(self) -> Turn:
        return self.node.lane.turn()


def once(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Returns the items without those whose key occurred before."""
    return list(Once().of("", items, key))


class Once:
    """Does the same for lists inside a list: a topic may be named twice, each time with other partitions."""

    def __init__(self) -> None:
        self._named: set[Hashable] = set()

    def of(self, name: str, items: Iterable[T], key: Callable[[T], Hashable]) -> Iterator[T]:
        for item in items:
            named = name, key(item)
            if named not in self._named:
                self._named.add(named)
                yield item


class Overtakable(asyncio.Future[Any]):
    """An answer that the connection's next request need not wait for. Answers still leave in order: the handler of that
    request makes sure that this one is ready."""


class CloseConnection(Exception):
    """Raised by a handler if the protocol has no other answer: for an error with acks=0, or with no broker to name."""


HandlerFunction = Callable[[Any, RequestContext], Any | Awaitable[Any] | None]


class Handler(NamedTuple):
    min_version: int
    max_version: int
    function: HandlerFunction
