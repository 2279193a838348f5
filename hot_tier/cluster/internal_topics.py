"""The topics that the service keeps for itself: nobody else makes, writes or deletes them."""

from typing import Final

from hot_tier.cluster.model import Topic

AUDIT_TOPIC: Final = "__audit"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", AUDIT_TOPIC})
"""Of these, two are Kafka's names."""


def stays_local(topic: Topic) -> bool:
    """Returns whether the topic is never archived: the service reads it back, and from local disk alone."""
    return topic.internal and topic.name != AUDIT_TOPIC
