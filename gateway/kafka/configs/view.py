"""Settings as Kafka's tools show them: a topic's, with the source of each value, and this broker's.

In Kafka most topic settings have a second name: the broker setting that is their default. Tools show both. A topic
without an override uses the node's default (`topic.*` in its settings file), and without that the built-in one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from gateway.kafka.configs.throttles import FOLLOWER_RATE
from gateway.node import Node
from hot_tier.cluster import kept as kept_settings
from hot_tier.cluster.model import Topic
from hot_tier.cluster.placement import count_hosts, places_of
from hot_tier.log.config import (
    TOPIC_SETTINGS,
    ConfigType,
    TopicConfig,
    describe_topic_config,
    parse_topic_config,
)

BROKER_NAMES: Final[Mapping[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "preallocate": "log.preallocate",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
}
"""Topic setting → the broker setting that is its default in Kafka, if there is one."""

BUILT_IN: Final = TopicConfig()
NAMES: Final = {"plaintext": "PLAINTEXT", "tls": "SSL", "sasl_plaintext": "SASL_PLAINTEXT", "sasl_tls": "SASL_SSL"}
"""How Kafka names the protocols of listeners."""
KEPT_DOC: Final = "Kept for Kafka's tools, without effect here."


class Source(IntEnum):
    """The numbers are those of Kafka's DescribeConfigs."""

    TOPIC = 1
    ONE_BROKER = 2
    ALL_BROKERS = 3
    NODE = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    value: str
    source: Source
    type: ConfigType
    doc: str
    synonyms: Sequence[Synonym]
    """The value's source first, then what would apply without it, and so on."""
    read_only: bool = False


def topic_entries(topic: Topic, defaults: TopicConfig) -> list[Entry]:
    config = parse_topic_config(topic.config, defaults)
    entries = []
    for described in describe_topic_config(config, topic.config):
        name = described.name
        synonyms = list(_default_synonyms(name, BROKER_NAMES.get(name, name), defaults))
        if not described.is_default:
            synonyms.insert(0, Synonym(name, described.value, Source.TOPIC))
        entries.append(Entry(name, described.value, synonyms[0].source, described.type, described.doc, synonyms))
    return entries


def broker_entries(node: Node) -> list[Entry]:
    """Returns what this broker runs with, under Kafka's names, and the settings that are only stored for it."""
    image = node.image
    kept = (
        (Source.ONE_BROKER, image.kept_settings(kept_settings.BROKER, str(node.node_id))),
        (Source.ALL_BROKERS, image.kept_settings(kept_settings.BROKER, "")),
    )
    return [
        *_own_entries(node),
        *_topic_default_entries(node.admin.defaults),
        *_kept_entries(kept_settings.BROKER, kept),
    ]


def all_brokers_entries(node: Node) -> list[Entry]:
    """Returns only the settings that were set for all brokers together."""
    kept = ((Source.ALL_BROKERS, node.image.kept_settings(kept_settings.BROKER, "")),)
    return [each for each in _kept_entries(kept_settings.BROKER, kept) if each.source is Source.ALL_BROKERS]


def group_entries(group: str, node: Node) -> list[Entry]:
    return list(
        _kept_entries(kept_settings.GROUP, ((Source.GROUP, node.image.kept_settings(kept_settings.GROUP, group)),))
    )


def _kept_entries(kind: str, kept: Sequence[tuple[Source, Mapping[str, str]]]) -> Iterator[Entry]:
    for name, setting in kept_settings.KEPT[kind].items():
        synonyms = [Synonym(name, held[name], source) for source, held in kept if name in held]
        synonyms.append(Synonym(name, setting.default, Source.DEFAULT))
        first = synonyms[0]
        yield Entry(name, first.value, first.source, setting.kind.type, KEPT_DOC, synonyms)


def _topic_default_entries(defaults: TopicConfig) -> Iterator[Entry]:
    for name, broker_name in BROKER_NAMES.items():
        kind, doc = TOPIC_SETTINGS[name].metadata["kind"], TOPIC_SETTINGS[name].metadata["doc"]
        synonyms = list(_default_synonyms(name, broker_name, defaults))
        first = synonyms[0]
        yield Entry(broker_name, first.value, first.source, kind.type, doc, synonyms, read_only=True)


def _default_synonyms(name: str, shown_as: str, defaults: TopicConfig) -> Iterator[Synonym]:
    setting = TOPIC_SETTINGS[name]
    render = setting.metadata["kind"].render
    here, built_in = getattr(defaults, setting.name), getattr(BUILT_IN, setting.name)
    if here != built_in:
        yield Synonym(shown_as, render(here), Source.NODE)
    yield Synonym(shown_as, render(built_in), Source.DEFAULT)


def _own_entries(node: Node) -> Iterator[Entry]:
    kafka, cluster = node.kafka, node.admin.settings
    own = node.image.broker(node.node_id)
    endpoints = own.endpoints.values() if own is not None else ()
    advertised = ",".join(f"{NAMES[at.protocol]}://{at}" for at in endpoints if at.protocol in NAMES)
    for name, value, doc in (
        ("broker.id", int(node.node_id), "This broker's number."),
        ("node.id", int(node.node_id), "This broker's number."),
        ("broker.rack", cluster.rack, "Where this broker stands."),
        ("listeners", f"PLAINTEXT://{kafka.host}:{kafka.port}", "Where it listens."),
        ("advertised.listeners", advertised, "Where clients are told to connect."),
        ("log.dirs", node.logs.disk.data_dir, "Where logs are kept."),
        ("num.partitions", cluster.num_partitions, "Partitions of a topic made without saying how many."),
        (
            "default.replication.factor",
            cluster.replication_factor(count_hosts(places_of(node.image.brokers()))),
            "Replicas of such a topic.",
        ),
        (FOLLOWER_RATE, _reassignment_rate(node), "Bytes per second for replicas that it is getting; 0 is no limit."),
        ("auto.create.topics.enable", kafka.auto_create_topics, "Whether asking for a topic may create it."),
        ("delete.topic.enable", True, "Topics can be deleted."),
        ("socket.request.max.bytes", kafka.max_request_bytes, "Largest request."),
        ("connections.max.idle.ms", kafka.connections_max_idle_ms, "When silent connections are closed."),
        ("max.connections", kafka.max_connections, "Connections over all clients."),
        ("max.connections.per.ip", kafka.max_connections_per_ip, "Connections from one address."),
        ("fetch.max.bytes", kafka.fetch_max_bytes, "Most record bytes in one fetch response."),
        ("max.incremental.fetch.session.cache.slots", kafka.max_fetch_sessions, "Fetch sessions kept."),
    ):
        text = _text(value)
        yield Entry(name, text, Source.NODE, _type(value), doc, [Synonym(name, text, Source.NODE)], read_only=True)


def _reassignment_rate(node: Node) -> int:
    record = node.image.node(node.node_id)
    asked = None if record is None else record.reassignment_bytes_per_second
    return node.admin.settings.reassignment_bytes_per_second if asked is None else asked


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _type(value: Any) -> ConfigType:
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    return ConfigType.LONG if isinstance(value, int) else ConfigType.STRING
