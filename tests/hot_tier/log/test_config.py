import pytest

from hot_tier.errors import InvalidConfig
from hot_tier.log.config import (
    TOPIC_SETTINGS,
    ConfigType,
    TopicConfig,
    describe_topic_config,
    parse_topic_config,
)

DEFAULTS = TopicConfig()


def test_overrides_take_their_types_and_leave_the_rest() -> None:
    config = parse_topic_config(
        {"retention.ms": "-1", "cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.1"},
        DEFAULTS,
    )
    assert config.retention_ms == -1
    assert set(config.cleanup_policy) == {"compact", "delete"}
    assert config.compacted
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.segment_bytes == DEFAULTS.segment_bytes


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("retention.ms", "soon", "whole number"),
        ("retention.ms", "-2", "from -1"),
        ("segment.bytes", "12", "from 1024"),
        ("segment.bytes", str(2**31), "2147483647"),
        ("cleanup.policy", "shred", "delete, compact"),
        ("cleanup.policy", "delete,", "delete, compact"),
        ("follower.replication.throttled.replicas", "0:1,x", "partition:broker"),
        ("compression.lz4.level", "0", "from 1 to 17"),
        ("min.cleanable.dirty.ratio", "nan", "0 to 1"),
        ("min.cleanable.dirty.ratio", "1.5", "0 to 1"),
        ("remote.storage.enable", "yes", "true or false"),
        ("message.timestamp.type", "Never", "CreateTime"),
        ("compression.type", "brotli", "zstd"),
    ],
)
def test_a_bad_value_is_refused_with_what_it_may_be(name: str, text: str, hint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_topic_config({name: text}, DEFAULTS)
    assert caught.value.where == name
    assert repr(text) in caught.value.what
    assert hint in caught.value.hint


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"retention\.hours"):
        parse_topic_config({"retention.hours": "1"}, DEFAULTS)


@pytest.mark.parametrize(
    "overrides",
    [
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"local.retention.ms": "10", "retention.ms": "5"},
        {"local.retention.bytes": "-1", "retention.bytes": "5"},
    ],
)
def test_values_that_contradict_each_other_are_refused(overrides: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        parse_topic_config(overrides, DEFAULTS)


def test_what_is_described_parses_to_the_same_config() -> None:
    config = parse_topic_config({"cleanup.policy": "compact", "flush": "os", "segment.ms": "60000"}, DEFAULTS)
    entries = describe_topic_config(config, {"flush": "os"})
    assert {entry.name for entry in entries} == set(TOPIC_SETTINGS)
    assert parse_topic_config({entry.name: entry.value for entry in entries}, DEFAULTS) == config
    by_name = {entry.name: entry for entry in entries}
    assert by_name["flush"].source == "topic"
    assert not by_name["flush"].is_default
    assert by_name["retention.ms"].source == "default"
    assert by_name["remote.storage.enable"].type is ConfigType.BOOLEAN
    assert by_name["remote.storage.enable"].value == "false"


def test_one_record_per_flush_means_commit() -> None:
    assert parse_topic_config({"flush": "os", "flush.messages": "1"}, DEFAULTS).flush_before_ack
    assert not parse_topic_config({"flush": "os"}, DEFAULTS).flush_before_ack
