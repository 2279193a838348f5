"""DescribeClientQuotas and AlterClientQuotas: filters, refusals, and that a limit set here holds."""

import math

import pytest

from gateway.kafka.errors import UnsupportedVersion
from gateway.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from gateway.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from hot_tier.errors import InvalidRequest
from tests.gateway.kafka.admin.conftest import Caller

Parts = dict[str, str | None]


async def alter(
    call: Caller,
    parts: Parts,
    *,
    version: int = 1,
    validate_only: bool = False,
    **limits: float | None,
) -> tuple[int, str | None]:
    entry = RequestEntryData(
        [RequestEntityData(kind, name) for kind, name in parts.items()],
        [OpData(key, value or 0.0, value is None) for key, value in limits.items()],
    )
    (result,) = (await call(AlterClientQuotasRequest([entry], validate_only), version)).entries
    assert {part.entity_type: part.entity_name for part in result.entity} == parts
    return result.error_code, result.error_message


async def describe(
    call: Caller,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
) -> list[tuple[Parts, dict[str, float]]]:
    request = DescribeClientQuotasRequest([ComponentData(*each) for each in components], strict)
    answer = await call(request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.entries is not None, "Java iterates over it"
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.mark.parametrize("version", range(2))
async def test_set_show_and_take_away(call: Caller, version: int) -> None:
    assert await describe(call, version=version) == []
    app: Parts = {"client-id": "app"}
    assert await alter(call, app, producer_byte_rate=1024.0, consumer_byte_rate=2048.0, version=version) == (0, None)
    assert await describe(call, version=version) == [
        (app, {"consumer_byte_rate": 2048.0, "producer_byte_rate": 1024.0})
    ]
    await alter(call, app, producer_byte_rate=None, version=version)
    assert await describe(call, version=version) == [(app, {"consumer_byte_rate": 2048.0})]
    await alter(call, app, consumer_byte_rate=None, version=version)
    assert await describe(call, version=version) == []


async def test_a_limit_set_here_holds(call: Caller) -> None:
    assert call.node.quotas.charge("app", "produce", 1 << 30, 0) == 0
    await alter(call, {"client-id": None}, producer_byte_rate=1000.0)
    assert call.node.quotas.charge("app", "produce", 11_000, 0) == 1000


ENTITIES: list[Parts] = [
    {"client-id": None},
    {"client-id": "a"},
    {"client-id": "b"},
    {"user": None},
    {"user": "a"},
    {"user": "a", "client-id": "a"},
    {"user": "a", "client-id": None},
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [0, 1, 2, 3, 4, 5, 6]),
        ([], True, []),
        ([("client-id", 0, "a")], True, [1]),
        ([("client-id", 0, "a")], False, [1, 5]),
        ([("client-id", 1, None)], True, [0]),
        ([("client-id", 1, None)], False, [0, 6]),
        ([("client-id", 2, None)], True, [0, 1, 2]),
        ([("user", 2, None)], True, [3, 4]),
        ([("user", 2, None)], False, [3, 4, 5, 6]),
        ([("user", 0, "a"), ("client-id", 2, None)], True, [5, 6]),
        ([("user", 0, "nobody")], False, []),
        ([("ip", 2, None)], False, []),
    ],
)
async def test_filters(
    call: Caller,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    expected: list[int],
) -> None:
    for parts in ENTITIES:
        assert (await alter(call, parts, producer_byte_rate=5.0))[0] == 0
    found = [parts for parts, _ in await describe(call, *components, strict=strict)]
    assert sorted(map(ENTITIES.index, found)) == expected


@pytest.mark.parametrize(
    "components",
    [
        [("user", 3, None)],
        [("user", 0, None)],
        [("user", 1, "a")],
        [("user", 2, "a")],
        [("user", 2, None), ("user", 2, None)],
        [("ip", 2, None), ("user", 2, None)],
    ],
)
async def test_bad_filters(call: Caller, components: list[tuple[str, int, str | None]]) -> None:
    with pytest.raises(InvalidRequest):
        await describe(call, *components)


async def test_an_unknown_entity_type_may_be_of_a_later_version(call: Caller) -> None:
    with pytest.raises(UnsupportedVersion):
        await describe(call, ("colour", 2, None))


@pytest.mark.parametrize(
    ("parts", "limits"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"client-id": "a"}, {"no_such_rate": 1.0}),
        ({"client-id": "a"}, {"producer_byte_rate": -1.0}),
        ({"client-id": "a"}, {"producer_byte_rate": math.nan}),
    ],
)
async def test_bad_alterations(call: Caller, parts: Parts, limits: dict[str, float]) -> None:
    code, message = await alter(call, parts, **limits)
    assert (code, bool(message)) == (42, True)
    assert await describe(call) == []


async def test_what_is_named_twice_is_refused_and_the_rest_done(call: Caller) -> None:
    op = [OpData("producer_byte_rate", 5.0)]
    twice = RequestEntryData([RequestEntityData("user", "a")], op)
    entries = [
        twice,
        twice,
        RequestEntryData([RequestEntityData("user", "b"), RequestEntityData("user", "c")], op),
        RequestEntryData([RequestEntityData("user", "d")], op * 2),
        RequestEntryData([RequestEntityData("user", "e")], op),
    ]
    answer = await call(AlterClientQuotasRequest(entries), 1)
    assert [entry.error_code for entry in answer.entries] == [42, 42, 42, 42, 0]
    assert await describe(call) == [({"user": "e"}, {"producer_byte_rate": 5.0})]


async def test_an_alteration_can_be_tried_out(call: Caller) -> None:
    assert await alter(call, {"user": "a"}, producer_byte_rate=5.0, validate_only=True) == (0, None)
    assert await describe(call) == []
