"""Quota limits in cluster metadata: who may be limited, in what, and how limits are changed.

This module stores limits and looks them up; `gateway.quotas` counts. An entity names a user, a client id, or both. The
name None is the default of its type. Kafka's order decides which entity's limit holds for a client: the more specific
user first, then the more specific client id.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import QuotaEntity
from hot_tier.cluster.store import ABSENT, Compare, Delete, MetadataStore, Put
from hot_tier.errors import InvalidRequest, TierlogError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"

ENTITY_TYPES: Final = (USER, CLIENT_ID)
QUOTA_NAMES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    entity: Mapping[str, str | None]
    limits: Mapping[str, float | None]
    """Bytes per second by quota name; None takes the limit away."""


class QuotaAdmin:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    async def alter(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool = False
    ) -> list[TierlogError | None]:
        """Returns for each change None, or the error why it was refused. Returns when the image shows the changes."""
        return [await self._alter(alteration, validate_only) for alteration in alterations]

    async def _alter(self, alteration: QuotaAlteration, validate_only: bool) -> TierlogError | None:
        try:
            check_entity(alteration.entity)
            check_limits(alteration.limits)
            if not validate_only:
                await self._write(QuotaEntity.of(alteration.entity), alteration.limits)
        except TierlogError as error:
            return error
        return None

    async def _write(self, entity: QuotaEntity, limits: Mapping[str, float | None]) -> None:
        key = model.quota_key(entity)
        revision = None
        while revision is None:
            item = await self._store.get(key)
            held = {} if item is None else model.decode_map(key, item.value)
            merged = {name: value for name, value in {**held, **limits}.items() if value is not None}
            revision = await self._store.transact(
                [Compare(key, ABSENT if item is None else item.revision)],
                [Put(key, model.encode(merged)) if merged else Delete(key)],
            )
        await self._image.reached(revision)


def check_entity(entity: Mapping[str, str | None]) -> None:
    if not entity:
        raise InvalidRequest("a quota for nobody", hint=f"name a {' or a '.join(ENTITY_TYPES)}")
    for kind in entity:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(
                f"quotas for the entity type {kind!r} are not kept", hint=f"use {' or '.join(ENTITY_TYPES)}"
            )


def check_limits(limits: Mapping[str, float | None]) -> None:
    for name, value in limits.items():
        if name not in QUOTA_NAMES:
            raise InvalidRequest(f"unknown quota {name!r}", hint=f"use {' or '.join(QUOTA_NAMES)}")
        if value is not None and not (math.isfinite(value) and value >= 1):
            raise InvalidRequest(f"{name} cannot be {value}", hint="it must be at least 1 byte per second")


def governing_entity(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], name: str, user: str, client_id: str
) -> QuotaEntity | None:
    """Returns the entity whose limit `name` holds for this user and client id, or None if there is no limit."""
    for parts in (
        {USER: user, CLIENT_ID: client_id},
        {USER: user, CLIENT_ID: None},
        {USER: user},
        {USER: None, CLIENT_ID: client_id},
        {USER: None, CLIENT_ID: None},
        {USER: None},
        {CLIENT_ID: client_id},
        {CLIENT_ID: None},
    ):
        entity = QuotaEntity.of(parts)
        if name in quotas.get(entity, ()):
            return entity
    return None
