"""A topic's settings: Kafka's names, typed values, and how each is read from text and shown again.

The fields of `TopicConfig` are the whole list. Each carries its Kafka name, what it means, and the `Kind`
that reads, checks and renders it: parsing, DescribeConfigs and the reference page come from one place.

A `TopicConfig` is always valid: it is made by `parse_topic_config`, which names the key, the value and what
it may be when it refuses. Overrides stay text in cluster metadata; this module gives them their meaning.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from hot_tier.errors import InvalidConfig

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


class ConfigType(IntEnum):
    """The type of a value. The numbers are those of Kafka's DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Kind:
    """Reads and shows one kind of setting. `parse` raises ValueError; `allowed` says which values pass."""

    type: ConfigType
    allowed: str
    parse: Callable[[str], Any]
    render: Callable[[Any], str] = str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    member: str = ""
    """Bounds, words and the form of a text or of a list's members as data, for descriptions that a machine reads."""


def whole(type_: ConfigType, low: int, high: int) -> Kind:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return Kind(type_, f"a whole number from {low} to {high}", parse, low=low, high=high)


def _int(low: int, high: int = MAX_INT) -> Kind:
    return whole(ConfigType.INT, low, high)


def _long(low: int, high: int = MAX_LONG) -> Kind:
    return whole(ConfigType.LONG, low, high)


def _ratio() -> Kind:
    def parse(text: str) -> float:
        value = float(text)
        if math.isnan(value) or not 0.0 <= value <= 1.0:
            raise ValueError(text)
        return value

    return Kind(ConfigType.DOUBLE, "a number from 0 to 1", parse, low=0, high=1)


def boolean() -> Kind:
    def parse(text: str) -> bool:
        return {"true": True, "false": False}[text.strip().lower()]

    return Kind(ConfigType.BOOLEAN, "true or false", parse, lambda value: "true" if value else "false")


def one_of(*choices: str) -> Kind:
    def parse(text: str) -> str:
        value = text.strip()
        if value not in choices:
            raise ValueError(text)
        return value

    return Kind(ConfigType.STRING, "one of " + ", ".join(choices), parse, choices=choices)


def _key_name() -> Kind:
    member = r"|[A-Za-z0-9][A-Za-z0-9._-]{0,99}|aws-kms:[A-Za-z0-9:/_-]{1,2000}"

    def parse(text: str) -> str:
        value = text.strip()
        if not re.fullmatch(member, value):
            raise ValueError(text)
        return value

    return Kind(ConfigType.STRING, "the name of a key, aws-kms: and a key of AWS KMS, or empty", parse, member=member)


def _list(allowed: str, member: str) -> Kind:
    form = re.compile(member)

    def parse(text: str) -> tuple[str, ...]:
        values = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text.strip() else ()
        if not all(map(form.fullmatch, values)):
            raise ValueError(text)
        return values

    return Kind(ConfigType.LIST, f"{allowed}, separated by commas, or empty", parse, ",".join, member=member)


def _some_of(*choices: str) -> Kind:
    return _list("some of " + ", ".join(choices), "|".join(choices))


def _replicas() -> Kind:
    return _list("* or pairs of partition:broker", r"\*|[0-9]+:[0-9]+")


def _setting(name: str, kind: Kind, default: Any, doc: str) -> Any:
    return field(default=default, metadata={"name": name, "kind": kind, "doc": doc})


NO_EFFECT: Final = "Kept for Kafka's tools, without effect here:"
ALL_THROTTLED: Final = "a limit on a broker's replication holds for every replica that it is getting."

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class TopicConfig:
    cleanup_policy: Collection[str] = _setting(
        "cleanup.policy",
        _some_of("delete", "compact"),
        ("delete",),
        "What happens to old records: deleted by retention, compacted to the latest per key, both, or none if empty.",
    )
    retention_ms: int = _setting(
        "retention.ms",
        _long(-1),
        7 * DAY_MS,
        "How long records are kept in either tier before they may be deleted; -1 keeps them for ever.",
    )
    retention_bytes: int = _setting(
        "retention.bytes",
        _long(-1),
        -1,
        "How many bytes a partition may hold before its oldest segments are deleted; -1 sets no limit.",
    )
    local_retention_ms: int = _setting(
        "local.retention.ms",
        _long(-2),
        -2,
        "How long archived records also stay on local disk; -2 means as long as retention.ms.",
    )
    local_retention_bytes: int = _setting(
        "local.retention.bytes",
        _long(-2),
        -2,
        "How many bytes of archived records also stay on local disk; -2 means as many as retention.bytes.",
    )
    segment_bytes: int = _setting(
        "segment.bytes", _int(1024), 2**30, "A segment is closed before it would grow beyond this size."
    )
    segment_ms: int = _setting(
        "segment.ms",
        _long(1),
        7 * DAY_MS,
        "A segment is closed when its first record is older than this, even if no write arrives.",
    )
    segment_jitter_ms: int = _setting(
        "segment.jitter.ms",
        _long(0),
        0,
        "At most this much is taken off segment.ms, differently for each segment, to spread the rolling.",
    )
    index_interval_bytes: int = _setting(
        "index.interval.bytes", _int(0), 4096, "An index entry is made about every so many bytes of log."
    )
    segment_index_bytes: int = _setting(
        "segment.index.bytes",
        _int(64),
        10 * 2**20,
        "A segment is closed when its index would grow beyond this size.",
    )
    max_message_bytes: int = _setting(
        "max.message.bytes", _int(0), 1_048_588, "The largest record batch that is accepted, as it is sent."
    )
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = _setting(
        "message.timestamp.type",
        one_of("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whether records carry the producer's time or the time at which the broker took them.",
    )
    message_timestamp_before_max_ms: int = _setting(
        "message.timestamp.before.max.ms",
        _long(0),
        MAX_LONG,
        "How far a record's timestamp may lie before the broker's clock.",
    )
    message_timestamp_after_max_ms: int = _setting(
        "message.timestamp.after.max.ms",
        _long(0),
        HOUR_MS,
        "How far a record's timestamp may lie after the broker's clock.",
    )
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = _setting(
        "compression.type",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "producer",
        "The codec batches are stored in; 'producer' stores them as they come, anything else compresses "
        "batches anew on the broker and costs its processor.",
    )
    min_insync_replicas: int = _setting(
        "min.insync.replicas",
        _int(1),
        1,
        "With acks=all, the number of in-sync replicas without which a write is refused.",
    )
    unclean_leader_election_enable: bool = _setting(
        "unclean.leader.election.enable",
        boolean(),
        False,
        "Whether a replica outside the in-sync set may lead when no other is left; acknowledged records may be lost.",
    )
    delete_retention_ms: int = _setting(
        "delete.retention.ms",
        _long(0),
        DAY_MS,
        "How long a delete marker (a key with a null value) stays in a compacted log after it was compacted.",
    )
    min_compaction_lag_ms: int = _setting(
        "min.compaction.lag.ms", _long(0), 0, "Records younger than this are never compacted away."
    )
    max_compaction_lag_ms: int = _setting(
        "max.compaction.lag.ms",
        _long(1),
        MAX_LONG,
        "A log with uncompacted records older than this is compacted whatever its dirty ratio.",
    )
    min_cleanable_dirty_ratio: float = _setting(
        "min.cleanable.dirty.ratio",
        _ratio(),
        0.5,
        "A log is compacted when this share of its bytes is not compacted yet.",
    )
    file_delete_delay_ms: int = _setting(
        "file.delete.delay.ms",
        _long(0),
        60_000,
        "How long a deleted segment's files stay for readers in flight.",
    )
    flush: Literal["commit", "os"] = _setting(
        "flush",
        one_of("commit", "os"),
        "commit",
        "'commit' syncs every record to the disk before it is acknowledged or shown; 'os' leaves that to the "
        "page cache, so that a power loss may take the newest records.",
    )
    flush_messages: int = _setting(
        "flush.messages",
        _long(1),
        MAX_LONG,
        "With flush=os, sync after so many records; 1 is the same as flush=commit.",
    )
    flush_ms: int = _setting("flush.ms", _long(0), MAX_LONG, "With flush=os, sync records that waited this long.")
    remote_storage_enable: bool = _setting(
        "remote.storage.enable", boolean(), False, "Whether sealed segments are archived to the bucket."
    )
    archive_encryption_key: str = _setting(
        "archive.encryption.key",
        _key_name(),
        "",
        "The key that encrypts keys, values and headers in the bucket: a name in the file `store.keys_file`, or "
        "`aws-kms:` and a key of AWS KMS; empty: they are not encrypted.",
    )
    compression_gzip_level: int = _setting(
        "compression.gzip.level",
        whole(ConfigType.INT, -1, 9),
        -1,
        f"{NO_EFFECT} the broker compresses at level 6.",
    )
    compression_lz4_level: int = _setting(
        "compression.lz4.level", _int(1, 17), 9, f"{NO_EFFECT} the broker compresses at the fastest level."
    )
    compression_zstd_level: int = _setting(
        "compression.zstd.level",
        _int(-131072, 22),
        3,
        f"{NO_EFFECT} the broker compresses at level 3.",
    )
    preallocate: bool = _setting(
        "preallocate", boolean(), False, f"{NO_EFFECT} the files of segments grow as they are written."
    )
    remote_log_copy_disable: bool = _setting(
        "remote.log.copy.disable",
        boolean(),
        False,
        f"{NO_EFFECT} a topic is archived while remote.storage.enable is true.",
    )
    remote_log_delete_on_disable: bool = _setting(
        "remote.log.delete.on.disable",
        boolean(),
        False,
        f"{NO_EFFECT} remote.storage.enable cannot be switched off again.",
    )
    leader_replication_throttled_replicas: Collection[str] = _setting(
        "leader.replication.throttled.replicas", _replicas(), (), f"{NO_EFFECT} {ALL_THROTTLED}"
    )
    follower_replication_throttled_replicas: Collection[str] = _setting(
        "follower.replication.throttled.replicas", _replicas(), (), f"{NO_EFFECT} {ALL_THROTTLED}"
    )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def flush_before_ack(self) -> bool:
        return self.flush == "commit" or self.flush_messages == 1

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


TOPIC_SETTINGS: Final[Mapping[str, Field[Any]]] = MappingProxyType(
    {each.metadata["name"]: each for each in fields(TopicConfig)}
)
"""Every topic setting by its Kafka name; `metadata` holds `name`, `kind` and `doc`."""


class ConfigEntry(NamedTuple):
    name: str
    value: str
    type: ConfigType
    doc: str
    is_default: bool
    source: Literal["topic", "default"]


def parse_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(
                f"unknown topic setting {name!r}", where=name, hint="see docs/SETTINGS.md for the names"
            )
        kind: Kind = setting.metadata["kind"]
        try:
            values[setting.name] = kind.parse(text)
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InvalidConfig(f"{name} cannot be {text!r}", where=name, hint=f"it must be {kind.allowed}") from None
    config = replace(defaults, **values)
    _check_together(config)
    return config


def describe_topic_config(config: TopicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            name=name,
            value=setting.metadata["kind"].render(getattr(config, setting.name)),
            type=setting.metadata["kind"].type,
            doc=setting.metadata["doc"],
            is_default=name not in overrides,
            source="topic" if name in overrides else "default",
        )
        for name, setting in TOPIC_SETTINGS.items()
    ]


def _check_together(config: TopicConfig) -> None:
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            f"min.compaction.lag.ms {config.min_compaction_lag_ms} is above "
            f"max.compaction.lag.ms {config.max_compaction_lag_ms}",
            where="min.compaction.lag.ms",
            hint="lower it, or raise max.compaction.lag.ms",
        )
    for unit in ("ms", "bytes"):
        local = getattr(config, f"local_retention_{unit}")
        total = getattr(config, f"retention_{unit}")
        if total >= 0 and (local == -1 or local > total):
            raise InvalidConfig(
                f"local.retention.{unit} {local} is above retention.{unit} {total}",
                where=f"local.retention.{unit}",
                hint=f"lower it, raise retention.{unit}, or use -2 to follow retention.{unit}",
            )
