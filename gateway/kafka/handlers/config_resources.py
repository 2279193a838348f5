"""ListConfigResources: everything that has settings, by kind. Only groups with settings of their own are listed."""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.kafka.errors import UnsupportedVersion
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.handlers.configs import Resource
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from gateway.node import Node
from hot_tier.cluster.kept import GROUP

CLIENT_METRICS: Final = 16
BROKER_LOGGER: Final = 8
WITHOUT: Final = (BROKER_LOGGER, CLIENT_METRICS)
"""Kinds that exist in Kafka but not here."""


async def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    kinds: set[int] = {*Resource, *WITHOUT}
    asked = {CLIENT_METRICS} if context.api_version == 0 else set(request.resource_types) or kinds
    unknown = asked - kinds
    if unknown:
        raise UnsupportedVersion(f"resource type {min(unknown)} has no settings")
    found = [(name, kind) for kind in sorted(asked) for name in sorted(_names(kind, context.node))]
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(*each) async for each in context.turn().through(found)]
    )


def _names(kind: int, node: Node) -> Iterable[str]:
    match kind:
        case Resource.TOPIC:
            return (topic.name for topic in node.image.topics())
        case Resource.BROKER:
            return (str(broker.id) for broker in node.image.brokers())
        case Resource.GROUP:
            return node.image.owners_of_kept_settings(GROUP)
        case _:
            return ()


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.LIST_CONFIG_RESOURCES: Handler(0, 1, handle)}
