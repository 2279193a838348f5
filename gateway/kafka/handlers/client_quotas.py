"""DescribeClientQuotas and AlterClientQuotas: limits per client id and user, by filters and entry by entry."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from gateway.kafka.errors import UnsupportedVersion, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from gateway.kafka.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from hot_tier.cluster.model import QuotaEntity
from hot_tier.cluster.quotas import QuotaAlteration
from hot_tier.errors import InvalidRequest, TierlogError


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


KNOWN_TYPES: Final = ("user", "client-id", "ip")
"""Kafka's types. There are no limits per address, so a filter for them finds nothing."""


def describe(request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
    _check_filter(request.components)
    entries = [
        EntryData(
            entity=[EntityData(kind, name) for kind, name in entity.parts],
            values=[ValueData(name, float(limit)) for name, limit in sorted(limits.items())],
        )
        for entity, limits in sorted(context.node.image.quotas.items(), key=lambda item: str(item[0]))
        if _matches(entity, request.components, request.strict)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _check_filter(components: Sequence[ComponentData]) -> None:
    kinds = [component.entity_type for component in components]
    if len(set(kinds)) != len(kinds):
        raise InvalidRequest("an entity type is filtered twice")
    for component in components:
        if component.entity_type not in KNOWN_TYPES:
            raise UnsupportedVersion(
                f"unknown entity type {component.entity_type!r}", hint=f"use one of {', '.join(KNOWN_TYPES)}"
            )
        if component.match_type not in tuple(Match):
            raise InvalidRequest(f"unknown match type {component.match_type}", hint="0 is a name, 1 the default, 2 any")
        if (component.match is None) == (component.match_type == Match.EXACT):
            raise InvalidRequest(f"the match type for {component.entity_type} and its name contradict each other")
    if "ip" in kinds and len(kinds) > 1:
        raise InvalidRequest("a filter for ip cannot be combined with others")


def _matches(entity: QuotaEntity, components: Sequence[ComponentData], strict: bool) -> bool:
    parts = dict(entity.parts)
    if strict and len(parts) != len(components):
        return False
    return all(
        component.entity_type in parts
        and (component.match_type == Match.ANY or parts[component.entity_type] == component.match)
        for component in components
    )


async def alter(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    turn = context.turn()
    entities = [_entity_of(entry) async for entry in turn.through(request.entries)]
    named = Counter(entities)
    errors: list[TierlogError | None] = []
    async for entry, entity in turn.through(zip(request.entries, entities, strict=True)):
        try:
            if named[entity] > 1:
                raise InvalidRequest("an entity is named twice in this request")
            alteration = _alteration(entry)
        except TierlogError as error:
            errors.append(error)
        else:
            errors += await context.node.quota_admin.alter([alteration], request.validate_only)
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(
                error_code=0 if error is None else error_code(error),
                error_message=None if error is None else str(error),
                entity=[ResponseEntityData(part.entity_type, part.entity_name) for part in entry.entity],
            )
            async for entry, error in turn.through(zip(request.entries, errors, strict=True))
        ]
    )


def _entity_of(entry: RequestEntryData) -> QuotaEntity:
    return QuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity})


def _alteration(entry: RequestEntryData) -> QuotaAlteration:
    if len({part.entity_type for part in entry.entity}) != len(entry.entity):
        raise InvalidRequest("an entity names one type twice")
    if len({op.key for op in entry.ops}) != len(entry.ops):
        raise InvalidRequest("a quota is changed twice in one entry")
    return QuotaAlteration(
        {part.entity_type: part.entity_name for part in entry.entity},
        {op.key: None if op.remove else op.value for op in entry.ops},
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Handler(0, 1, describe),
    ApiKey.ALTER_CLIENT_QUOTAS: Handler(0, 1, alter),
}
