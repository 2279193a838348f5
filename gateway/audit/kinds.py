"""The kind of each Kafka API and each HTTP operation, and whether it creates, reads, updates or deletes.

`tests/gateway/audit/test_kinds.py` proves that each has an entry. `None` stands for what is not noted: it tells nothing
of the cluster, and anybody may ask it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.audit.settings import AuditKind

CREATE: Final = 1
READ: Final = 2
UPDATE: Final = 3
DELETE: Final = 4
OTHER: Final = 99
"""OCSF's numbers for what an API call does."""


class Act(NamedTuple):
    kind: AuditKind
    activity: int


COUNTED: Final[frozenset[AuditKind]] = frozenset({"produce", "consume", "describe", "group"})
"""Kinds that are counted over an interval: clients do them all the time."""

_LOGIN: Final = Act("authenticate", OTHER)
_PRODUCE: Final = Act("produce", CREATE)
_CONSUME: Final = Act("consume", READ)
_DESCRIBE: Final = Act("describe", READ)
_GROUP: Final = Act("group", UPDATE)
_CREATE: Final = Act("admin", CREATE)
_UPDATE: Final = Act("admin", UPDATE)
_DELETE: Final = Act("admin", DELETE)
_DO: Final = Act("admin", OTHER)

KAFKA: Final[Mapping[str, Act | None]] = {
    "PRODUCE": _PRODUCE,
    "FETCH": _CONSUME,
    "LIST_OFFSETS": _DESCRIBE,
    "METADATA": _DESCRIBE,
    "OFFSET_COMMIT": _GROUP,
    "OFFSET_FETCH": _DESCRIBE,
    "FIND_COORDINATOR": _DESCRIBE,
    "JOIN_GROUP": _GROUP,
    "HEARTBEAT": _GROUP,
    "LEAVE_GROUP": _GROUP,
    "SYNC_GROUP": _GROUP,
    "DESCRIBE_GROUPS": _DESCRIBE,
    "LIST_GROUPS": _DESCRIBE,
    "SASL_HANDSHAKE": _LOGIN,
    "API_VERSIONS": None,
    "CREATE_TOPICS": _CREATE,
    "DELETE_TOPICS": _DELETE,
    "DELETE_RECORDS": _DELETE,
    "INIT_PRODUCER_ID": _PRODUCE,
    "OFFSET_FOR_LEADER_EPOCH": _DESCRIBE,
    "ADD_PARTITIONS_TO_TXN": _PRODUCE,
    "ADD_OFFSETS_TO_TXN": _PRODUCE,
    "END_TXN": _PRODUCE,
    "WRITE_TXN_MARKERS": _PRODUCE,
    "TXN_OFFSET_COMMIT": _GROUP,
    "DESCRIBE_ACLS": _DESCRIBE,
    "CREATE_ACLS": _CREATE,
    "DELETE_ACLS": _DELETE,
    "DESCRIBE_CONFIGS": _DESCRIBE,
    "ALTER_CONFIGS": _UPDATE,
    "ALTER_REPLICA_LOG_DIRS": _UPDATE,
    "DESCRIBE_LOG_DIRS": _DESCRIBE,
    "SASL_AUTHENTICATE": _LOGIN,
    "CREATE_PARTITIONS": _UPDATE,
    "DELETE_GROUPS": _DELETE,
    "ELECT_LEADERS": _UPDATE,
    "INCREMENTAL_ALTER_CONFIGS": _UPDATE,
    "ALTER_PARTITION_REASSIGNMENTS": _UPDATE,
    "LIST_PARTITION_REASSIGNMENTS": _DESCRIBE,
    "OFFSET_DELETE": _DELETE,
    "DESCRIBE_CLIENT_QUOTAS": _DESCRIBE,
    "ALTER_CLIENT_QUOTAS": _UPDATE,
    "DESCRIBE_USER_SCRAM_CREDENTIALS": _DESCRIBE,
    "ALTER_USER_SCRAM_CREDENTIALS": _UPDATE,
    "DESCRIBE_QUORUM": _DESCRIBE,
    "UPDATE_FEATURES": _UPDATE,
    "DESCRIBE_CLUSTER": _DESCRIBE,
    "DESCRIBE_PRODUCERS": _DESCRIBE,
    "UNREGISTER_BROKER": _DELETE,
    "DESCRIBE_TRANSACTIONS": _DESCRIBE,
    "LIST_TRANSACTIONS": _DESCRIBE,
    "CONSUMER_GROUP_HEARTBEAT": _GROUP,
    "LIST_CONFIG_RESOURCES": _DESCRIBE,
    "DESCRIBE_TOPIC_PARTITIONS": _DESCRIBE,
}

HTTP: Final[Mapping[str, Act | None]] = {
    "postMessage": _PRODUCE,
    "postMessages": _PRODUCE,
    "getMessages": _CONSUME,
    "runSql": _CONSUME,
    "estimateSql": _DESCRIBE,
    "cancelSql": _DESCRIBE,
    "findKey": _CONSUME,
    "createTopic": _CREATE,
    "listTopics": _DESCRIBE,
    "describeTopic": _DESCRIBE,
    "changeTopic": _UPDATE,
    "deleteTopic": _DELETE,
    "listGroups": _DESCRIBE,
    "listTopicGroups": _DESCRIBE,
    "describeGroup": _DESCRIBE,
    "deleteGroup": _DELETE,
    "commitOffset": _GROUP,
    "getOffsets": _DESCRIBE,
    "resetOffsets": _UPDATE,
    "listTransactions": _DESCRIBE,
    "describeTransaction": _DESCRIBE,
    "beginTransaction": _PRODUCE,
    "postTransactionMessages": _PRODUCE,
    "addTransactionOffsets": _GROUP,
    "commitTransaction": _PRODUCE,
    "abortTransaction": _UPDATE,
    "postDeadLetter": _GROUP,
    "postFailure": _GROUP,
    "getDeadLetters": _CONSUME,
    "getBucket": _DESCRIBE,
    "listPins": _DESCRIBE,
    "getTopicArchive": _DESCRIBE,
    "verifyArchive": _DO,
    "collectArchiveGarbage": _DELETE,
    "considerProposals": _UPDATE,
    "repairArchive": _UPDATE,
    "restoreArchive": _CREATE,
    "getMoves": _DESCRIBE,
    "rebalance": _UPDATE,
    "decommission": _UPDATE,
    "recommission": _UPDATE,
    "getDecommissioning": _DESCRIBE,
    "listUsers": _DESCRIBE,
    "setPassword": _UPDATE,
    "deleteUser": _DELETE,
    "listApiKeys": _DESCRIBE,
    "createApiKey": _CREATE,
    "deleteApiKey": _DELETE,
    "listAcls": _DESCRIBE,
    "addAcls": _CREATE,
    "removeAcls": _DELETE,
    "getCluster": _DESCRIBE,
    "getFigures": _DESCRIBE,
    "getOwnFigures": _DESCRIBE,
    "listEnds": _DESCRIBE,
    "getLagHistory": _DESCRIBE,
    "getTopicCost": _DESCRIBE,
    "getSession": _DESCRIBE,
    "getRoot": None,
    "getConsole": None,
    "getConsoleFolder": None,
    "getConsoleFile": None,
    "describeApi": None,
    "getHealth": None,
    "getHealthHead": None,
    "getReadiness": None,
    "getReadinessHead": None,
    "getMetrics": None,
}

UNKNOWN: Final = Act("describe", READ)
"""An HTTP request that is no operation of ours."""
