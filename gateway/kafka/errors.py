"""Kafka's error codes, and the code of each of our errors. Only this module maps them.

A more specific class wins over its base. An exception that is not in the table is a mistake of ours and becomes
UNKNOWN_SERVER_ERROR.
"""

from enum import IntEnum
from typing import Final

from cold_tier import errors as cold_errors
from gateway.audit.audit import AuditFull
from gateway.coordinators import errors as groups
from hot_tier import errors
from hot_tier.cluster.acls import Operation, ResourceType


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


class DecodeError(errors.TierlogError):
    """The request does not match its header; the connection is closed."""


class TooManyElements(DecodeError):
    """The request has more elements than this reader accepts."""


class NoMemory(errors.TierlogError):
    """The memory for requests, of all clients together or of one address, has no room for this one."""

    retriable = True


class AnswerTooLarge(errors.TierlogError):
    """The answer would be larger than an answer may be."""


class UnsupportedVersion(errors.TierlogError):
    """The API, or this version of it, is not served."""


class InvalidRequiredAcks(errors.TierlogError):
    """acks is 0, 1 or -1 (all)."""


class UnsupportedCompression(errors.TierlogError):
    """This version of the request does not allow the codec."""


class InconsistentTopicId(errors.TierlogError):
    """The id and the name in a request belong to different topics."""

    retriable = True


class SecurityDisabled(errors.TierlogError):
    """Access rules do not hold on this broker, so none are shown or changed."""


class NotAuthorized(errors.TierlogError):
    """No access rule allows this, or one denies it. It does not say whether the resource exists."""

    def __init__(self, operation: Operation, kind: ResourceType) -> None:
        said = operation.name.lower().replace("_", " ")
        super().__init__(f"not authorized to {said} this {kind.name.lower().replace('_', ' ')}")
        self.kind = kind


CODES: Final[dict[type[BaseException], ErrorCode]] = {
    DecodeError: ErrorCode.INVALID_REQUEST,
    AnswerTooLarge: ErrorCode.INVALID_REQUEST,
    NoMemory: ErrorCode.REQUEST_TIMED_OUT,
    UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
    InvalidRequiredAcks: ErrorCode.INVALID_REQUIRED_ACKS,
    UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    InconsistentTopicId: ErrorCode.INCONSISTENT_TOPIC_ID,
    # Producers and consumers try again after it.
    AuditFull: ErrorCode.KAFKA_STORAGE_ERROR,
    SecurityDisabled: ErrorCode.SECURITY_DISABLED,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.MalformedBatch: ErrorCode.INVALID_RECORD,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.UnsupportedBatch: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionCoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.CorruptLog: ErrorCode.CORRUPT_MESSAGE,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplication: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.PolicyViolation: ErrorCode.POLICY_VIOLATION,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NoLeader: ErrorCode.LEADER_NOT_AVAILABLE,
    errors.BrokerUnreachable: ErrorCode.REQUEST_TIMED_OUT,
    errors.OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
    errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.StaleBrokerEpoch: ErrorCode.STALE_BROKER_EPOCH,
    errors.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    errors.OffsetArchived: ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
    errors.UnknownBroker: ErrorCode.BROKER_ID_NOT_REGISTERED,
    errors.UnknownUser: ErrorCode.RESOURCE_NOT_FOUND,
    errors.NoReassignment: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    errors.NoEligibleLeader: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.PreferredLeaderUnavailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.StorageFailure: ErrorCode.KAFKA_STORAGE_ERROR,
    cold_errors.CorruptObject: ErrorCode.CORRUPT_MESSAGE,
    cold_errors.StoreError: ErrorCode.KAFKA_STORAGE_ERROR,
    # A key may be put back: clients keep their position and try again. A destroyed one is not: clients report an error.
    cold_errors.KeyMissing: ErrorCode.KAFKA_STORAGE_ERROR,
    cold_errors.KeyShredded: ErrorCode.CORRUPT_MESSAGE,
    # Clients try again and keep their position; after OFFSET_OUT_OF_RANGE they would reset it.
    cold_errors.ArchiveStopped: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.MetadataUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    errors.MetadataConflict: ErrorCode.NOT_CONTROLLER,
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    groups.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    groups.CoordinatorNotAvailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    groups.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    groups.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    groups.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    groups.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    groups.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    groups.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    groups.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    groups.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    groups.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    groups.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    groups.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    groups.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    groups.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    groups.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    groups.GroupSubscribedToTopic: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    groups.InvalidTransactionalId: ErrorCode.INVALID_REQUEST,
    groups.TransactionalIdNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    groups.TooManyTransactionalIds: ErrorCode.POLICY_VIOLATION,
    groups.TransactionTooLarge: ErrorCode.INVALID_TXN_STATE,
    groups.TransactionsNotServed: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    groups.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    groups.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    groups.ProducerFencedByNewer: ErrorCode.PRODUCER_FENCED,
    groups.WrongTransactionState: ErrorCode.INVALID_TXN_STATE,
    groups.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    groups.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    TimeoutError: ErrorCode.REQUEST_TIMED_OUT,
}

NOT_AUTHORIZED: Final[dict[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def error_code(error: BaseException | type[BaseException]) -> ErrorCode:
    """Returns the code of an error, or of an error class: some answers carry the class itself."""
    if isinstance(error, NotAuthorized):
        return NOT_AUTHORIZED[error.kind]
    for cls in (error if isinstance(error, type) else type(error)).__mro__:
        code = CODES.get(cls)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def error_message(error: BaseException) -> str:
    """Returns the text for the client. For a mistake of ours it contains no details."""
    return str(error) if isinstance(error, errors.TierlogError) else "unexpected error, see the broker's log"
