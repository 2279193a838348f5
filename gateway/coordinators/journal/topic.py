"""The topic of a journal: its settings, and how it is made when it is first needed.

Many requests may need the topic at the same moment. They share one attempt to make it, and all get its result.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from gateway.coordinators.errors import CoordinatorNotAvailable
from gateway.coordinators.journal.writer import MAX_WRITE_BYTES
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Topic
from hot_tier.cluster.placement import count_hosts, places_of
from hot_tier.errors import TierlogError, TopicExists

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JournalTopic:
    name: str
    keeps: str
    """What a key of this journal names, for messages to people; for example "group"."""
    partitions: int
    """Used once, when the topic is made. The same is true for the fields below."""
    replication_factor: int
    """There are never more replicas than live brokers."""
    config: Mapping[str, str]
    """Topic settings in addition to those that every journal has."""


def topic_settings(topic: JournalTopic) -> dict[str, str]:
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "max.message.bytes": str(MAX_WRITE_BYTES),
        **topic.config,
    }


class TopicMaker:
    def __init__(self, topic: JournalTopic, image: ClusterImage, admin: TopicAdmin) -> None:
        self._topic = topic
        self._image = image
        self._admin = admin
        self._making: asyncio.Task[None] | None = None

    def find(self) -> Topic | None:
        return self._image.find_topic(self._topic.name)

    async def require(self) -> Topic:
        """Returns the topic. Makes it if there is none, and raises CoordinatorNotAvailable if that fails."""
        topic = self.find()
        if topic is None:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make(), name=f"make {self._topic.name}")
                self._making.add_done_callback(self._made)
            # If one client disconnects, the others still wait for this task.
            await asyncio.shield(self._making)
            topic = self.find()
        if topic is None:
            raise CoordinatorNotAvailable(f"there is no topic {self._topic.name} yet", hint="try again")
        return topic

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make(self) -> None:
        topic = self._topic
        try:
            await self._admin.create_topic(
                topic.name,
                topic.partitions,
                max(1, min(topic.replication_factor, count_hosts(places_of(self._image.brokers())))),
                topic_settings(topic),
                internal=True,
            )
        except TopicExists:
            pass
        except TierlogError as error:
            _log.warning("topic of a coordinator not made", topic=topic.name, error=str(error))
            what = f"the topic {topic.name} could not be made: {error}"
            raise CoordinatorNotAvailable(what, hint="try again") from error

    def _made(self, task: asyncio.Task[None]) -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # Reads the exception, so that asyncio does not warn when nobody waits.
