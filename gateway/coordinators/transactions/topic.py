"""The topic of transactions as a journal of transactional ids."""

from typing import Final

from gateway.coordinators.journal.topic import JournalTopic
from gateway.coordinators.settings import TransactionSettings

TRANSACTIONS_TOPIC: Final = "__transaction_state"


def transactions_topic(settings: TransactionSettings) -> JournalTopic:
    return JournalTopic(
        TRANSACTIONS_TOPIC,
        keeps="transactional id",
        partitions=settings.topic_partitions,
        replication_factor=settings.topic_replication_factor,
        config={"segment.bytes": str(settings.topic_segment_bytes)},
    )
