"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the settings of topics, brokers and groups.

`hot_tier.cluster.admin` changes the settings of topics, `gateway.kafka.configs.kept` those of brokers and groups.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from gateway.kafka.configs.kept import (
    alter_broker,
    alter_group,
    check_group,
    replace_broker,
    replace_group,
)
from gateway.kafka.configs.view import (
    Entry,
    all_brokers_entries,
    broker_entries,
    group_entries,
    topic_entries,
)
from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, RequestContext, once
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
from gateway.lane import Turn
from gateway.node import Node
from hot_tier.cluster.admin import check_topic_name
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.errors import InvalidRequest, TierlogError


class Resource(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


MAX_SETTINGS: Final = 200
"""Limit for one resource in one request: more than there are."""

AnyResource = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource


async def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    results = []
    described = Described(request, context.node)
    resources = once(request.resources, lambda asked: (asked.resource_type, asked.resource_name))
    async for asked in context.turn().through(resources):
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            result.configs = described.configs(asked)
        except TierlogError as error:
            result.error_code, result.error_message = error_code(error), str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


class Described:
    """The descriptions for one request. Topics with equal settings share one: there may be thousands of topics."""

    def __init__(self, request: DescribeConfigsRequest, node: Node) -> None:
        self._request = request
        self._node = node
        self._of_topics: dict[Hashable, list[DescribeConfigsResourceResult]] = {}

    def configs(self, asked: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        names = frozenset(asked.configuration_keys or ())
        if asked.resource_type != Resource.TOPIC:
            return self._describe(_entries(asked, self._node), names)
        check_topic_name(asked.resource_name)
        topic = self._node.image.topic(asked.resource_name)
        key = (frozenset(topic.config.items()), names)
        found = self._of_topics.get(key)
        if found is None:
            found = self._describe(topic_entries(topic, self._node.admin.defaults), names)
            self._of_topics[key] = found
        return found

    def _describe(self, entries: Iterable[Entry], names: Collection[str]) -> list[DescribeConfigsResourceResult]:
        return [_describe(entry, self._request) for entry in entries if not names or entry.name in names]


def _entries(asked: DescribeConfigsResource, node: Node) -> list[Entry]:
    """Returns the settings of anything but a topic."""
    match asked.resource_type:
        case Resource.BROKER if asked.resource_name == str(node.node_id):
            return broker_entries(node)
        case Resource.BROKER if asked.resource_name == "":
            return all_brokers_entries(node)
        case Resource.BROKER:
            raise InvalidRequest(
                f"this is broker {node.node_id}, not {asked.resource_name!r}",
                hint="ask each broker for its own settings",
            )
        case Resource.GROUP:
            check_group(asked.resource_name)
            return group_entries(asked.resource_name, node)
        case _:
            raise _unknown_resource(asked.resource_type)


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
        node, name = context.node, resource.resource_name
        match resource.resource_type:
            case Resource.TOPIC:
                check_topic_name(name)
                await node.admin.alter_config(name, changes, request.validate_only)
            case Resource.BROKER:
                await alter_broker(node, name, changes, request.validate_only)
            case Resource.GROUP:
                await alter_group(node, name, changes, request.validate_only)
            case other:
                raise _unknown_resource(other)

    turn = context.turn()
    errors = await _alter_each(request.resources, change, turn)
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                *_outcome(error), each.resource_type, each.resource_name
            )
            async for each, error in turn.through(zip(request.resources, errors, strict=True))
        ]
    )


async def alter(
    request: alter_configs.AlterConfigsRequest, context: RequestContext
) -> alter_configs.AlterConfigsResponse:
    async def change(resource: alter_configs.AlterConfigsResource) -> None:
        config: dict[str, str] = {}
        for each in resource.configs:
            if each.value is None:
                raise InvalidRequest("the setting has no value", where=each.name)
            config[each.name] = each.value
        node, name = context.node, resource.resource_name
        match resource.resource_type:
            case Resource.TOPIC:
                check_topic_name(name)
                await node.admin.replace_config(name, config, request.validate_only)
            case Resource.BROKER:
                await replace_broker(node, name, config, request.validate_only)
            case Resource.GROUP:
                await replace_group(node, name, config, request.validate_only)
            case other:
                raise _unknown_resource(other)

    turn = context.turn()
    errors = await _alter_each(request.resources, change, turn)
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(*_outcome(error), each.resource_type, each.resource_name)
            async for each, error in turn.through(zip(request.resources, errors, strict=True))
        ]
    )


async def _alter_each(
    resources: Sequence[AnyResource], change: Callable[..., Awaitable[None]], turn: Turn
) -> list[TierlogError | None]:
    named = Counter((each.resource_type, each.resource_name) for each in resources)

    async def attempt(resource: AnyResource) -> TierlogError | None:
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest(f"{resource.resource_name!r} is named twice in this request")
            if len(resource.configs) > MAX_SETTINGS:
                raise InvalidRequest(f"more than {MAX_SETTINGS} settings for {resource.resource_name!r}")
            await change(resource)
        except TierlogError as error:
            return error
        return None

    return await turn.gather(attempt, resources)


def _operation(number: int) -> ConfigOperation:
    try:
        return ConfigOperation(number)
    except ValueError:
        raise InvalidRequest(f"unknown operation {number}", hint="0 sets, 1 deletes, 2 appends, 3 subtracts") from None


def _outcome(error: TierlogError | None) -> tuple[int, str | None]:
    return (0, None) if error is None else (error_code(error), str(error))


def _unknown_resource(resource_type: int) -> InvalidRequest:
    return InvalidRequest(
        f"there are no settings of resource type {resource_type}", hint="use topic (2), broker (4) or group (32)"
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_CONFIGS: Handler(1, 4, describe_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(0, 1, incremental_alter),
    ApiKey.ALTER_CONFIGS: Handler(0, 2, alter),
}
