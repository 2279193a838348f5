"""ConsumerGroupHeartbeat: tells a consumer with `group.protocol=consumer` to use the classic protocol.

The API is listed to clients only for this answer: if librdkafka does not find it, it waits for ever and says nothing.
Kafka answers the same if the new protocol is switched off.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

from gateway.kafka.errors import UnsupportedVersion
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def handle(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> NoReturn:
    raise UnsupportedVersion(
        "the consumer group protocol is not served", where=request.group_id, hint="set group.protocol=classic"
    )


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.CONSUMER_GROUP_HEARTBEAT: Handler(0, 1, handle)}
