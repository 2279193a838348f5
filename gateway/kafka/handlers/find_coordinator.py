"""FindCoordinator: which broker to ask about a group or about transactions."""

from typing import Final

from gateway.coordinators.errors import CoordinatorNotAvailable
from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from hot_tier.errors import InvalidRequest, TierlogError

GROUP: Final = 0
TRANSACTION: Final = 1
MANY: Final = 4
"""From this version on, one request asks for many keys."""


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    keys = list(dict.fromkeys(request.coordinator_keys)) if context.api_version >= MANY else [request.key]
    found = await context.turn().gather(lambda key: _find(key, request.key_type, context), keys)
    if context.api_version >= MANY:
        return FindCoordinatorResponse(coordinators=list(found))
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    try:
        if key_type not in (GROUP, TRANSACTION):
            raise InvalidRequest(f"there are no coordinators of type {key_type}", hint="0 is a group, 1 a transaction")
        coordinators = context.node.groups if key_type == GROUP else context.node.transactions
        broker = await coordinators.find(key)
        where = context.endpoint(broker)
        if where is None:
            raise CoordinatorNotAvailable(
                f"broker {broker.id} has no listener {context.principal.listener!r}", where=key
            )
    except TierlogError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error_code(error), error_message=str(error)
        )
    return Coordinator(key=key, node_id=broker.id, host=where.host, port=where.port)


HANDLERS: Final = {ApiKey.FIND_COORDINATOR: Handler(0, 6, handle)}
