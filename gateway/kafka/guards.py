"""What stands before a handler: a guard refuses what the sender may not do, and passes on the rest.

A handler sees only what is allowed, and knows nothing of permissions. What is refused is answered here, in the words of
Kafka, and the answer is the same whether the thing exists or not. `gateway.kafka.permissions` says which guards an API
has.
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from gateway.kafka.error_response import error_response_steps
from gateway.kafka.errors import NotAuthorized, error_code, error_message
from gateway.kafka.handler import HandlerFunction, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey, response_class
from gateway.kafka.protocol.schema import message_info
from gateway.lane import Turn
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, ResourceType

Guard = Callable[[HandlerFunction], HandlerFunction]
Need = tuple[Operation, ResourceType, str]


@dataclass(frozen=True, slots=True)
class Open:
    """Nobody is refused."""

    why: str

    def __call__(self, function: HandlerFunction) -> HandlerFunction:
        return function


@dataclass(frozen=True, slots=True)
class Inside:
    """The handler itself asks, for each partition at the time when it gets to it."""

    operation: Operation
    kind: ResourceType

    def __call__(self, function: HandlerFunction) -> HandlerFunction:
        return function


@dataclass(frozen=True, slots=True)
class Whole:
    """The request needs one permission: without it every element of the answer has the error."""

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
    named_by: str = ""
    """The field that names the resource; empty for the cluster."""
    once: bool = False
    """The answer has the error once, for the whole, and no elements."""

    def __call__(self, function: HandlerFunction) -> HandlerFunction:
        operation, kind, field = self.operation, self.kind, self.named_by

        def guarded(request: Any, context: RequestContext) -> Any:
            if not context.may(operation, kind, getattr(request, field) if field else CLUSTER_NAME):
                error = NotAuthorized(operation, kind)
                if not self.once:
                    raise error
                return response_class(ApiKey(message_info(type(request)).api_key))(error_code=error_code(error))
            return function(request, context)

        return guarded


@dataclass(frozen=True, slots=True)
class Each:
    """Each element of a list needs a permission of its own. Those without get the error, the others are handled."""

    asked: str
    """The list in the request."""
    answered: str
    """The list in the answer."""
    need: Callable[[Any], Need]
    with_cluster: Operation | None = None
    """Whoever may do this with the cluster needs nothing else."""

    def __call__(self, function: HandlerFunction) -> HandlerFunction:
        async def guarded(request: Any, context: RequestContext) -> Any:
            if self.with_cluster is not None and context.may(self.with_cluster, ResourceType.CLUSTER):
                return await answer_of(function, request, context)
            turn = context.turn()
            kept: list[Any] = []
            refused: dict[tuple[Operation, ResourceType], list[Any]] = {}
            async for item in turn.through(getattr(request, self.asked)):
                operation, kind, name = self.need(item)
                if context.may(operation, kind, name):
                    kept.append(item)
                else:
                    refused.setdefault((operation, kind), []).append(item)
            if not refused:
                return await answer_of(function, request, context)
            key = ApiKey(message_info(type(request)).api_key)
            response = response_class(key)()
            if kept:
                response = await answer_of(function, _with(request, self.asked, kept), context)
            for why, items in refused.items():
                made = await refusal(_with(request, self.asked, items), NotAuthorized(*why), context, turn)
                getattr(response, self.answered).extend(getattr(made, self.answered))
            return response

        return guarded


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer is a list that leaves out what the sender may not see."""

    answered: str
    need: Callable[[Any], Need]
    with_cluster: Operation | None = None

    def __call__(self, function: HandlerFunction) -> HandlerFunction:
        async def guarded(request: Any, context: RequestContext) -> Any:
            response = await answer_of(function, request, context)
            if self.with_cluster is None or not context.may(self.with_cluster, ResourceType.CLUSTER):
                everything = getattr(response, self.answered)
                shown = [item async for item in context.turn().through(everything) if context.may(*self.need(item))]
                setattr(response, self.answered, shown)
            return response

        return guarded


async def answer_of(function: HandlerFunction, request: Any, context: RequestContext) -> Any:
    result = function(request, context)
    return await result if isawaitable(result) else result


async def refusal(request: Any, error: NotAuthorized, context: RequestContext, turn: Turn) -> Any:
    """Returns the answer that has the error at everything which the request names."""
    cls = response_class(ApiKey(message_info(type(request)).api_key))
    steps = error_response_steps(cls, context.api_version, request, error_code(error), error_message(error))
    return await turn.run(steps)


def _with(request: Any, field: str, value: Any) -> Any:
    changed = copy(request)
    setattr(changed, field, value)
    return changed


def guarded_by(guards: Mapping[ApiKey, tuple[Guard, ...]], key: ApiKey, function: HandlerFunction) -> HandlerFunction:
    for guard in reversed(guards[key]):
        function = guard(function)
    return function
