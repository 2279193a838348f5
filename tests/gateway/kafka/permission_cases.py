"""One request of every API, what it needs, and the exact codes of its answer to who has none of it.

Requests are made for a topic of any name: the answer to who may not see it must not depend on whether it exists.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from gateway.kafka.protocol.api_keys import ApiKey, request_class
from gateway.kafka.protocol.messages import alter_configs, incremental_alter_configs
from gateway.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from gateway.kafka.protocol.messages.alter_client_quotas import OpData
from gateway.kafka.protocol.messages.alter_client_quotas import RequestEntityData as QuotaEntity
from gateway.kafka.protocol.messages.alter_client_quotas import RequestEntryData as QuotaEntry
from gateway.kafka.protocol.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from gateway.kafka.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirTopic
from gateway.kafka.protocol.messages.alter_user_scram_credentials import ScramCredentialDeletion
from gateway.kafka.protocol.messages.create_acls import AclCreation
from gateway.kafka.protocol.messages.create_partitions import CreatePartitionsTopic
from gateway.kafka.protocol.messages.create_topics import CreatableTopic
from gateway.kafka.protocol.messages.delete_acls import DeleteAclsFilter
from gateway.kafka.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from gateway.kafka.protocol.messages.delete_topics import DeleteTopicState
from gateway.kafka.protocol.messages.describe_configs import DescribeConfigsResource
from gateway.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic
from gateway.kafka.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from gateway.kafka.protocol.messages.describe_topic_partitions import TopicRequest
from gateway.kafka.protocol.messages.elect_leaders import TopicPartitions
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchTopic
from gateway.kafka.protocol.messages.join_group import JoinGroupRequestProtocol
from gateway.kafka.protocol.messages.leave_group import MemberIdentity
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from gateway.kafka.protocol.messages.metadata import MetadataRequestTopic
from gateway.kafka.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from gateway.kafka.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from gateway.kafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from gateway.kafka.protocol.messages.produce import PartitionProduceData, TopicProduceData
from gateway.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from gateway.kafka.protocol.messages.update_features import FeatureUpdateKey
from gateway.kafka.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType, Rule
from tests.gateway.kafka.batches import batch

TOPIC, GROUP, CLUSTER, TRANSACTION = 29, 30, 31, 53
CODES = {TOPIC, GROUP, CLUSTER, TRANSACTION}
WHO = "User:ANONYMOUS"
GROUP_ID = "a-group"

Needs = tuple[tuple[Operation, ResourceType, str], ...]
_THE_TOPIC = "the topic of the request"


def on_topic(*operations: Operation) -> Needs:
    return tuple((each, ResourceType.TOPIC, _THE_TOPIC) for each in operations)


def on_group(*operations: Operation) -> Needs:
    return tuple((each, ResourceType.GROUP, GROUP_ID) for each in operations)


def on_cluster(*operations: Operation) -> Needs:
    return tuple((each, ResourceType.CLUSTER, CLUSTER_NAME) for each in operations)


def rules(needs: Needs, topic: str, permission: Permission) -> list[Rule]:
    return [
        Rule(kind, Pattern.LITERAL, topic if name == _THE_TOPIC else name, WHO, "*", operation, permission)
        for operation, kind, name in needs
    ]


@dataclass(frozen=True)
class Case:
    name: str
    key: ApiKey
    needs: Needs
    """Each of them alone is not enough."""
    refused: tuple[int, ...]
    """All codes of the answer that are not zero."""
    ask: Callable[[int, str], dict[str, Any]]
    """The fields of the request, for a version and a topic."""
    versions: range = range(100)

    def request(self, version: int, topic: str) -> Any:
        return request_class(self.key)(**self.ask(version, topic))


def codes(answer: Any) -> Iterator[int]:
    """Yields every error code in an answer that is not zero."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes(each)
    elif is_dataclass(answer):
        for field in fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield from (value,) if value else ()
            else:
                yield from codes(value)


def strings(answer: Any) -> Iterator[str]:
    if isinstance(answer, list):
        for each in answer:
            yield from strings(each)
    elif is_dataclass(answer):
        for field in fields(answer):
            yield from strings(getattr(answer, field.name))
    elif isinstance(answer, str):
        yield answer


Read, Write, Create, Delete, Alter, Describe = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
)
DescribeConfigs, AlterConfigs = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


def _offset_fetch(version: int, topic: str) -> dict[str, Any]:
    if version >= 8:
        return {
            "groups": [
                OffsetFetchRequestGroup(GROUP_ID, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])])
            ]
        }
    return {"group_id": GROUP_ID, "topics": [OffsetFetchRequestTopic(topic, [0])]}


def _delete_topics(version: int, topic: str) -> dict[str, Any]:
    return {"topics": [DeleteTopicState(topic)]} if version >= 6 else {"topic_names": [topic]}


def _find(key_type: int, key: str) -> Callable[[int, str], dict[str, Any]]:
    return lambda version, topic: {"key": key, "key_type": key_type, "coordinator_keys": [key]}


def _leave(version: int, topic: str) -> dict[str, Any]:
    return {"group_id": GROUP_ID, "member_id": "m", "members": [MemberIdentity("m")]}


def _settings(kind: int, name: str) -> Callable[[int, str], dict[str, Any]]:
    return lambda version, topic: {"resources": [DescribeConfigsResource(kind, name or topic, None)]}


def _change(kind: int, name: str) -> Callable[[int, str], dict[str, Any]]:
    one = alter_configs.AlterConfigsResource
    return lambda version, topic: {"resources": [one(kind, name or topic)], "validate_only": True}


def _change_some(kind: int, name: str) -> Callable[[int, str], dict[str, Any]]:
    one = incremental_alter_configs.AlterConfigsResource
    return lambda version, topic: {"resources": [one(kind, name or topic)], "validate_only": True}


CASES = (
    Case(
        "produce",
        ApiKey.PRODUCE,
        on_topic(Write),
        (TOPIC,),
        lambda version, topic: {
            "acks": -1,
            "timeout_ms": 5000,
            "topic_data": [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch(b"v"))])],
        },
        range(3, 12),
    ),
    Case(
        "fetch",
        ApiKey.FETCH,
        on_topic(Read),
        (TOPIC,),
        lambda version, topic: {
            "max_bytes": 1 << 20,
            "topics": [FetchTopic(topic=topic, partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])],
        },
        range(4, 13),
    ),
    Case(
        "list offsets",
        ApiKey.LIST_OFFSETS,
        on_topic(Describe),
        (TOPIC,),
        lambda version, topic: {"topics": [ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])]},
    ),
    Case(
        "metadata",
        ApiKey.METADATA,
        on_topic(Describe),
        (TOPIC,),
        lambda version, topic: {"topics": [MetadataRequestTopic(name=topic)], "allow_auto_topic_creation": False},
        range(4, 14),
    ),
    Case(
        "metadata that makes it",
        ApiKey.METADATA,
        on_topic(Describe, Create),
        (TOPIC,),
        lambda version, topic: {"topics": [MetadataRequestTopic(name=topic + "-new")]},
        range(0),
    ),
    Case(
        "commit",
        ApiKey.OFFSET_COMMIT,
        (*on_group(Read), *on_topic(Read)),
        (GROUP,),
        lambda version, topic: {
            "group_id": GROUP_ID,
            "generation_id_or_member_epoch": -1,
            "topics": [OffsetCommitRequestTopic(name=topic, partitions=[OffsetCommitRequestPartition(0, 0)])],
        },
    ),
    Case("committed", ApiKey.OFFSET_FETCH, (*on_group(Describe), *on_topic(Describe)), (GROUP,), _offset_fetch),
    Case("coordinator of a group", ApiKey.FIND_COORDINATOR, on_group(Describe), (GROUP,), _find(0, GROUP_ID)),
    Case(
        "coordinator of transactions",
        ApiKey.FIND_COORDINATOR,
        ((Describe, ResourceType.TRANSACTIONAL_ID, "tx"),),
        (TRANSACTION,),
        _find(1, "tx"),
        range(1, 7),
    ),
    Case(
        "join",
        ApiKey.JOIN_GROUP,
        on_group(Read),
        (GROUP,),
        lambda version, topic: {
            "group_id": GROUP_ID,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol("range", b"")],
        },
    ),
    Case(
        "sync",
        ApiKey.SYNC_GROUP,
        on_group(Read),
        (GROUP,),
        lambda version, topic: {"group_id": GROUP_ID, "generation_id": 1, "member_id": "m"},
    ),
    Case(
        "heartbeat",
        ApiKey.HEARTBEAT,
        on_group(Read),
        (GROUP,),
        lambda version, topic: {"group_id": GROUP_ID, "generation_id": 1, "member_id": "m"},
    ),
    Case("leave", ApiKey.LEAVE_GROUP, on_group(Read), (GROUP,), _leave),
    Case(
        "describe groups",
        ApiKey.DESCRIBE_GROUPS,
        on_group(Describe),
        (GROUP,),
        lambda version, topic: {"groups": [GROUP_ID]},
    ),
    Case(
        "create topics",
        ApiKey.CREATE_TOPICS,
        on_topic(Create),
        (TOPIC,),
        lambda version, topic: {"topics": [CreatableTopic(topic, 1, 1)], "validate_only": True},
    ),
    Case("delete topics", ApiKey.DELETE_TOPICS, on_topic(Delete), (TOPIC,), _delete_topics),
    Case(
        "delete records",
        ApiKey.DELETE_RECORDS,
        on_topic(Delete),
        (TOPIC,),
        lambda version, topic: {"topics": [DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 0)])]},
    ),
    Case(
        "producer id",
        ApiKey.INIT_PRODUCER_ID,
        on_cluster(Operation.IDEMPOTENT_WRITE),
        (CLUSTER,),
        lambda version, topic: {"transactional_id": None},
        range(6),
    ),
    Case(
        "producer id by a topic",
        ApiKey.INIT_PRODUCER_ID,
        on_topic(Write),
        (CLUSTER,),
        lambda version, topic: {"transactional_id": None},
        range(6),
    ),
    Case(
        "producer id of a transaction",
        ApiKey.INIT_PRODUCER_ID,
        ((Write, ResourceType.TRANSACTIONAL_ID, "tx"),),
        (TRANSACTION,),
        lambda version, topic: {"transactional_id": "tx"},
        range(6),
    ),
    Case(
        "epochs",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        on_topic(Describe),
        (TOPIC,),
        lambda version, topic: {"topics": [OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0)])]},
    ),
    Case(
        "partitions of a transaction",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ((Write, ResourceType.TRANSACTIONAL_ID, "tx"), *on_topic(Write)),
        (TRANSACTION,),
        lambda version, topic: {
            "v3_and_below_transactional_id": "tx",
            "v3_and_below_topics": [AddPartitionsToTxnTopic(topic, [0])],
        },
        range(4),
    ),
    Case(
        "partitions of transactions, asked by a broker",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        on_cluster(Operation.CLUSTER_ACTION),
        (CLUSTER,),
        lambda version, topic: {
            "transactions": [AddPartitionsToTxnTransaction("tx", topics=[AddPartitionsToTxnTopic(topic, [0])])]
        },
        range(4, 6),
    ),
    Case(
        "offsets of a transaction",
        ApiKey.ADD_OFFSETS_TO_TXN,
        ((Write, ResourceType.TRANSACTIONAL_ID, "tx"), *on_group(Read)),
        (TRANSACTION,),
        lambda version, topic: {"transactional_id": "tx", "group_id": GROUP_ID},
    ),
    Case(
        "offsets in a transaction",
        ApiKey.TXN_OFFSET_COMMIT,
        ((Write, ResourceType.TRANSACTIONAL_ID, "tx"), *on_group(Read), *on_topic(Read)),
        (TRANSACTION,),
        lambda version, topic: {
            "transactional_id": "tx",
            "group_id": GROUP_ID,
            "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=[TxnOffsetCommitRequestPartition(0, 0)])],
        },
    ),
    Case(
        "end of a transaction",
        ApiKey.END_TXN,
        ((Write, ResourceType.TRANSACTIONAL_ID, "tx"),),
        (TRANSACTION,),
        lambda version, topic: {"transactional_id": "tx"},
    ),
    Case(
        "markers",
        ApiKey.WRITE_TXN_MARKERS,
        on_cluster(Operation.CLUSTER_ACTION),
        (CLUSTER,),
        lambda version, topic: {"markers": [WritableTxnMarker(topics=[WritableTxnMarkerTopic(topic, [0])])]},
    ),
    Case(
        "describe acls",
        ApiKey.DESCRIBE_ACLS,
        on_cluster(Describe),
        (CLUSTER,),
        lambda version, topic: {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        },
    ),
    Case(
        "create acls",
        ApiKey.CREATE_ACLS,
        on_cluster(Alter),
        (CLUSTER, CLUSTER),
        lambda version, topic: {"creations": [AclCreation(2, topic, 3, "User:eve", "*", 3, 2)] * 2},
    ),
    Case(
        "delete acls",
        ApiKey.DELETE_ACLS,
        on_cluster(Alter),
        (CLUSTER,),
        lambda version, topic: {"filters": [DeleteAclsFilter(2, topic, 3, "User:eve", "*", 3, 2)]},
    ),
    Case("describe a topic's settings", ApiKey.DESCRIBE_CONFIGS, on_topic(DescribeConfigs), (TOPIC,), _settings(2, "")),
    Case(
        "describe a broker's settings",
        ApiKey.DESCRIBE_CONFIGS,
        on_cluster(DescribeConfigs),
        (CLUSTER,),
        _settings(4, "0"),
    ),
    Case(
        "describe a group's settings",
        ApiKey.DESCRIBE_CONFIGS,
        on_group(DescribeConfigs),
        (GROUP,),
        _settings(32, GROUP_ID),
    ),
    Case("change a topic's settings", ApiKey.ALTER_CONFIGS, on_topic(AlterConfigs), (TOPIC,), _change(2, "")),
    Case("change a broker's settings", ApiKey.ALTER_CONFIGS, on_cluster(AlterConfigs), (CLUSTER,), _change(4, "0")),
    Case("change a group's settings", ApiKey.ALTER_CONFIGS, on_group(AlterConfigs), (GROUP,), _change(32, GROUP_ID)),
    Case(
        "change some of a topic's settings",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        on_topic(AlterConfigs),
        (TOPIC,),
        _change_some(2, ""),
    ),
    Case(
        "change some of a broker's settings",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        on_cluster(AlterConfigs),
        (CLUSTER,),
        _change_some(4, "0"),
    ),
    Case(
        "change some of a group's settings",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        on_group(AlterConfigs),
        (GROUP,),
        _change_some(32, GROUP_ID),
    ),
    Case(
        "move to a directory",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        on_cluster(Alter),
        (CLUSTER,),
        lambda version, topic: {"dirs": [AlterReplicaLogDir("/d", [AlterReplicaLogDirTopic(topic, [0])])]},
    ),
    Case(
        "describe directories",
        ApiKey.DESCRIBE_LOG_DIRS,
        on_cluster(Describe),
        (CLUSTER,),
        lambda version, topic: {"topics": [DescribableLogDirTopic(topic, [0])]},
        range(3, 5),
    ),
    Case(
        "add partitions",
        ApiKey.CREATE_PARTITIONS,
        on_topic(Alter),
        (TOPIC,),
        lambda version, topic: {"topics": [CreatePartitionsTopic(topic, 3)], "validate_only": True},
    ),
    Case(
        "delete groups",
        ApiKey.DELETE_GROUPS,
        on_group(Delete),
        (GROUP,),
        lambda version, topic: {"groups_names": [GROUP_ID]},
    ),
    Case(
        "elect",
        ApiKey.ELECT_LEADERS,
        on_cluster(Alter),
        (CLUSTER, CLUSTER),
        lambda version, topic: {"topic_partitions": [TopicPartitions(topic, [0])]},
        range(1, 3),
    ),
    Case(
        "reassign",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        on_cluster(Alter),
        (CLUSTER, CLUSTER),
        lambda version, topic: {"topics": [ReassignableTopic(topic, [ReassignablePartition(0, [0])])]},
    ),
    Case(
        "list reassignments",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        on_cluster(Describe),
        (CLUSTER,),
        lambda version, topic: {"topics": None},
    ),
    Case(
        "delete offsets",
        ApiKey.OFFSET_DELETE,
        (*on_group(Delete), *on_topic(Read)),
        (GROUP,),
        lambda version, topic: {
            "group_id": GROUP_ID,
            "topics": [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])],
        },
    ),
    Case(
        "describe quotas",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        on_cluster(DescribeConfigs),
        (CLUSTER,),
        lambda version, topic: {},
    ),
    Case(
        "change quotas",
        ApiKey.ALTER_CLIENT_QUOTAS,
        on_cluster(AlterConfigs),
        (CLUSTER,),
        lambda version, topic: {
            "validate_only": True,
            "entries": [QuotaEntry([QuotaEntity("user", "eve")], [OpData("producer_byte_rate", 1.0)])],
        },
    ),
    Case(
        "describe users",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        on_cluster(Describe),
        (CLUSTER,),
        lambda version, topic: {"users": None},
    ),
    Case(
        "change users",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        on_cluster(Alter),
        (CLUSTER,),
        lambda version, topic: {"deletions": [ScramCredentialDeletion("eve", 1)]},
    ),
    Case("quorum", ApiKey.DESCRIBE_QUORUM, on_cluster(Describe), (CLUSTER,), lambda version, topic: {"topics": []}),
    Case(
        "features",
        ApiKey.UPDATE_FEATURES,
        on_cluster(Alter),
        (CLUSTER, CLUSTER),
        lambda version, topic: {"feature_updates": [FeatureUpdateKey("group.version", 0)]},
        range(2),
    ),
    Case(
        "producers",
        ApiKey.DESCRIBE_PRODUCERS,
        on_topic(Read),
        (TOPIC,),
        lambda version, topic: {"topics": [ProducersTopic(topic, [0])]},
    ),
    Case(
        "unregister", ApiKey.UNREGISTER_BROKER, on_cluster(Alter), (CLUSTER,), lambda version, topic: {"broker_id": 7}
    ),
    Case(
        "transactions",
        ApiKey.DESCRIBE_TRANSACTIONS,
        ((Describe, ResourceType.TRANSACTIONAL_ID, "tx"),),
        (TRANSACTION,),
        lambda version, topic: {"transactional_ids": ["tx"]},
    ),
    Case(
        "what has settings",
        ApiKey.LIST_CONFIG_RESOURCES,
        on_cluster(DescribeConfigs),
        (CLUSTER,),
        lambda version, topic: {},
    ),
    Case(
        "partitions of topics",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        on_topic(Describe),
        (TOPIC,),
        lambda version, topic: {"topics": [TopicRequest(topic)]},
    ),
)
