"""Why a coordinator or a consumer group refuses a request, each cause a class.

Beside the hot tier's errors these are all that a caller of a coordinator meets. A group's machine answers with the
class itself, because its answers are values; the calls made for HTTP and the command line raise an instance. Wire codes
and HTTP statuses are given at the border, by class, as for every other error.
"""

from hot_tier.errors import TierlogError


class CoordinatorError(TierlogError):
    """A coordinator refused."""

    def __init__(self, what: str = "", *, where: str = "", hint: str = "") -> None:
        """Without `what` the error says what the docstring of its class says."""
        super().__init__(what or type(self).__doc__ or "", where=where, hint=hint)


Refusal = type[CoordinatorError] | None
"""Why a machine refuses a request; None if it does not."""


# The coordinator


class CoordinatorLoading(CoordinatorError):
    """The groups of this offsets partition are being read back; ask again shortly."""

    retriable = True


class CoordinatorNotAvailable(CoordinatorError):
    """No coordinator can serve this group now: no offsets topic, a damaged record, a write that failed."""

    retriable = True


class NotCoordinator(CoordinatorError):
    """Another broker leads the offsets partition of this group."""

    retriable = True


# The group


class GroupError(CoordinatorError):
    """A group refused."""


class InvalidGroupId(GroupError):
    """This cannot be the name of a group."""


class GroupNotFound(GroupError):
    """There is no such group."""


class GroupNotEmpty(GroupError):
    """Only a group without members may be deleted, or have its offsets set from outside."""


class GroupFull(GroupError):
    """No room for more: members of the group, bytes of what they bring, or groups."""


class InconsistentProtocol(GroupError):
    """Another protocol type than the group's, or no protocol that every member supports."""


class InvalidSessionTimeout(GroupError):
    """The session timeout is not within the bounds that the broker sets."""


# The member


class UnknownMember(GroupError):
    """Never joined, left, or was expired: forget the member id and join again."""


class MemberIdRequired(GroupError):
    """Join again with the id that this answer carries."""


class FencedInstance(GroupError):
    """A newer process has joined with the same `group.instance.id`."""


class IllegalGeneration(GroupError):
    """A generation that is not the current one: the sender has missed a rebalance."""


class RebalanceInProgress(GroupError):
    """Join again: a new generation is being formed."""

    retriable = True


# Offsets


class OffsetMetadataTooLarge(GroupError):
    """The metadata of a commit is longer than the broker allows."""


class GroupSubscribedToTopic(GroupError):
    """Offsets of a topic that a live member subscribes to are not deleted."""
