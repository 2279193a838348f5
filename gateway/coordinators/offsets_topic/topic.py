"""The offsets topic as a journal of groups."""

from typing import Final

from gateway.coordinators.journal.topic import JournalTopic
from gateway.coordinators.settings import GroupSettings

OFFSETS_TOPIC: Final = "__consumer_offsets"


def offsets_topic(settings: GroupSettings) -> JournalTopic:
    return JournalTopic(
        OFFSETS_TOPIC,
        keeps="group",
        partitions=settings.offsets_topic_partitions,
        replication_factor=settings.offsets_topic_replication_factor,
        config={"segment.bytes": str(settings.offsets_topic_segment_bytes)},
    )
