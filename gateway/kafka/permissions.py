"""What each API needs, in one table: the guards that a request passes before its handler sees it.

The needs and the answers are those of Apache Kafka. `gateway.kafka.guards` has the guards that several APIs share,
`gateway.kafka.guards_of_one` those of a single API.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from gateway.kafka.guards import Each, Guard, Inside, Need, Open, Shown, Whole
from gateway.kafka.guards_of_one import (
    added_partitions,
    altered_log_dirs,
    created_topics,
    deleted_topics,
    fetched_offsets,
    found_coordinators,
    init_producer_id,
    metadata,
    topic_partitions,
)
from gateway.kafka.protocol.api_keys import ApiKey
from hot_tier.cluster.acls import CLUSTER_NAME, Operation, ResourceType

_LOGIN: Final = Open("it is part of the login")

_CONFIG_KINDS: Final = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}
"""Resources with settings of their own, by Kafka's numbers. Those of brokers belong to the cluster."""


def _on(operation: Operation, kind: ResourceType, field: str = "") -> Callable[[Any], Need]:
    """Returns what an element of a list needs: it is the name, or has it in a field."""
    name = attrgetter(field) if field else str
    return lambda item: (operation, kind, name(item))


def _on_config(operation: Operation) -> Callable[[Any], Need]:
    def need(resource: Any) -> Need:
        kind = _CONFIG_KINDS.get(resource.resource_type, ResourceType.CLUSTER)
        return operation, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name

    return need


def _topics(operation: Operation, asked: str = "topics", answered: str = "topics", field: str = "name") -> Each:
    return Each(asked, answered, _on(operation, ResourceType.TOPIC, field))


_READ_GROUP: Final = Whole(Operation.READ, ResourceType.GROUP, "group_id")

PERMISSIONS: Final[Mapping[ApiKey, tuple[Guard, ...]]] = {
    ApiKey.PRODUCE: (Inside(Operation.WRITE, ResourceType.TOPIC),),
    ApiKey.FETCH: (Inside(Operation.READ, ResourceType.TOPIC),),
    ApiKey.LIST_OFFSETS: (_topics(Operation.DESCRIBE),),
    ApiKey.METADATA: (metadata,),
    ApiKey.OFFSET_COMMIT: (_READ_GROUP, _topics(Operation.READ)),
    ApiKey.OFFSET_FETCH: (fetched_offsets,),
    ApiKey.FIND_COORDINATOR: (found_coordinators,),
    ApiKey.JOIN_GROUP: (_READ_GROUP,),
    ApiKey.HEARTBEAT: (_READ_GROUP,),
    ApiKey.LEAVE_GROUP: (Whole(Operation.READ, ResourceType.GROUP, "group_id", once=True),),
    ApiKey.SYNC_GROUP: (_READ_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (Each("groups", "groups", _on(Operation.DESCRIBE, ResourceType.GROUP)),),
    ApiKey.LIST_GROUPS: (
        Shown("groups", _on(Operation.DESCRIBE, ResourceType.GROUP, "group_id"), with_cluster=Operation.DESCRIBE),
    ),
    ApiKey.SASL_HANDSHAKE: (_LOGIN,),
    ApiKey.API_VERSIONS: (Open("it says how to speak, and nothing of the cluster"),),
    ApiKey.CREATE_TOPICS: (
        created_topics,
        Each("topics", "topics", _on(Operation.CREATE, ResourceType.TOPIC, "name"), with_cluster=Operation.CREATE),
    ),
    ApiKey.DELETE_TOPICS: (deleted_topics,),
    ApiKey.DELETE_RECORDS: (_topics(Operation.DELETE),),
    ApiKey.INIT_PRODUCER_ID: (init_producer_id,),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Each(
            "topics",
            "topics",
            _on(Operation.DESCRIBE, ResourceType.TOPIC, "topic"),
            with_cluster=Operation.CLUSTER_ACTION,
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (added_partitions,),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        Whole(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", once=True),
        Whole(Operation.READ, ResourceType.GROUP, "group_id", once=True),
    ),
    ApiKey.END_TXN: (Whole(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", once=True),),
    ApiKey.WRITE_TXN_MARKERS: (Whole(Operation.CLUSTER_ACTION),),
    ApiKey.TXN_OFFSET_COMMIT: (
        Whole(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
        _READ_GROUP,
        _topics(Operation.READ),
    ),
    ApiKey.DESCRIBE_ACLS: (Whole(Operation.DESCRIBE),),
    ApiKey.CREATE_ACLS: (Whole(Operation.ALTER),),
    ApiKey.DELETE_ACLS: (Whole(Operation.ALTER),),
    ApiKey.DESCRIBE_CONFIGS: (Each("resources", "results", _on_config(Operation.DESCRIBE_CONFIGS)),),
    ApiKey.ALTER_CONFIGS: (Each("resources", "responses", _on_config(Operation.ALTER_CONFIGS)),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (altered_log_dirs,),
    ApiKey.DESCRIBE_LOG_DIRS: (Whole(Operation.DESCRIBE, once=True),),
    ApiKey.SASL_AUTHENTICATE: (_LOGIN,),
    ApiKey.CREATE_PARTITIONS: (_topics(Operation.ALTER, answered="results"),),
    ApiKey.DELETE_GROUPS: (Each("groups_names", "results", _on(Operation.DELETE, ResourceType.GROUP)),),
    ApiKey.ELECT_LEADERS: (Whole(Operation.ALTER),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (Each("resources", "responses", _on_config(Operation.ALTER_CONFIGS)),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Whole(Operation.ALTER),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Whole(Operation.DESCRIBE),),
    ApiKey.OFFSET_DELETE: (
        Whole(Operation.DELETE, ResourceType.GROUP, "group_id", once=True),
        _topics(Operation.READ),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Whole(Operation.DESCRIBE_CONFIGS),),
    ApiKey.ALTER_CLIENT_QUOTAS: (Whole(Operation.ALTER_CONFIGS),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Whole(Operation.DESCRIBE),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Whole(Operation.ALTER),),
    ApiKey.DESCRIBE_QUORUM: (Whole(Operation.DESCRIBE),),
    ApiKey.UPDATE_FEATURES: (Whole(Operation.ALTER),),
    ApiKey.DESCRIBE_CLUSTER: (Open("clients need the brokers' addresses before anything else"),),
    ApiKey.DESCRIBE_PRODUCERS: (_topics(Operation.READ),),
    ApiKey.UNREGISTER_BROKER: (Whole(Operation.ALTER),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Each("transactional_ids", "transaction_states", _on(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)),
    ),
    ApiKey.LIST_TRANSACTIONS: (
        Shown("transaction_states", _on(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_id")),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (Open("it says that the newer protocol is not served, and nothing else"),),
    ApiKey.LIST_CONFIG_RESOURCES: (Whole(Operation.DESCRIBE_CONFIGS),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (topic_partitions,),
}
