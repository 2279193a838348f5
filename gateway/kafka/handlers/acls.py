"""DescribeAcls, CreateAcls, DeleteAcls: the access rules, as `kafka-acls` lists, adds and removes them.

Where authorization is off there are none to show or change, and the answer is that of Kafka without an authorizer.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from gateway.kafka.errors import SecurityDisabled, error_code, error_message
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from gateway.kafka.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from gateway.kafka.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from hot_tier.cluster.acls import Filter, Operation, Pattern, Permission, ResourceType, Rule, check_rule
from hot_tier.errors import InvalidRequest, TierlogError

ANY: Final = 1
MATCH: Final = 2
"""As a pattern: all rules that hold for the name."""
DELEGATION_TOKEN: Final = 6
"""A resource that Kafka has. There are none here, so a filter for them finds nothing."""
MAX_FILTERS: Final = 1000

E = TypeVar("E", bound=IntEnum)


async def describe(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    _check_enabled(context)
    resources: dict[tuple[ResourceType, Pattern, str], DescribeAclsResource] = {}
    async for rule in context.turn().through(await _found(request, context)):
        place = rule.resource_type, rule.pattern, rule.name
        if place not in resources:
            resources[place] = DescribeAclsResource(rule.resource_type, rule.name, rule.pattern)
        resources[place].acls.append(AclDescription(rule.principal, rule.host, rule.operation, rule.permission))
    return DescribeAclsResponse(resources=list(resources.values()))


async def create(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Rules that are wrong are refused one by one; the others are added together."""
    _check_enabled(context)
    results: list[AclCreationResult] = []
    good: list[tuple[Rule, AclCreationResult]] = []
    async for asked in context.turn().through(request.creations):
        result = AclCreationResult()
        results.append(result)
        try:
            rule = _rule(asked)
            check_rule(rule)
            good.append((rule, result))
        except TierlogError as error:
            _refuse(result, error)
    try:
        await context.node.acls.add(rule for rule, _ in good)
    except TierlogError as error:
        for _, result in good:
            _refuse(result, error)
    return CreateAclsResponse(results=results)


async def delete(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    _check_enabled(context)
    if len(request.filters) > MAX_FILTERS:
        raise InvalidRequest(f"more than {MAX_FILTERS} filters in one request", hint="send several requests")
    results: list[DeleteAclsFilterResult] = []
    for asked in request.filters:
        result = DeleteAclsFilterResult()
        results.append(result)
        try:
            found = await _found(asked, context)
            await context.node.acls.remove(found)
        except TierlogError as error:
            result.error_code, result.error_message = error_code(error), error_message(error)
        else:
            result.matching_acls = [_removed(rule) async for rule in context.turn().through(found)]
    return DeleteAclsResponse(filter_results=results)


def _removed(rule: Rule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _check_enabled(context: RequestContext) -> None:
    if not context.node.authorizer.enabled:
        raise SecurityDisabled("authorization is off: every client may do everything")


async def _found(asked: DescribeAclsRequest | DeleteAclsFilter, context: RequestContext) -> list[Rule]:
    wanted = _filter(asked)
    if wanted is None:
        return []
    turn = context.turn()
    return sorted([rule async for rule in turn.through(list(context.node.image.acls)) if wanted.meets(rule)])


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> Filter | None:
    """Returns None if there can be no such rule."""
    matching = asked.pattern_type_filter == MATCH
    wanted = Filter(
        None if asked.resource_type_filter == DELEGATION_TOKEN else _any(ResourceType, asked.resource_type_filter),
        None if matching else _any(Pattern, asked.pattern_type_filter),
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        _any(Operation, asked.operation),
        _any(Permission, asked.permission_type),
        matching,
    )
    return None if asked.resource_type_filter == DELEGATION_TOKEN else wanted


def _rule(asked: AclCreation) -> Rule:
    return Rule(
        _one(ResourceType, asked.resource_type),
        _one(Pattern, asked.resource_pattern_type),
        asked.resource_name,
        asked.principal,
        asked.host,
        _one(Operation, asked.operation),
        _one(Permission, asked.permission_type),
    )


def _any(values: type[E], number: int) -> E | None:
    return None if number == ANY else _one(values, number)


def _one(values: type[E], number: int) -> E:
    try:
        return values(number)
    except ValueError:
        raise InvalidRequest(f"an access rule has no {values.__name__.lower()} {number}") from None


def _refuse(result: AclCreationResult, error: TierlogError) -> None:
    result.error_code, result.error_message = error_code(error), error_message(error)


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_ACLS: Handler(1, 3, describe),
    ApiKey.CREATE_ACLS: Handler(1, 3, create),
    ApiKey.DELETE_ACLS: Handler(1, 3, delete),
}
