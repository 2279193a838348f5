"""What each error of the deeper layers is over HTTP: its status, its name, and what to do next.

`problems` has the rule that the statuses follow, and the refusals that the HTTP layer itself decides.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from cold_tier import errors as cold
from gateway.audit.audit import AuditFull
from gateway.coordinators import errors as groups
from gateway.sql import errors as sql
from hot_tier import errors


class Kind(NamedTuple):
    status: int
    name: str
    title: str
    hint: str


INTERNAL: Final = Kind(
    500, "internal-error", "Something failed inside", "Try again; if it fails again, see the node's log at this time."
)

RETRY: Final = "Try again; the same request may succeed."

AUDIT_FULL: Final = Kind(503, "audit-full", "The audit cannot be written", RETRY)

KINDS: Final[Mapping[type[errors.TierlogError], Kind]] = MappingProxyType(
    {
        errors.CorruptBatch: Kind(400, "corrupt-batch", "The record batch is damaged", "Send it again."),
        errors.MalformedBatch: Kind(400, "malformed-batch", "The record batch is malformed", "Encode the batch again."),
        errors.InvalidRecord: Kind(
            409,
            "invalid-record",
            "The topic does not take this record",
            "Give the record what the topic's settings ask for.",
        ),
        errors.BatchTooLarge: Kind(
            413,
            "message-too-large",
            "The message is too large",
            "Send a smaller one, or raise the topic's max.message.bytes.",
        ),
        errors.UnsupportedBatch: Kind(
            400, "unsupported-batch", "The record format is not served", "Use record batches v2."
        ),
        errors.OutOfOrderSequence: Kind(
            409, "out-of-order-sequence", "A batch is missing before this one", "Send it first."
        ),
        errors.ProducerFenced: Kind(
            409, "producer-fenced", "A newer instance of this producer is writing", "Stop the older instance."
        ),
        errors.InvalidTransactionState: Kind(
            409,
            "invalid-transaction-state",
            "The records do not fit the state of the producer's transaction",
            "Abort the transaction and begin a new one.",
        ),
        errors.TransactionCoordinatorFenced: Kind(
            409,
            "transaction-coordinator-fenced",
            "Another transaction coordinator has taken over",
            "Ask the coordinator that leads now.",
        ),
        errors.OffsetOutOfRange: Kind(
            409,
            "offset-out-of-range",
            "The offset is not in the log",
            "Use an offset from `earliest_offset` to `latest_offset`, or the words earliest or latest.",
        ),
        errors.CorruptLog: Kind(
            500, "corrupt-log", "Stored records are damaged", "Read on after the damage, or restore the partition."
        ),
        errors.UnknownTopic: Kind(
            404, "unknown-topic", "There is no such topic", "Create it with POST /api/v1/topics, or check its name."
        ),
        errors.UnknownTopicId: Kind(404, "unknown-topic", "There is no such topic", "Ask for the topic by its name."),
        errors.UnknownPartition: Kind(
            404, "unknown-partition", "There is no such partition", "GET /api/v1/topics/{topic} lists the partitions."
        ),
        errors.TopicExists: Kind(409, "topic-exists", "The topic exists already", "Use it, or choose another name."),
        errors.InvalidTopicName: Kind(
            409, "invalid-topic-name", "No topic of yours can have this name", "Choose another name."
        ),
        errors.InvalidPartitions: Kind(
            409,
            "invalid-partitions",
            "The topic cannot have so many partitions",
            "Partitions can be added, never removed.",
        ),
        errors.InvalidReplication: Kind(
            409,
            "invalid-replication",
            "The replicas cannot be placed",
            "Ask for at most as many replicas as there are brokers.",
        ),
        errors.InvalidConfig: Kind(
            409, "invalid-config", "These settings cannot be used together", "Correct the setting that `detail` names."
        ),
        errors.PolicyViolation: Kind(
            409, "policy-violation", "The topic's settings rule this out", "Change the setting that `detail` names."
        ),
        errors.NotLeader: Kind(503, "not-leader", "Another broker leads this partition", RETRY),
        errors.NoLeader: Kind(503, "no-leader", "Nobody leads this partition now", RETRY),
        errors.BrokerUnreachable: Kind(503, "broker-unreachable", "Another broker does not answer", RETRY),
        errors.OutcomeUnknown: Kind(
            503,
            "outcome-unknown",
            "It may have been done, or not",
            "Check first whether it was done: if you send it again, it may be there twice.",
        ),
        errors.StaleBrokerEpoch: Kind(503, "leadership-changed", "The broker has registered again", RETRY),
        errors.OffsetArchived: Kind(503, "leadership-changed", "The records are only in the bucket", RETRY),
        errors.FencedLeaderEpoch: Kind(503, "leadership-changed", "The partition's leader has changed", RETRY),
        errors.UnknownLeaderEpoch: Kind(503, "leadership-changed", "The partition's leader has changed", RETRY),
        errors.OffsetNotAvailable: Kind(503, "leadership-changed", "The partition's leader has just changed", RETRY),
        errors.UnknownBroker: Kind(
            404, "unknown-broker", "There is no such broker", "GET /api/v1/cluster lists the brokers."
        ),
        errors.UnknownUser: Kind(404, "unknown-user", "There is no such user", "GET /api/v1/users lists them."),
        errors.UnknownApiKey: Kind(
            404, "unknown-api-key", "There is no such API key", "GET /api/v1/api-keys lists them."
        ),
        errors.NoReassignment: Kind(
            409, "no-reassignment", "No reassignment is going on", "GET /api/v1/cluster/moves lists those that are."
        ),
        errors.ElectionNotNeeded: Kind(
            409, "election-not-needed", "The partition has its leader", "There is nothing to do."
        ),
        errors.NoEligibleLeader: Kind(
            503, "no-eligible-leader", "Nobody can lead this partition now", "Try again once more brokers are up."
        ),
        errors.NotEnoughReplicas: Kind(
            503, "not-enough-replicas", "Too few replicas are in sync", "Try again once more brokers are up."
        ),
        errors.DataLost: Kind(
            503,
            "data-lost",
            "The only copy of the partition is gone",
            "Have an operator bring the data directory back, or allow an unclean election.",
        ),
        errors.NodeIdTaken: Kind(
            503, "node-id-taken", "Two brokers have the same node id", "Give each its own node id."
        ),
        errors.UnknownFormat: Kind(503, "unknown-format", "A newer version is needed", "Upgrade this broker."),
        errors.StorageFailure: Kind(
            503, "storage-failure", "The disk failed", "Have an operator look at the node's disk."
        ),
        errors.DiskFull: Kind(
            507, "disk-full", "The disk is full", "Free room on the data directory's disk, or shorten retention."
        ),
        errors.MetadataUnavailable: Kind(503, "metadata-unavailable", "Cluster metadata does not answer", RETRY),
        errors.MetadataConflict: Kind(503, "metadata-conflict", "Another change came first", RETRY),
        errors.MetadataCompacted: Kind(503, "metadata-unavailable", "Cluster metadata is being read again", RETRY),
        errors.LeaseExpired: Kind(503, "metadata-unavailable", "The node is registering again", RETRY),
        errors.InvalidRequest: Kind(
            400, "bad-request", "The request contradicts itself", "Correct what `detail` names."
        ),
        cold.StoreUnavailable: Kind(503, "store-unavailable", "The archive's store does not answer", RETRY),
        cold.ArchiveNotLoaded: Kind(503, "archive-not-loaded", "The archive's manifest is being read", RETRY),
        cold.StoreDenied: Kind(
            503,
            "store-denied",
            "The archive's store refuses the node's credentials",
            "Have an operator look at the node's credentials and the bucket's policy.",
        ),
        cold.StoreError: Kind(
            503,
            "store-failure",
            "The archive's store refuses",
            "Have an operator look at the bucket.",
        ),
        cold.ManifestInvalid: Kind(
            503, "corrupt-archive", "The archive contradicts itself", "`tierlog archive verify` shows what is damaged."
        ),
        cold.CorruptObject: Kind(
            503, "corrupt-archive", "Archived records are damaged", "`tierlog archive verify` shows what is damaged."
        ),
        cold.KeyMissing: Kind(
            503,
            "key-missing",
            "Archived records are encrypted, and the node does not have their key",
            "Have an operator put the key into the node's key file, or allow the node to use it.",
        ),
        cold.KeyShredded: Kind(
            410,
            "key-shredded",
            "The key of archived records was destroyed",
            "Nobody can read them any more. Read from a later offset.",
        ),
        cold.ArchiveStopped: Kind(
            503,
            "archive-stopped",
            "The archive is not the one that the node knows",
            "`tierlog archive status` says why, and which command helps.",
        ),
        cold.ArchiveNotStopped: Kind(
            409, "archive-not-stopped", "There is nothing to repair", "`tierlog archive status` says what is wrong."
        ),
        cold.RecordsMissing: Kind(
            409,
            "records-missing",
            "Archived records are gone",
            "Put the objects back from a copy, or give the records up with `tierlog archive accept-loss`.",
        ),
        cold.ReplacementRefused: Kind(
            409, "replacement-refused", "Rewritten segments do not fit the archive", "Run the job again."
        ),
        cold.ManifestFenced: Kind(503, "leadership-changed", "The partition's leader has changed", RETRY),
        AuditFull: AUDIT_FULL,
        sql.SqlNotInstalled: Kind(
            503, "sql-not-installed", "This broker has no SQL", "Install it there: pip install 'tierlog[sql]'."
        ),
        sql.BadQuery: Kind(409, "bad-query", "The query is wrong", "DESCRIBE TOPIC names the columns of a topic."),
        sql.QueryFailed: Kind(409, "query-failed", "The query does not work on these records", "Change the query."),
        sql.QueryTooSlow: Kind(
            409, "query-too-slow", "The query needs too long", "Ask for less time, fewer offsets, or more `timeout_ms`."
        ),
        sql.QueryTooLarge: Kind(
            409,
            "query-too-large",
            "The query needs too much memory",
            "Sort or group fewer rows, or raise sql.memory_bytes.",
        ),
        sql.QueryCancelled: Kind(409, "query-cancelled", "The query was cancelled", "Send it again if it was not you."),
        sql.TooManyQueries: Kind(503, "too-many-queries", "Too many queries at once", RETRY),
        sql.UnknownQuery: Kind(
            404, "unknown-query", "None of your queries has this id", "It may have ended. Compare the id."
        ),
        sql.QueryIdTaken: Kind(409, "query-id-taken", "A query with this id is running", "Choose another id."),
        groups.CoordinatorLoading: Kind(503, "coordinator-loading", "Group offsets are being read back", RETRY),
        groups.CoordinatorNotAvailable: Kind(
            503, "coordinator-not-available", "No broker can coordinate this group now", RETRY
        ),
        groups.NotCoordinator: Kind(503, "not-coordinator", "Another broker coordinates this group", RETRY),
        groups.InvalidGroupId: Kind(400, "invalid-group", "This cannot be a group's name", "Choose another name."),
        groups.GroupNotFound: Kind(
            404, "unknown-group", "There is no such consumer group", "GET /api/v1/consumer-groups lists the groups."
        ),
        groups.GroupNotEmpty: Kind(
            409, "group-not-empty", "The group has members", "Stop its consumers first, or commit through them."
        ),
        groups.OffsetMetadataTooLarge: Kind(409, "metadata-too-large", "The metadata is too long", "Shorten it."),
        groups.GroupSubscribedToTopic: Kind(
            409, "group-subscribed", "A member of the group reads this topic", "Stop the group's consumers first."
        ),
        groups.RebalanceInProgress: Kind(503, "rebalance-in-progress", "The group is rebalancing", RETRY),
        groups.UnstableOffset: Kind(503, "unstable-offset", "A transaction that is open may change this", RETRY),
        groups.InvalidTransactionalId: Kind(
            400, "invalid-transactional-id", "This cannot be a transactional id", "Choose another name."
        ),
        groups.TransactionalIdNotFound: Kind(
            404, "unknown-transactional-id", "Nobody uses this name", "GET /api/v1/transactions lists what there is."
        ),
        groups.ConcurrentTransactions: Kind(503, "concurrent-transactions", "The last step is not done yet", RETRY),
        groups.ProducerFencedByNewer: Kind(
            409, "producer-fenced", "The transaction timed out, or another has begun", "Begin a new transaction."
        ),
        groups.TransactionError: Kind(
            409, "transaction-refused", "The transaction does not allow this", "Begin a new transaction."
        ),
        groups.CoordinatorError: Kind(
            409,
            "group-refused",
            "The consumer group refuses this",
            "Stop the group's consumers first, or act through them.",
        ),
    }
)


def kind_of(error: errors.TierlogError) -> Kind:
    for each in type(error).__mro__:
        if (kind := KINDS.get(each)) is not None:
            return kind
    return INTERNAL
