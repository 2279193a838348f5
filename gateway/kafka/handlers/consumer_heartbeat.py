"""ConsumerGroupHeartbeat: a consumer with `group.protocol=consumer` is told to use the classic protocol.

The API is named to clients for this answer alone: librdkafka, which does not find it, waits for ever and says nothing.
Kafka answers the same where the new protocol is switched off.
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
