"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: topics' settings to see and change, brokers' to see.

Broker settings are read once from the settings file; whoever tries to change them here is told so. The limit on
replication traffic is the exception: tools set it for the time of a reassignment (`throttles`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.handlers.config_view import Entry, broker_entries, topic_entries
from gateway.kafka.handlers.throttles import THROTTLED_REPLICAS, alter_broker, broker_settings_stay
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages import alter_configs, incremental_alter_configs
from gateway.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from gateway.node import Node
from hot_tier.cluster.admin import check_topic_name
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.errors import InvalidConfig, InvalidRequest, TierlogError


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4


AnyResource = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource


def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    results = []
    for asked in request.resources:
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            entries = _entries(asked, context.node)
        except TierlogError as error:
            result.error_code, result.error_message = error_code(error), str(error)
        else:
            result.configs = [_describe(entry, request) for entry in entries]
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _entries(asked: DescribeConfigsResource, node: Node) -> list[Entry]:
    match asked.resource_type:
        case Resource.TOPIC:
            check_topic_name(asked.resource_name)
            entries = topic_entries(node.image.topic(asked.resource_name), node.admin.defaults)
        case Resource.BROKER if asked.resource_name == str(node.node_id):
            entries = broker_entries(node)
        case Resource.BROKER if asked.resource_name == "":
            entries = []  # what was set for all brokers at run time, which nothing can be
        case Resource.BROKER:
            raise InvalidRequest(
                f"this is broker {node.node_id}, not {asked.resource_name!r}",
                hint="ask each broker for its own settings",
            )
        case _:
            raise _unknown_resource(asked.resource_type)
    names = set(asked.configuration_keys or ())
    return [entry for entry in entries if not names or entry.name in names]


def _describe(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[DescribeConfigsSynonym(each.name, each.value, each.source) for each in entry.synonyms]
        if request.include_synonyms
        else [],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


async def incremental_alter(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, context: RequestContext
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    async def change(resource: incremental_alter_configs.AlterConfigsResource) -> None:
        changes = [ConfigChange(each.name, _operation(each.config_operation), each.value) for each in resource.configs]
        if resource.resource_type == Resource.BROKER:
            await alter_broker(context.node, resource.resource_name, changes, request.validate_only)
            return
        kept = [each for each in changes if each.name not in THROTTLED_REPLICAS]
        await context.node.admin.alter_config(resource.resource_name, kept, request.validate_only)

    errors = await _alter_each(request.resources, change, brokers=True)
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                *_outcome(error), each.resource_type, each.resource_name
            )
            for each, error in zip(request.resources, errors, strict=True)
        ]
    )


async def alter(
    request: alter_configs.AlterConfigsRequest, context: RequestContext
) -> alter_configs.AlterConfigsResponse:
    async def change(resource: alter_configs.AlterConfigsResource) -> None:
        config: dict[str, str] = {}
        for each in resource.configs:
            if each.value is None:
                raise InvalidConfig("a setting without a value", where=each.name)
            config[each.name] = each.value
        await context.node.admin.replace_config(resource.resource_name, config, request.validate_only)

    errors = await _alter_each(request.resources, change)
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(*_outcome(error), each.resource_type, each.resource_name)
            for each, error in zip(request.resources, errors, strict=True)
        ]
    )


async def _alter_each(
    resources: Sequence[AnyResource], change: Callable[..., Awaitable[None]], *, brokers: bool = False
) -> list[TierlogError | None]:
    named = Counter((each.resource_type, each.resource_name) for each in resources)

    async def attempt(resource: AnyResource) -> TierlogError | None:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest(f"{resource.resource_name!r} is named twice in this request")
            if resource.resource_type == Resource.TOPIC:
                check_topic_name(resource.resource_name)
            elif resource.resource_type != Resource.BROKER:
                raise _unknown_resource(resource.resource_type)
            elif not brokers:
                raise broker_settings_stay()
            await change(resource)
        except TierlogError as error:
            return error
        return None

    return list(await asyncio.gather(*map(attempt, resources)))


def _operation(number: int) -> ConfigOperation:
    try:
        return ConfigOperation(number)
    except ValueError:
        raise InvalidRequest(f"unknown operation {number}", hint="0 sets, 1 deletes, 2 appends, 3 subtracts") from None


def _outcome(error: TierlogError | None) -> tuple[int, str | None]:
    return (0, None) if error is None else (error_code(error), str(error))


def _unknown_resource(resource_type: int) -> InvalidRequest:
    return InvalidRequest(f"there are no settings of resource type {resource_type}", hint="use topic (2) or broker (4)")


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_CONFIGS: Handler(1, 4, describe_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(0, 1, incremental_alter),
    ApiKey.ALTER_CONFIGS: Handler(0, 2, alter),
}
