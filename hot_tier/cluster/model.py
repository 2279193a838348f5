"""What cluster metadata says, as values, and how it is written in the store.

Every key is made and parsed here and nowhere else:

    cluster                             {"id", "format"}             the cluster's name for clients; see `FORMAT`
    controller                          {"node"}                     who decides; in a cluster under its holder's lease
    brokers/<node>                      BrokerInfo                   while it lives; in a cluster under its lease
    nodes/<node>                        NodeRecord                   what outlives its registrations
    topics/<name>                       Topic
    partitions/<topic id>/<partition>   PartitionState
    deleted/<topic id>                  DeletedTopic                 until every copy is surely gone
    archived/<topic id>/<partition>     Archived                     how far the leader has archived it
    kept/<kind>/<name>                  {setting: text}              see `hot_tier.cluster.kept`
    users/<name>                        {mechanism: credential}      see `hot_tier.cluster.credentials`
    quotas/<entity>                     limits, see `hot_tier.cluster.quotas`
    producer-ids                        {"next"}                     see `hot_tier.cluster.producer_ids`
    failures/<group>/<topic id>/<partition>                          see `gateway.delivery.failed_deliveries`
    acls/…                              access rules, see `hot_tier.cluster.acls`

Values are JSON. A reader ignores fields it does not know, so that a newer broker may add some.

A topic exists exactly while its `topics/` key does. Partition states are written before that key and removed
after it, so that a state without a topic means nothing and a topic without its states cannot be seen.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

import orjson

from hot_tier.cluster.endpoints import PEERS, Endpoint, Endpoints, endpoints_as_json, endpoints_from_json, first_for
from hot_tier.cluster.store import ABSENT, LeaseId, Revision
from hot_tier.errors import BrokerUnreachable, CorruptMetadata
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicId

FORMAT: Final = 1
"""Of all keys and values together. Every broker must know the one that the key `cluster` names; missing there: 1."""
OLDEST_VERSION: Final = "0.1.0"  # of a registration that does not say

NO_NODE: Final = NodeId(-1)
NO_LEASE: Final = LeaseId(0)

CLUSTER_KEY: Final = "cluster"
CONTROLLER_KEY: Final = "controller"
PRODUCER_IDS_KEY: Final = "producer-ids"
BROKERS_PREFIX: Final = "brokers/"
NODES_PREFIX: Final = "nodes/"
TOPICS_PREFIX: Final = "topics/"
PARTITIONS_PREFIX: Final = "partitions/"
DELETED_PREFIX: Final = "deleted/"
ARCHIVED_PREFIX: Final = "archived/"
KEPT_PREFIX: Final = "kept/"
USERS_PREFIX: Final = "users/"
SALTS_KEY: Final = "salts"
QUOTAS_PREFIX: Final = "quotas/"
FAILURES_PREFIX: Final = "failures/"


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: TopicId
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    """Only what differs from the node's defaults, as text by Kafka's names."""
    created_ms: int
    internal: bool = False
    version: Revision = field(default=ABSENT, compare=False)
    """The store's revision of this value, what the next compare-and-swap compares; never written itself."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    replicas: tuple[NodeId, ...]
    """The first is the preferred leader."""
    adding: tuple[NodeId, ...] = ()
    """Members of `replicas` that a reassignment under way brings in."""
    removing: tuple[NodeId, ...] = ()
    """Members of `replicas` that go once all others are in sync."""
    version: Revision = field(default=ABSENT, compare=False)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: NodeId
    endpoints: Endpoints
    """Where clients and other brokers reach it, by the names of its listeners."""
    rack: str | None = None
    lease: LeaseId = NO_LEASE
    """The lease of its registration. Others can end it when its process is surely gone."""
    data_id: str = ""
    """Which data directory it runs on."""
    draining: bool = False
    """It stops or is to be emptied: it gets no leadership and no new replicas."""
    version: str = OLDEST_VERSION
    """The version of its software, to be shown to people."""
    host_name: str | None = None  # of its machine, where several brokers may run
    epoch: Revision = field(default=ABSENT, compare=False)
    """The store's revision of this registration: one incarnation of the broker; never written itself."""

    def for_peers(self, protocols: Collection[str]) -> Endpoint:
        """Returns where other brokers reach it. Raises BrokerUnreachable if it has no such listener for them."""
        found = first_for(self.endpoints, PEERS, protocols)
        if found is None:
            spoken = " or ".join(sorted(protocols))
            raise BrokerUnreachable(
                f"broker {self.id} has no listener that takes peers and speaks {spoken}",
                hint="add peers to `takes` of one of its listeners",
            )
        return found


class Identity(NamedTuple):
    """Which data directory a broker runs on; see `hot_tier.cluster.directory`."""

    data_id: str
    runs: int
    """How often a broker has registered from it, or was about to."""

    def next_run(self) -> "Identity":
        return self._replace(runs=self.runs + 1)

    def is_same_or_later(self, known: "Identity") -> bool:
        """Returns whether this is the known directory, and not an older copy of it."""
        return self.data_id == known.data_id and self.runs >= known.runs


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What is known of a broker also while it is down."""

    data_id: str
    """The data directory it last ran on: with another one it must not count as in sync anywhere."""
    runs: int = 0
    """How often it was used: fewer times on disk than here means that an older copy was put back."""
    boot_id: str = ""
    """The boot of the machine it last ran on: in the same one, what a killed process wrote is still there."""
    draining: bool = False
    """It is being decommissioned, whatever restarts."""
    reassignment_bytes_per_second: int | None = None
    """In place of the setting `cluster.reassignment_bytes_per_second`, as an administrator asked for at run time."""

    @property
    def identity(self) -> Identity:
        return Identity(self.data_id, self.runs)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that is gone, remembered so that a broker which was down, or stopped half-way, still removes it."""

    name: str
    id: TopicId
    partitions: int
    deleted_ms: int


class ManifestMark(NamedTuple):
    """Names one manifest of a partition: its version, and the nonce that only this publish had."""

    leader_epoch: int
    sequence: int
    nonce: str


class Writer(NamedTuple):
    """Who may have published a partition's manifests: one leader in one epoch, known here before it publishes."""

    leader_epoch: int
    token: str


class Stopped(NamedTuple):
    """Why nothing of an archive is published, dropped or deleted."""

    why: str
    """One of `offloader.trust.Verdict`."""
    what: str
    """In words, with what to do next."""


class Archived(NamedTuple):
    """How far a partition is archived, as its leader said in one epoch. In a later epoch the end no longer counts.
    The fields after the epoch count in every epoch: which manifests in the bucket are ours (`offloader.trust`).
    """

    end_offset: Offset
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    uploading: str | None = None
    """The rows of a segment that may be in the bucket, and that no manifest names yet."""
    manifest: ManifestMark | None = None
    """The last one published; None in what version 0.1 wrote."""
    writers: tuple[Writer, ...] = ()
    """Those since then, oldest first."""
    stopped: Stopped | None = None  # None: it is in order.
    encrypted: tuple[Offset, tuple[str, ...]] | None = None
    """From which offset on all archived records are encrypted, and with which keys."""


@dataclass(frozen=True, slots=True, order=True)
class QuotaEntity:
    """Who a quota is for: (type, name) pairs in type order; the name None stands for the type's default."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> "QuotaEntity":
        return cls(tuple(sorted(parts.items())))

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'<default>' if name is None else name!r}" for kind, name in self.parts)


def new_topic_id() -> TopicId:
    """Returns a random id: never zero (Kafka's "no id"). Its base64, which tools take, never begins with '-'."""
    while True:
        number = secrets.randbits(128)
        if number > 1 and number >> 122 != 62:
            return UUID(int=number)


# Keys


def broker_key(node: NodeId) -> str:
    return f"{BROKERS_PREFIX}{node}"


def node_key(node: NodeId) -> str:
    return f"{NODES_PREFIX}{node}"


def topic_key(name: str) -> str:
    return TOPICS_PREFIX + name


def partition_key(topic_id: TopicId, partition: int) -> str:
    return f"{PARTITIONS_PREFIX}{topic_id.hex}/{partition}"


def parse_partition_key(key: str) -> tuple[TopicId, PartitionId]:
    topic_id, _, partition = key.removeprefix(PARTITIONS_PREFIX).partition("/")
    return UUID(hex=topic_id), PartitionId(int(partition))


def deleted_key(topic_id: TopicId) -> str:
    return DELETED_PREFIX + topic_id.hex


def archived_key(topic_id: TopicId, partition: int) -> str:
    return f"{ARCHIVED_PREFIX}{topic_id}/{partition}"


def parse_archived_key(key: str) -> tuple[TopicId, PartitionId]:
    topic_id, _, partition = key.removeprefix(ARCHIVED_PREFIX).partition("/")
    return UUID(topic_id), PartitionId(int(partition))


def kept_key(kind: str, name: str) -> str:
    return f"{KEPT_PREFIX}{kind}/{quote(name, safe='')}"


def parse_kept_key(key: str) -> tuple[str, str]:
    kind, _, name = key.removeprefix(KEPT_PREFIX).partition("/")
    return kind, unquote(name)


def quota_key(entity: QuotaEntity) -> str:
    return QUOTAS_PREFIX + "&".join(
        quote(kind, safe="") + ("" if name is None else "=" + quote(name, safe="")) for kind, name in entity.parts
    )


def parse_quota_key(key: str) -> QuotaEntity:
    parts: list[tuple[str, str | None]] = []
    for part in key.removeprefix(QUOTAS_PREFIX).split("&"):
        kind, named, name = part.partition("=")
        parts.append((unquote(kind), unquote(name) if named else None))
    return QuotaEntity(tuple(parts))


def group_failures_prefix(group: str) -> str:
    return f"{FAILURES_PREFIX}{quote(group, safe='')}/"


def failures_key(group: str, topic_id: TopicId, partition: int) -> str:
    return f"{group_failures_prefix(group)}{topic_id.hex}/{partition}"


def parse_failures_key(key: str) -> tuple[str, TopicId, PartitionId]:
    group, topic_id, partition = key.removeprefix(FAILURES_PREFIX).split("/")
    return unquote(group), UUID(hex=topic_id), PartitionId(int(partition))


def user_key(name: str) -> str:
    return USERS_PREFIX + quote(name, safe="")


def parse_user_key(key: str) -> str:
    return unquote(key.removeprefix(USERS_PREFIX))


# Values

_REVISION: Final = {Topic: "version", PartitionState: "version", BrokerInfo: "epoch"}
"""Fields that are the store's own revision."""


def encode(
    value: Topic | PartitionState | BrokerInfo | NodeRecord | DeletedTopic | Archived | Mapping[str, Any],
) -> bytes:
    if isinstance(value, Mapping):
        return orjson.dumps(dict(value))
    if isinstance(value, Archived):
        return orjson.dumps(
            {
                "end_offset": value.end_offset,
                "log_start": value.log_start_offset,
                "leader_epoch": value.leader_epoch,
                "uploading": value.uploading,
                "manifest": None if value.manifest is None else tuple(value.manifest),
                "writers": [tuple(writer) for writer in value.writers],
                "stopped": None if value.stopped is None else tuple(value.stopped),
                "encrypted": value.encrypted,
            }
        )
    values = {name: getattr(value, name) for name in value.__slots__ if name != _REVISION.get(type(value))}
    fields = {name: dict(each) if isinstance(each, Mapping) else each for name, each in values.items()}
    if isinstance(value, BrokerInfo):
        fields |= endpoints_as_json(value.endpoints)
    return orjson.dumps(fields)


def decode_map(key: str, data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise CorruptMetadata("cluster metadata is not a JSON object", where=key)
    return value


def decode_topic(key: str, data: bytes, version: Revision) -> Topic:
    value = decode_map(key, data)
    try:
        return Topic(
            name=value["name"],
            id=UUID(value["id"]),
            partitions=value["partitions"],
            replication_factor=value["replication_factor"],
            config=MappingProxyType(value["config"]),
            created_ms=value["created_ms"],
            internal=value["internal"],
            version=version,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptMetadata(f"not a topic: {error!r}", where=key) from None


def decode_partition(key: str, data: bytes, version: Revision) -> PartitionState:
    value = decode_map(key, data)
    try:
        return PartitionState(
            leader=NodeId(value["leader"]),
            leader_epoch=LeaderEpoch(value["leader_epoch"]),
            isr=tuple(value["isr"]),
            replicas=tuple(value["replicas"]),
            adding=tuple(value.get("adding", ())),
            removing=tuple(value.get("removing", ())),
            version=version,
        )
    except (KeyError, TypeError) as error:
        raise CorruptMetadata(f"not a partition state: {error!r}", where=key) from None


def decode_broker(key: str, data: bytes, epoch: Revision) -> BrokerInfo:
    value = decode_map(key, data)
    try:
        return BrokerInfo(
            id=NodeId(value["id"]),
            endpoints=endpoints_from_json(value),
            rack=value["rack"],
            lease=LeaseId(value.get("lease", NO_LEASE)),
            data_id=value.get("data_id", ""),
            draining=value.get("draining", False),
            version=value.get("version", OLDEST_VERSION),
            host_name=value.get("host_name"),
            epoch=epoch,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptMetadata(f"not a broker: {error!r}", where=key) from None


def decode_node(key: str, data: bytes) -> NodeRecord:
    value = decode_map(key, data)
    try:
        return NodeRecord(
            data_id=value["data_id"],
            runs=value.get("runs", 0),
            boot_id=value.get("boot_id", ""),
            draining=value.get("draining", False),
            reassignment_bytes_per_second=value.get("reassignment_bytes_per_second"),
        )
    except KeyError as error:
        raise CorruptMetadata(f"not a node's record: {error!r}", where=key) from None


def decode_deleted(key: str, data: bytes) -> DeletedTopic:
    value = decode_map(key, data)
    try:
        return DeletedTopic(value["name"], UUID(value["id"]), value["partitions"], value["deleted_ms"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptMetadata(f"not a deleted topic: {error!r}", where=key) from None


def decode_archived(key: str, data: bytes) -> Archived:
    value = decode_map(key, data)
    try:
        manifest, stopped, encrypted = value.get("manifest"), value.get("stopped"), value.get("encrypted")
        return Archived(
            Offset(value["end_offset"]),
            Offset(value["log_start"]),
            LeaderEpoch(value["leader_epoch"]),
            value.get("uploading"),
            None if manifest is None else ManifestMark(*manifest),
            tuple(Writer(*each) for each in value.get("writers", ())),
            None if stopped is None else Stopped(*stopped),
            None if encrypted is None else (Offset(encrypted[0]), tuple(encrypted[1])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptMetadata(f"not how far a partition is archived: {error!r}", where=key) from None


def initial_state(replicas: Iterable[NodeId]) -> PartitionState:
    """Returns a new partition: the preferred replica leads its first epoch, all replicas are in sync (and empty)."""
    placed = tuple(replicas)
    return PartitionState(leader=placed[0], leader_epoch=LeaderEpoch(0), isr=placed, replicas=placed)
