"""What a handler is: a function from a request to its response, and what it may know about the caller.

A handler module exposes `HANDLERS`, from API key to `Handler`; `gateway.kafka.apis` merges them. Requests and
responses are the classes of `gateway.kafka.protocol.messages`: one class for all versions, fields that a version
does not carry are defaults when read and left out when written. `api_version` is in the context for the few
places where behaviour differs, not only fields.

A handler returns its response, an awaitable of it, or None when the protocol has no answer (acks=0). A plain Future
is cancelled when the client goes away; a coroutine runs to its end. While an awaitable is open, the connection's next
request waits (as in Apache Kafka), except behind a Future of Produce and an `Overtakable`.

What a handler raises becomes an error response: a `TierlogError` by `gateway.kafka.errors`, anything else
UNKNOWN_SERVER_ERROR and a logged traceback. Errors of single topics or partitions belong into the response, so a
handler catches those itself. A `throttle_time_ms` in the response is also carried out: the connection is not read
for so long.

A request may name thousands of things, or one that has thousands of parts. So a handler that goes through a list is a
coroutine and takes its turn (`RequestContext.turn`), and what is named twice is answered once (`once`) or refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from gateway.kafka.buffers import Buffers
from gateway.kafka.refusals import Refusals
from gateway.kafka.sessions.fetch import FetchSessions
from gateway.kafka.sessions.replicas import ReplicaSessions
from gateway.lane import Turn
from gateway.listener import Listener
from gateway.node import Node
from gateway.principal import Principal
from hot_tier.cluster.endpoints import Endpoint
from hot_tier.cluster.model import BrokerInfo

T = TypeVar("T")


@dataclass(slots=True)
class RequestContext:
    node: Node
    api_version: int
    client_id: str
    """Empty when the client sent none."""
    principal: Principal
    peer: str
    """The client's address and port as text."""
    listener: Listener
    buffers: Buffers
    """Of all listeners: how much a fetch may hold."""
    report: Callable[..., None]
    """Counts and logs a mistake of ours that one topic or partition met: `report(error, topic=…, partition=…)`."""
    throttle: Callable[[int], None]
    """Reads nothing from the connection for so many milliseconds: for a request that is not answered."""
    refusals: Refusals
    """Of this connection's producers."""
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.principal.address

    def endpoint(self, broker: BrokerInfo) -> Endpoint | None:
        """Returns where this client reaches the broker: at the listener that it came in by. None if there is none."""
        return broker.endpoints.get(self.principal.listener)

    def reachable(self, brokers: Iterable[BrokerInfo]) -> list[tuple[BrokerInfo, Endpoint]]:
        """Returns the brokers that this client can reach, and where."""
        return [(each, endpoint) for each in brokers if (endpoint := self.endpoint(each)) is not None]

    def turn(self) -> Turn:
        return self.node.lane.turn()


def once(items: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Those that name something that none before them names."""
    return list(Once().of("", items, key))


class Once:
    """The same for lists inside a list: a topic may be named twice, each time with other partitions."""

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
    request sees to it that this one is ready."""


class CloseConnection(Exception):
    """Raised by a handler when closing is the only answer that the protocol has: to an error with acks=0, or without a
    broker to name."""


HandlerFunction = Callable[[Any, RequestContext], Any | Awaitable[Any] | None]


class Handler(NamedTuple):
    min_version: int
    max_version: int
    function: HandlerFunction
