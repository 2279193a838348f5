"""What the sender of a request must be allowed to do. Every operation says it: there is no default.

Names in the path and the headers are checked before the body is read, names in the body after that. The answer is the
same whether the thing exists or not. A broker that does what another has forwarded checks for the client, not for that
broker (`gateway.http.peers.behalf`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.http.problems import NOT_AUTHORIZED, Problem
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from gateway.http.operation import Call


@dataclass(frozen=True, slots=True)
class Open:
    """Everybody may do it."""

    why: str


@dataclass(frozen=True, slots=True)
class Need:
    operation: Operation
    kind: ResourceType
    name: "Callable[[Call], str | None]"
    """None: the request names none, so nothing is needed."""
    of_body: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer is a list, and the handler leaves out what the sender may not see."""

    operation: Operation
    kind: ResourceType


@dataclass(frozen=True, slots=True)
class Named:
    """The request names things in a language of its own, such as SQL, and the handler checks each of them."""

    operation: Operation
    kind: ResourceType


Needs = Open | tuple[Need | Shown | Named, ...]


def on_topic(operation: Operation) -> Need:
    return Need(operation, ResourceType.TOPIC, lambda call: call.values["topic"])


def on_group(operation: Operation) -> Need:
    return Need(operation, ResourceType.GROUP, lambda call: call.values["group"])


def on_cluster(operation: Operation) -> Need:
    return Need(operation, ResourceType.CLUSTER, lambda call: CLUSTER_NAME)


def on_topic_in_body(operation: Operation) -> Need:
    return Need(operation, ResourceType.TOPIC, lambda call: call.body.topic, of_body=True)


SEEN_TOPICS: Final = Shown(Operation.DESCRIBE, ResourceType.TOPIC)


def check(needs: Needs, call: "Call", *, of_body: bool) -> None:
    """Raises a Problem if something is needed that the sender may not do."""
    if isinstance(needs, Open):
        return
    for need in needs:
        if isinstance(need, Need) and need.of_body is of_body:
            name = need.name(call)
            if name is not None and not call.may(need.operation, need.kind, name):
                raise refused(need.operation, need.kind)


def refused(operation: Operation, kind: ResourceType) -> Problem:
    what = kind.name.lower().replace("_", " ")
    return Problem(NOT_AUTHORIZED, f"you may not {operation.name.lower().replace('_', ' ')} this {what}")
