"""Quota limits are kept per entity, and the most specific one governs."""

import asyncio
import math

import pytest

from hot_tier.cluster.model import QuotaEntity
from hot_tier.cluster.quotas import QuotaAdmin, QuotaAlteration, governing_entity
from hot_tier.errors import InvalidRequest
from tests.hot_tier.cluster.conftest import Metadata


@pytest.fixture
def quotas(metadata: Metadata) -> QuotaAdmin:
    return QuotaAdmin(metadata.store, metadata.image)


async def test_limits_are_shown_merged_and_taken_away(metadata: Metadata, quotas: QuotaAdmin) -> None:
    client = {"client-id": "app"}
    assert await quotas.alter([QuotaAlteration(client, {"producer_byte_rate": 1000.0})]) == [None]
    assert await quotas.alter([QuotaAlteration(client, {"consumer_byte_rate": 2000.0})]) == [None]
    entity = QuotaEntity.of(client)
    assert dict(metadata.image.quotas[entity]) == {"producer_byte_rate": 1000, "consumer_byte_rate": 2000}
    await quotas.alter([QuotaAlteration(client, {"producer_byte_rate": None})])
    assert dict(metadata.image.quotas[entity]) == {"consumer_byte_rate": 2000}
    await quotas.alter([QuotaAlteration(client, {"consumer_byte_rate": None, "producer_byte_rate": None})])
    assert entity not in metadata.image.quotas
    assert (await metadata.store.range("quotas/")).items == ()


async def test_users_are_accepted_before_they_exist(metadata: Metadata, quotas: QuotaAdmin) -> None:
    for entity in ({"user": None}, {"user": "ann"}, {"user": "ann", "client-id": None}, {"client-id": None}):
        assert await quotas.alter([QuotaAlteration(entity, {"producer_byte_rate": 7.0})]) == [None]
        assert QuotaEntity.of(entity) in metadata.image.quotas


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"client-id": "a"}, {"request_percentage": 1.0}),
        ({"client-id": "a"}, {"producer_byte_rate": 0.0}),
        ({"client-id": "a"}, {"producer_byte_rate": -5.0}),
        ({"client-id": "a"}, {"producer_byte_rate": math.nan}),
        ({"client-id": "a"}, {"producer_byte_rate": math.inf}),
    ],
)
async def test_bad_alterations_are_refused_alone(
    metadata: Metadata, quotas: QuotaAdmin, entity: dict[str, str | None], limits: dict[str, float | None]
) -> None:
    refused, done = await quotas.alter(
        [QuotaAlteration(entity, limits), QuotaAlteration({"client-id": "b"}, {"producer_byte_rate": 1.0})]
    )
    assert type(refused) is InvalidRequest
    assert done is None
    assert list(metadata.image.quotas) == [QuotaEntity.of({"client-id": "b"})]


async def test_an_alteration_can_be_tried_out(metadata: Metadata, quotas: QuotaAdmin) -> None:
    alteration = QuotaAlteration({"client-id": "a"}, {"producer_byte_rate": 1.0})
    assert await quotas.alter([alteration], validate_only=True) == [None]
    assert not metadata.image.quotas


async def test_alterations_from_two_sides_are_both_kept(metadata: Metadata, quotas: QuotaAdmin) -> None:
    await asyncio.gather(
        quotas.alter([QuotaAlteration({"user": "a"}, {"producer_byte_rate": 1.0})]),
        quotas.alter([QuotaAlteration({"user": "a"}, {"consumer_byte_rate": 2.0})]),
    )
    assert len(metadata.image.quotas[QuotaEntity.of({"user": "a"})]) == 2


def test_the_most_specific_limit_governs() -> None:
    """Kafka's order, taken away one by one from the top."""
    order: list[dict[str, str | None]] = [
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"user": "u"},
        {"user": None, "client-id": "c"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
    ]
    limits = {QuotaEntity.of(parts): {"producer_byte_rate": 1.0} for parts in order}
    limits[QuotaEntity.of({"user": "other", "client-id": "c"})] = {"producer_byte_rate": 1.0}
    for parts in order:
        assert governing_entity(limits, "producer_byte_rate", "u", "c") == QuotaEntity.of(parts)
        assert governing_entity(limits, "consumer_byte_rate", "u", "c") is None
        limits[QuotaEntity.of(parts)] = {"consumer_byte_rate_of_old": 1.0}
    assert governing_entity(limits, "producer_byte_rate", "u", "c") is None
