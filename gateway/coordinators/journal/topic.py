"""The topic of a journal: how it is configured, and making it when it is first needed.

Many requests may need the topic at the same moment. They share one attempt to make it, and all are told how it ended.
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
from hot_tier.errors import TierlogError, TopicExists

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JournalTopic:
    name: str
    keeps: str
    """What a key of this journal names, for messages to people: "group", for example."""
    partitions: int
    """Used once, when the topic is made. So are the fields below."""
    replication_factor: int
    """At most as many replicas are made as brokers are alive."""
    config: Mapping[str, str]
    """Topic settings beside those that every journal has."""


class TopicMaker:
    def __init__(self, topic: JournalTopic, image: ClusterImage, admin: TopicAdmin) -> None:
        self._topic = topic
        self._image = image
        self._admin = admin
        self._making: asyncio.Task[None] | None = None

    def find(self) -> Topic | None:
        return self._image.find_topic(self._topic.name)

    async def require(self) -> Topic:
        """Returns the topic, which is made if there is none. Raises CoordinatorNotAvailable if that fails."""
        topic = self.find()
        if topic is None:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make(), name=f"make {self._topic.name}")
                self._making.add_done_callback(self._made)
            # A client that goes away must not stop what others wait for.
            await asyncio.shield(self._making)
            topic = self.find()
        if topic is None:
            raise CoordinatorNotAvailable(f"there is no topic {self._topic.name}", hint="try again")
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
                max(1, min(topic.replication_factor, len(self._image.brokers()))),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "max.message.bytes": str(MAX_WRITE_BYTES),
                    **topic.config,
                },
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
            task.exception()  # Those who still wait have been told; asyncio shall not warn when nobody does.
