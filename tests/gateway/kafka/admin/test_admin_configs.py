"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs in every version."""

import pytest

from gateway.kafka.configs.view import BROKER_NAMES
from gateway.kafka.protocol.messages import alter_configs, incremental_alter_configs
from gateway.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from hot_tier.cluster import kept
from hot_tier.cluster.kept import KEPT
from hot_tier.log.config import TOPIC_SETTINGS
from tests.gateway.kafka.admin.conftest import NODE, Caller

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    call: Caller,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], True, True)
    (result,) = (await call(request, version)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def change(
    call: Caller,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "t",
    version: int = 1,
    validate_only: bool = False,
) -> tuple[int, str | None]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                kind, name, [incremental_alter_configs.AlterableConfig(*each) for each in changes]
            )
        ],
        validate_only,
    )
    (result,) = (await call(request, version)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def overrides(call: Caller) -> dict[str, str]:
    return dict(call.node.image.topic("t").config)


@pytest.fixture(autouse=True)
async def topic(call: Caller) -> None:
    await call.node.admin.create_topic("t", 1, 1, {"segment.bytes": "2048", "cleanup.policy": "compact"})


# Describing


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_shows_all_settings_and_where_they_come_from(call: Caller, version: int) -> None:
    result = await describe(call, TOPIC, "t", None, version)
    assert (result.error_code, result.error_message) == (0, None)
    shown = {config.name: config for config in result.configs}
    assert set(shown) == set(TOPIC_SETTINGS)
    segment, retention, interval = shown["segment.bytes"], shown["retention.ms"], shown["index.interval.bytes"]
    assert (segment.value, segment.config_source) == ("2048", 1)
    assert (retention.value, retention.config_source) == ("3600000", 4), "the node's own default"
    assert (interval.value, interval.config_source) == ("4096", 5)
    assert [(each.name, each.value, each.source) for each in segment.synonyms] == [
        ("segment.bytes", "2048", 1),
        ("log.segment.bytes", "1073741824", 5),
    ]
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("log.retention.ms", "3600000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    assert not any(config.read_only or config.is_sensitive for config in result.configs)
    if version >= 3:
        types = {name: config.config_type for name, config in shown.items()}
        assert types["segment.bytes"] == 3
        assert types["retention.ms"] == 5
        assert types["cleanup.policy"] == 7
        assert types["remote.storage.enable"] == 1
        assert types["min.cleanable.dirty.ratio"] == 6
        assert types["compression.type"] == 2
        assert all(config.documentation for config in result.configs)


async def test_only_what_was_asked_for(call: Caller) -> None:
    result = await describe(call, TOPIC, "t", ["retention.ms", "no.such"])
    assert [config.name for config in result.configs] == ["retention.ms"]
    assert len((await describe(call, TOPIC, "t", [])).configs) == len(TOPIC_SETTINGS)
    plain = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None)])
    (result,) = (await call(plain, 4)).results
    assert all(config.synonyms == [] and config.documentation is None for config in result.configs)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", 3),
        (TOPIC, "a/b", 17),
        (TOPIC, "", 17),
        (BROKER, "99", 42),
        (BROKER, "x", 42),
        (GROUP, "", 42),
        (0, "", 42),
        (127, "", 42),
    ],
)
async def test_what_cannot_be_described(call: Caller, kind: int, name: str, code: int) -> None:
    result = await describe(call, kind, name)
    assert (result.error_code, bool(result.error_message), result.configs) == (code, True, [])


@pytest.mark.parametrize("version", range(1, 5))
async def test_the_broker_shows_what_it_runs_with(call: Caller, version: int) -> None:
    result = await describe(call, BROKER, str(NODE), None, version)
    shown = {config.name: config.value for config in result.configs}
    assert shown["broker.id"] == "3"
    assert shown["advertised.listeners"] == "PLAINTEXT://broker.example:19092"
    assert shown["auto.create.topics.enable"] == "true"
    assert shown["num.partitions"] == "4"
    assert shown["log.retention.ms"] == "3600000"
    assert shown["log.dirs"] == call.node.logs.disk.data_dir
    assert set(BROKER_NAMES.values()) <= set(shown)
    assert {config.name for config in result.configs if not config.read_only} == set(KEPT["broker"])
    assert len(shown) == len(result.configs), "a setting is shown twice"


async def test_nothing_is_set_for_all_brokers(call: Caller) -> None:
    result = await describe(call, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])


def test_every_broker_name_stands_for_a_topic_setting() -> None:
    assert set(BROKER_NAMES) <= set(TOPIC_SETTINGS)


# Changing


async def test_settings_are_kept_for_so_many_groups(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_OWNERS", 2)
    setting = ("consumer.session.timeout.ms", SET, "1")
    codes = [(await change(call, setting, kind=GROUP, name=name))[0] for name in ("a", "b", "c", "a")]
    assert codes == [0, 0, 44, 0]
    assert await change(call, ("consumer.session.timeout.ms", DELETE, None), kind=GROUP, name="b") == (0, None)
    assert (await change(call, setting, kind=GROUP, name="c"))[0] == 0


@pytest.mark.parametrize("version", range(2))
async def test_single_settings_change(call: Caller, version: int) -> None:
    changes = (
        ("retention.ms", SET, "5000"),
        ("segment.bytes", DELETE, None),
        ("cleanup.policy", APPEND, "delete"),
    )
    assert await change(call, *changes, version=version) == (0, None)
    assert overrides(call) == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    assert await change(call, ("cleanup.policy", SUBTRACT, "compact"), version=version) == (0, None)
    assert overrides(call)["cleanup.policy"] == "delete"
    assert await change(call, ("cleanup.policy", SUBTRACT, "delete"), version=version) == (0, None)
    assert overrides(call)["cleanup.policy"] == ""
    (shown,) = (await describe(call, TOPIC, "t", ["cleanup.policy"])).configs
    assert (shown.value, shown.config_source) == ("", 1)


async def test_a_list_keeps_its_order(call: Caller) -> None:
    assert await change(call, ("cleanup.policy", SET, "delete")) == (0, None)
    assert await change(call, ("cleanup.policy", APPEND, "compact")) == (0, None)
    (shown,) = (await describe(call, TOPIC, "t", ["cleanup.policy"])).configs
    assert shown.value == "delete,compact"


@pytest.mark.parametrize("version", range(2))
async def test_throttles_of_a_single_broker_are_set_and_cleared(call: Caller, version: int) -> None:
    """kafka-reassign-partitions does so, whatever the number of brokers."""
    lists = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    broker = {"kind": BROKER, "name": str(NODE)}
    assert await change(call, *((name, SET, "0:3,1:3") for name in lists), version=version) == (0, None)
    assert overrides(call)[lists[0]] == "0:3,1:3"
    assert await change(call, *((name, SET, "5000") for name in rates), version=version, **broker) == (0, None)
    assert await change(call, *((name, DELETE, None) for name in lists), version=version) == (0, None)
    assert lists[0] not in overrides(call)
    assert await change(call, *((name, DELETE, None) for name in rates), version=version, **broker) == (0, None)
    assert (await change(call, (rates[0], SET, "fast"), **broker))[0] == 40
    assert (await change(call, (rates[0], SET, "1"), kind=BROKER, name="77"))[0] == 102


async def test_settings_of_a_group_and_of_brokers_are_kept(call: Caller) -> None:
    timeout, threads = "consumer.session.timeout.ms", "num.io.threads"
    assert await change(call, (timeout, SET, "50000"), kind=GROUP, name="g") == (0, None)
    assert (await change(call, (timeout, SET, "soon"), kind=GROUP, name="g"))[0] == 40
    assert (await change(call, (timeout, APPEND, "1"), kind=GROUP, name="g"))[0] == 40
    assert await change(call, (timeout, SET, "1"), kind=GROUP, name="h", validate_only=True) == (0, None)
    assert await change(call, (threads, SET, "2"), kind=BROKER, name="") == (0, None)
    assert (await change(call, (threads, SET, "many"), kind=BROKER, name=""))[0] == 42

    async def shown(kind: int, name: str, setting: str) -> list[tuple[str | None, int]]:
        (found,) = (await describe(call, kind, name, [setting])).configs
        assert (found.value, found.config_source) == (found.synonyms[0].value, found.synonyms[0].source)
        assert "without effect" in str(found.documentation)
        return [(each.value, each.source) for each in found.synonyms]

    assert await shown(GROUP, "g", timeout) == [("50000", 8), ("45000", 5)]
    assert await shown(GROUP, "h", timeout) == [("45000", 5)]
    assert await shown(BROKER, "", threads) == [("2", 3), ("8", 5)]
    assert await change(call, (threads, SET, "3"), kind=BROKER, name=str(NODE)) == (0, None)
    assert await shown(BROKER, str(NODE), threads) == [("3", 2), ("2", 3), ("8", 5)]
    assert await change(call, (threads, DELETE, None), kind=BROKER, name=str(NODE)) == (0, None)
    assert await shown(BROKER, str(NODE), threads) == [("2", 3), ("8", 5)]
    assert await change(call, (timeout, DELETE, None), kind=GROUP, name="g") == (0, None)
    assert await shown(GROUP, "g", timeout) == [("45000", 5)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "soon")], 40),
        ([("retention.ms", SET, None)], 42),
        ([("no.such", SET, "1")], 40),
        ([("retention.ms", APPEND, "1")], 40),
        ([("retention.ms", 9, "1")], 42),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], 42),
        ([("leader.replication.throttled.replicas", SET, "all")], 40),
        ([("compression.gzip.level", SET, "10")], 40),
    ],
)
async def test_bad_changes(call: Caller, changes: list[tuple[str, int, str | None]], code: int) -> None:
    before = overrides(call)
    got, message = await change(call, ("flush", SET, "os"), *changes)
    assert (got, bool(message)) == (code, True)
    assert overrides(call) == before


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", 3),
        (TOPIC, "a/b", 17),
        (BROKER, "3", 42),
        (BROKER, "", 42),
        (GROUP, "g", 40),
        (GROUP, "", 42),
        (16, "x", 42),
    ],
)
async def test_what_cannot_be_changed(call: Caller, kind: int, name: str, code: int) -> None:
    got, message = await change(call, ("retention.ms", SET, "1"), kind=kind, name=name)
    assert (got, bool(message)) == (code, True)


async def test_a_change_can_be_tried_out(call: Caller) -> None:
    before = overrides(call)
    assert await change(call, ("flush", SET, "os"), validate_only=True) == (0, None)
    assert (await change(call, ("flush", SET, "never"), validate_only=True))[0] == 40
    assert overrides(call) == before


async def test_a_resource_named_twice_is_left_alone(call: Caller) -> None:
    before = overrides(call)
    resource = incremental_alter_configs.AlterConfigsResource(
        TOPIC, "t", [incremental_alter_configs.AlterableConfig("flush", SET, "os")]
    )
    answer = await call(incremental_alter_configs.IncrementalAlterConfigsRequest([resource, resource]), 1)
    assert [each.error_code for each in answer.responses] == [42, 42]
    assert overrides(call) == before


@pytest.mark.parametrize("version", range(3))
async def test_all_settings_are_replaced(call: Caller, version: int) -> None:
    def replace(kind: int, name: str, **config: str | None) -> alter_configs.AlterConfigsResource:
        return alter_configs.AlterConfigsResource(
            kind, name, [alter_configs.AlterableConfig(key.replace("_", "."), value) for key, value in config.items()]
        )

    answer = await call(
        alter_configs.AlterConfigsRequest(
            [
                replace(TOPIC, "t", retention_ms="5000"),
                replace(TOPIC, "missing", retention_ms="5000"),
                replace(BROKER, "3", num_partitions="9"),
                replace(BROKER, "", num_io_threads="9"),
                replace(GROUP, "g", consumer_session_timeout_ms="9"),
            ]
        ),
        version,
    )
    assert [each.error_code for each in answer.responses] == [0, 3, 42, 0, 0]
    image = call.node.image
    assert image.kept_settings("broker", "") == {"num.io.threads": "9"}
    assert image.kept_settings("group", "g") == {"consumer.session.timeout.ms": "9"}
    rates = replace(BROKER, "3", follower_replication_throttled_rate="1", num_io_threads="2")
    answer = await call(alter_configs.AlterConfigsRequest([replace(BROKER, ""), replace(GROUP, "g"), rates]), version)
    assert [each.error_code for each in answer.responses] == [0, 0, 0]
    assert not image.kept_settings("broker", "") and not image.kept_settings("group", "g")
    assert overrides(call) == {"retention.ms": "5000"}
    for bad, code in (({"retention_ms": "soon"}, 40), ({"retention_ms": None}, 42), ({"no_such": "1"}, 40)):
        answer = await call(alter_configs.AlterConfigsRequest([replace(TOPIC, "t", **bad)]), version)
        assert [each.error_code for each in answer.responses] == [code]
    trial = alter_configs.AlterConfigsRequest([replace(TOPIC, "t")], validate_only=True)
    assert [each.error_code for each in (await call(trial, version)).responses] == [0]
    assert overrides(call) == {"retention.ms": "5000"}


async def test_more_settings_than_there_are_is_refused(call: Caller) -> None:
    before = overrides(call)
    code, message = await change(call, *[("flush", SET, "os")] * 201)
    assert code == 42 and message is not None and "more than 200 settings" in message
    assert overrides(call) == before
