"""InitProducerId: the identity of an idempotent producer.

A producer without a transactional id gets a new id every time it asks, also when it names the one it has (versions 3
and up), as with Kafka: nobody can tell whose id that is, so raising its epoch would let anybody fence anybody. With the
new id the producer starts at sequence 0, which is what it wanted.
"""

from typing import Final

from gateway.kafka.errors import ErrorCode, TransactionsNotServed
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from hot_tier.errors import InvalidRequest

NONE: Final = -1


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id is not empty")
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE)
    if request.transactional_id is not None:
        raise TransactionsNotServed(request.transactional_id)
    producer_id, epoch = await context.node.producer_ids.new_producer()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


HANDLERS: Final = {ApiKey.INIT_PRODUCER_ID: Handler(0, 5, handle)}
