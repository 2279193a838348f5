"""Why a coordinator or a consumer group refuses a request: one class per cause.

A caller of a coordinator meets these errors and those of the hot tier, no others. A group's machine answers with the
class itself, because its answers are values. Calls for HTTP and the command line raise an instance. The protocols map
the classes to wire codes and HTTP statuses, as they do for every other error.
"""

from hot_tier.errors import TierlogError


class CoordinatorError(TierlogError):
    """The coordinator refused the request."""

    def __init__(self, what: str = "", *, where: str = "", hint: str = "") -> None:
        """Without `what`, the error's text is the docstring of its class."""
        super().__init__(what or type(self).__doc__ or "", where=where, hint=hint)


Refusal = type[CoordinatorError] | None
"""Why a machine refuses a request; None if it does not."""


# The coordinator


class CoordinatorLoading(CoordinatorError):
    """The groups of this offsets partition are being read back; try again soon."""

    retriable = True


class CoordinatorNotAvailable(CoordinatorError):
    """No coordinator can serve this group now: there is no offsets topic, a record is damaged, or a write failed."""

    retriable = True


class NotCoordinator(CoordinatorError):
    """Another broker leads the offsets partition of this group."""

    retriable = True


# The group


class GroupError(CoordinatorError):
    """The group refused the request."""


class InvalidGroupId(GroupError):
    """This cannot be the name of a group."""


class GroupNotFound(GroupError):
    """There is no such group."""


class GroupNotEmpty(GroupError):
    """The group has members. Only a group without members can be deleted or get its offsets set by others."""


class GroupFull(GroupError):
    """There is no room for another member, for the member's metadata, or for another group."""


class InconsistentProtocol(GroupError):
    """The protocol type is not the group's, or there is no protocol that every member supports."""


class InvalidSessionTimeout(GroupError):
    """The session timeout is outside the limits that the broker sets."""


# The member


class UnknownMember(GroupError):
    """The member never joined, has left, or has expired: forget the member id and join again."""


class MemberIdRequired(GroupError):
    """Join again with the member id in this answer."""


class FencedInstance(GroupError):
    """A newer process has joined with the same `group.instance.id`."""


class IllegalGeneration(GroupError):
    """The generation is not the current one: the sender has missed a rebalance."""


class RebalanceInProgress(GroupError):
    """A new generation is being formed: join again."""

    retriable = True


# Offsets


class OffsetMetadataTooLarge(GroupError):
    """The metadata of a commit is longer than the broker allows."""


class UnstableOffset(GroupError):
    """A transaction that is still open has committed another offset here: ask again when it has ended."""

    retriable = True


class GroupSubscribedToTopic(GroupError):
    """A live member subscribes to the topic, so its offsets cannot be deleted."""


# Transactions


class TransactionError(CoordinatorError):
    """The transaction coordinator refused the request."""


class InvalidTransactionalId(TransactionError):
    """This cannot be a transactional id."""


class TransactionalIdNotFound(TransactionError):
    """There is no such transactional id: it was never used, or it has expired."""


class TooManyTransactionalIds(TransactionError):
    """There is no room for another transactional id."""


class TransactionTooLarge(TransactionError):
    """The transaction has too many partitions: commit more often."""


class TransactionsNotServed(TransactionError):
    """Some broker of this cluster runs a version without transactions. After most errors clients try again for minutes;
    after this one they give up."""


class InvalidTransactionTimeout(TransactionError):
    """The transaction timeout is not positive, or larger than the broker allows."""


class InvalidProducerIdMapping(TransactionError):
    """The producer id does not belong to this transactional id."""


class ProducerFencedByNewer(TransactionError):
    """The producer's epoch is over: a newer producer uses the transactional id, or its transaction timed out."""


class WrongTransactionState(TransactionError):
    """The transaction is not in a state that allows this."""


class ConcurrentTransactions(TransactionError):
    """Another step of this transactional id is under way; try again soon."""

    retriable = True


class TransactionAbortable(TransactionError):
    """The partition is not in the transaction: abort it, and begin a new one."""
