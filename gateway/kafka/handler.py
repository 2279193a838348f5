"""What a handler is: a function from a request to its response, and what it may know about the caller.

A handler module exposes `HANDLERS`, from API key to `Handler`; `gateway.kafka.apis` merges them. Requests and
responses are the classes of `gateway.kafka.protocol.messages`: one class for all versions, fields that a version
does not carry are defaults when read and left out when written. `api_version` is in the context for the few
places where behaviour differs, not only fields.

A handler returns its response, an awaitable of it (the connection goes on; answers keep their order), or None
when the protocol has no answer (acks=0). What it raises becomes an error response: a `TierlogError` by
`gateway.kafka.errors`, anything else UNKNOWN_SERVER_ERROR and a logged traceback. Errors of single topics or
partitions belong into the response, so a handler catches those itself.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.node import Node


@dataclass(slots=True)
class RequestContext:
    node: Node
    api_version: int
    client_id: str
    """Empty when the client sent none."""
    principal: str
    peer: str
    """The client's address as text."""
    listener: str
    throttle_ms: int = 0
    """Set by a handler that charged a quota: the connection stops reading for so long."""


HandlerFunction = Callable[[Any, RequestContext], Any | Awaitable[Any] | None]


class Handler(NamedTuple):
    min_version: int
    max_version: int
    function: HandlerFunction
