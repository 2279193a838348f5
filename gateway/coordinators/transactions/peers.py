"""What brokers say to each other about transactions, without the protocol that carries it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from gateway.coordinators.transactions.transaction import Producer
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import TierlogError
from hot_tier.ids import TopicPartition
from hot_tier.record.control import Marker, MarkerKind


class End(NamedTuple):
    """How a transaction ended, as all its markers say."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int

    @property
    def marker(self) -> Marker:
        return Marker(MarkerKind.COMMIT if self.commit else MarkerKind.ABORT, self.coordinator_epoch)


class OneMarker(NamedTuple):
    end: End
    tp: TopicPartition


class Question(NamedTuple):
    """Whether partitions are in a producer's open transaction."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    add: bool
    """Add them, and begin the transaction if none is open (TV2)."""


class Peers(Protocol):
    """Calls to other brokers. They raise OSError, TimeoutError or TierlogError if there is no answer."""

    async def write_markers(self, broker: BrokerInfo, markers: Sequence[OneMarker]) -> Mapping[OneMarker, str]:
        """Asks a broker to write markers to partitions that it leads. Returns why some are to be written again: all but
        those that are committed, or older than what their producer has written there."""
        ...

    async def admit(
        self, broker: BrokerInfo, questions: Sequence[Question]
    ) -> Sequence[Mapping[TopicPartition, TierlogError | None]]:
        """Asks a coordinator. Returns an answer for each question."""
        ...

    def close(self) -> None: ...
