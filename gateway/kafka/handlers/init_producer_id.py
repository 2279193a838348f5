"""InitProducerId: the identity of an idempotent or a transactional producer.

A producer without a transactional id gets a new id every time it asks, even if it names the id it has (versions 3 and
up). Kafka does the same: the broker cannot know whose id that is, and if it raised the epoch, anybody could fence any
producer. With the new id the producer starts at sequence 0, which is what it wanted. A transactional id has one
producer at a time: the transaction coordinator raises its epoch.
"""

from typing import Final

from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from hot_tier.errors import InvalidRequest, TierlogError

NONE: Final = -1
FENCED_SINCE: Final = 4
"""Lower versions do not know PRODUCER_FENCED."""


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        raise InvalidRequest("the transactional id is empty")
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE)
    if request.transactional_id is None:
        producer_id, epoch = await context.node.producer_ids.new_producer()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    expected = None if request.producer_id == NONE else (request.producer_id, request.producer_epoch)
    try:
        producer_id, epoch = await context.node.transactions.init_producer(
            request.transactional_id, request.transaction_timeout_ms, expected=expected
        )
    except TierlogError as error:
        code = error_code(error)
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


HANDLERS: Final = {ApiKey.INIT_PRODUCER_ID: Handler(0, 5, handle)}
