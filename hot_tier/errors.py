"""All errors of the hot tier, each named by its cause.

An error says what happened, where, and what to do next. It never names a wire code: Kafka codes and HTTP
statuses are given once, at the border (`gateway.kafka.errors`, `gateway.http.problems`). `retriable` means
that the same call may succeed later without the caller changing anything.

`assert` is for our own mistakes. Whatever foreign bytes or a user can cause raises one of these errors.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

LONGEST_TEXT: Final = 2000
"""A name that somebody made up may be longer than any answer can hold."""


class TierlogError(Exception):
    """What happened, `where` (a topic-partition, a file, an object), and a `hint`: what to do next."""

    retriable: ClassVar[bool] = False

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        whole = f"{text} ({self.hint})" if self.hint else text
        return whole if len(whole) <= LONGEST_TEXT else f"{whole[:LONGEST_TEXT]}…"


# What producers send


class CorruptBatch(TierlogError):
    """Bytes that are not the record batch they claim to be: CRC, lengths, counts."""


class MalformedBatch(CorruptBatch):
    """The producer made a wrong batch; it was not damaged on the way. Sending it again does not help."""


class InvalidRecord(TierlogError):
    """A well-formed batch that this topic must not take: no key on a compacted topic, a bad timestamp.

    `records` names the records at fault by their index in the batch, each with what is wrong with it.
    """

    records: Sequence[tuple[int, str]] = ()


class InvalidTimestamp(InvalidRecord):
    """A record's time is outside what `message.timestamp.before.max.ms` and `….after.max.ms` allow."""


class BatchTooLarge(TierlogError):
    """More bytes than `max.message.bytes`, or more than the cap once decompressed."""


class UnsupportedBatch(TierlogError):
    """A record format or codec that is not served: magic below 2, codec 5 and up."""


class OutOfOrderSequence(TierlogError):
    """An idempotent producer left a gap, or repeated a batch older than the window of five."""


class ProducerFenced(TierlogError):
    """A newer epoch of this producer id has written already."""


class InvalidTransactionState(TierlogError):
    """A batch does not fit the state of its producer's transaction in this partition. Nothing was stored."""


class TransactionCoordinatorFenced(TierlogError):
    """A marker comes from a transaction coordinator that another has replaced."""


# What readers ask


class OffsetOutOfRange(TierlogError):
    """The offset is below the log start or beyond the log end."""


class CorruptLog(TierlogError):
    """Stored bytes are damaged. A reader always gets this error; damage is never skipped or shown as an empty log."""


# Topics and partitions


class UnknownTopic(TierlogError):
    retriable = True


class UnknownTopicId(TierlogError):
    retriable = True


class UnknownPartition(TierlogError):
    retriable = True


class TopicExists(TierlogError):
    pass


class InvalidTopicName(TierlogError):
    pass


class InvalidPartitions(TierlogError):
    pass


class InvalidReplication(TierlogError):
    """A replication factor or an assignment that the cluster cannot place."""


class InvalidAssignment(InvalidReplication):
    """A list of replicas names unknown brokers, or partitions that the request is not about."""


class InvalidConfig(TierlogError):
    pass


class PolicyViolation(TierlogError):
    """The topic's settings do not allow the request."""


# Leadership


class NotLeader(TierlogError):
    """Another broker leads this partition."""

    retriable = True


class NoLeader(NotLeader):
    """Nobody leads this partition now: its brokers are down, or an election is under way."""


class FencedLeaderEpoch(TierlogError):
    """The caller's leader epoch is older than ours."""

    retriable = True


class UnknownLeaderEpoch(TierlogError):
    """The caller's leader epoch is newer than ours."""

    retriable = True


class NotEnoughReplicas(TierlogError):
    retriable = True


class NotEnoughReplicasAfterAppend(NotEnoughReplicas):
    """The batch is in the log and committed, but fewer replicas have it than min.insync.replicas asks for."""


class StaleBrokerEpoch(TierlogError):
    """A follower's request comes from another process of its broker than the registered one."""

    retriable = True


class OffsetNotAvailable(TierlogError):
    """A new leader does not know yet what is committed."""

    retriable = True


class OffsetArchived(TierlogError):
    """A follower asks for records that only the bucket has; the leader's disk no longer has them."""


# Other brokers


class BrokerUnreachable(TierlogError):
    """The broker that had to be asked does not answer. It has done nothing."""

    retriable = True


class OutcomeUnknown(TierlogError):
    """The answer to a change was lost, so nobody knows whether the change was made. Trying again may make it twice."""


class UnknownBroker(TierlogError):
    """No broker with this number was ever part of the cluster."""


class UnknownUser(TierlogError):
    """There is no user with this name."""


class UnknownApiKey(TierlogError):
    """There is no API key with this id."""


class NoReassignment(TierlogError):
    """There is no reassignment that could be cancelled."""


class ElectionNotNeeded(TierlogError):
    """The partition already has the leader that was asked for."""


class NoEligibleLeader(TierlogError):
    """No replica that could lead is both alive and in sync."""

    retriable = True


class PreferredLeaderUnavailable(NoEligibleLeader):
    """The first replica is not alive, or not in sync."""


# The machine


class StorageFailure(TierlogError):
    """The disk refused a read, a write or a sync. What was not acknowledged may be lost, nothing else."""

    retriable = True


class DiskFull(StorageFailure):
    """The disk of the data directory has too little free room to accept writes."""


class MetadataUnavailable(TierlogError):
    """The metadata store did not answer in time."""

    retriable = True


class MetadataAnswerLost(MetadataUnavailable):
    """A write was sent and no answer came. It may have happened, or may still happen. Read again before you decide."""


class MetadataConflict(TierlogError):
    """A compare-and-swap lost against another writer. Read again and decide again."""

    retriable = True


class MetadataCompacted(TierlogError):
    """A watch asked for changes that are older than the store remembers. List again and watch from there."""

    retriable = True


class CorruptMetadata(TierlogError):
    """A value in the metadata store is not of the form that its key requires."""


class LeaseExpired(TierlogError):
    """The lease that a key belongs to has ended. Its owner must register again."""


class NodeIdTaken(TierlogError):
    """Another broker has the same number. Two brokers must never count as one."""


class DataLost(TierlogError):
    """The data directory lacks records that no other place has. The broker does not start without them."""


class UnknownFormat(TierlogError):
    """A data directory or cluster metadata that a newer version has changed; this one must not touch it."""


class InvalidRequest(TierlogError):
    """A request contradicts itself: it names a topic twice, or has a value where none is allowed."""


class SettingsError(TierlogError):
    """A setting cannot be used. The error names the setting and its allowed values."""
