"""Every error a caller of the hot tier may meet, named by its cause.

An error says what happened, where, and what to do next. It never names a wire code: Kafka codes and HTTP
statuses are given once, at the border (`gateway.kafka.errors`, `gateway.http.problems`). `retriable` means
that the same call may succeed later without the caller changing anything.

`assert` is for our own mistakes; whatever foreign bytes or a user can cause is one of these.
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
    """Not damaged on the way: the producer made it so. Sending it again does not help."""


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


# What readers ask


class OffsetOutOfRange(TierlogError):
    """Below the log start, or beyond the log end."""


class CorruptLog(TierlogError):
    """Stored bytes are damaged. Never answered as "nothing there", never skipped."""


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
    """A list of replicas that names brokers which are not there, or partitions which are not asked about."""


class InvalidConfig(TierlogError):
    pass


class PolicyViolation(TierlogError):
    """What the topic's settings rule out."""


# Leadership


class NotLeader(TierlogError):
    """Another broker leads this partition."""

    retriable = True


class NoLeader(NotLeader):
    """Nobody leads this partition now: its brokers are down, or an election is under way."""


class FencedLeaderEpoch(TierlogError):
    """The caller knows an older leader epoch than ours."""

    retriable = True


class UnknownLeaderEpoch(TierlogError):
    """The caller knows a newer leader epoch than ours."""

    retriable = True


class NotEnoughReplicas(TierlogError):
    retriable = True


class NotEnoughReplicasAfterAppend(NotEnoughReplicas):
    """A batch is in the log and committed, but by fewer replicas than min.insync.replicas asks for."""


class StaleBrokerEpoch(TierlogError):
    """A follower speaks for an incarnation of its broker that is not the one registered."""

    retriable = True


class OffsetNotAvailable(TierlogError):
    """A new leader does not know yet what is committed."""

    retriable = True


class OffsetArchived(TierlogError):
    """A follower asks for records that are in the bucket and no longer on the leader's disk."""


# Other brokers


class BrokerUnreachable(TierlogError):
    """The broker that had to be asked does not answer, and nothing was done there."""

    retriable = True


class OutcomeUnknown(TierlogError):
    """A change was under way when its answer was lost: it was made, or it was not. Trying again may make it twice."""


class UnknownBroker(TierlogError):
    """No broker of this number was ever part of the cluster."""


class NoReassignment(TierlogError):
    """A reassignment that was to be cancelled is not going on."""


class ElectionNotNeeded(TierlogError):
    """The partition has the leader that was asked for."""


class NoEligibleLeader(TierlogError):
    """None of those who could lead is alive, or in sync."""

    retriable = True


class PreferredLeaderUnavailable(NoEligibleLeader):
    """The first replica is not alive, or not in sync."""


# The machine


class StorageFailure(TierlogError):
    """The disk refused a read, a write or a sync. What was not acknowledged may be lost, nothing else."""

    retriable = True


class DiskFull(StorageFailure):
    """Too little room left on the data directory's disk to accept writes."""


class MetadataUnavailable(TierlogError):
    """The metadata store did not answer in time."""

    retriable = True


class MetadataAnswerLost(MetadataUnavailable):
    """A write was sent and its answer never came: it happened, or not, or it may yet. Read again before deciding."""


class MetadataConflict(TierlogError):
    """A compare-and-swap lost against another writer; read again and decide anew."""

    retriable = True


class MetadataCompacted(TierlogError):
    """A watch asked for changes older than the store remembers; list again and watch from there."""

    retriable = True


class CorruptMetadata(TierlogError):
    """A value in the metadata store that is not what its key promises."""


class LeaseExpired(TierlogError):
    """The lease that a key was to hang on is gone; whoever held it must register anew."""


class NodeIdTaken(TierlogError):
    """Another broker has this one's number: two of them must never be counted as one."""


class DataLost(TierlogError):
    """A data directory without the records that only it held; nothing goes on as if they had never been."""


class InvalidRequest(TierlogError):
    """A request that contradicts itself: the same topic twice, a value where none may be."""


class SettingsError(TierlogError):
    """A setting that cannot be used; says which one and what it may be."""
