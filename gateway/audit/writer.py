"""The task that writes the audit's queue to the topic `__audit`, and makes that topic.

- Events are written as a producer's are with acks=all: they leave the queue when every in-sync replica has them. If it
  is not known whether a write was done, it is done again, and events may be there twice; `metadata.uid` tells them.
- It writes to partitions that this broker leads. If it leads none, it sends the events to a broker that does.
- The topic's settings are those of the section `audit`, brought in at the start of each broker.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog

from gateway.audit.audit import Audit
from gateway.audit.events import LIFECYCLE, START, STOP, Event, Origin, encode
from gateway.audit.settings import AuditSettings
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.internal_topics import AUDIT_TOPIC
from hot_tier.cluster.model import NO_NODE, Topic
from hot_tier.cluster.placement import count_hosts, places_of
from hot_tier.errors import NoLeader, OutcomeUnknown, SettingsError, TierlogError, TopicExists
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.table import PartitionTable

WRITE_S: Final = 0.5
"""Events are written at least so often."""
BATCH_BYTES: Final = 256 * 1024
"""A batch of this size is written in a few milliseconds."""
COMMIT_S: Final = 30.0
LONGEST_PAUSE_S: Final = 5.0
DRAIN_S: Final = 10.0
"""How long a broker that stops tries to write the rest."""

_log = structlog.get_logger()


class Elsewhere(Protocol):
    async def append(self, leader: NodeId, tp: TopicPartition, records: Sequence[NewRecord]) -> None:
        """Returns when the leader says that every in-sync replica has the records."""
        ...


class AuditWriter:
    def __init__(
        self,
        audit: Audit,
        settings: AuditSettings,
        origin: Origin,
        image: ClusterImage,
        admin: TopicAdmin,
        partitions: PartitionTable,
        elsewhere: Elsewhere,
    ) -> None:
        self._audit = audit
        self._settings = settings
        self._origin = origin
        self._image = image
        self._admin = admin
        self._partitions = partitions
        self._elsewhere = elsewhere
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._settled = False
        self._next = 0
        """The partition to write to, among those that may be chosen."""
        found = image.find_topic(AUDIT_TOPIC)
        if found is not None and not found.internal:
            raise SettingsError(
                f"the topic {AUDIT_TOPIC} was made by a client, so it cannot hold the audit",
                where="audit.enabled",
                hint="copy what you need from it and delete it, with audit.enabled=false",
            )

    def start(self) -> None:
        self._audit.note(Event(self._audit.clock(), LIFECYCLE, START))
        self._task = asyncio.get_running_loop().create_task(self._run(), name="audit")

    async def stop(self) -> None:
        """Writes what is in the queue, within limits."""
        self._audit.note(Event(self._audit.clock(), LIFECYCLE, STOP))
        self._audit.tell_counts(everything=True)
        self._stopping.set()
        assert self._task is not None
        await asyncio.wait([self._task], timeout=DRAIN_S)
        if self._audit.waiting:
            _log.error("the broker stops, and events of the audit are lost", lost=self._audit.waiting)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = WRITE_S
        while not (self._stopping.is_set() and not self._audit.waiting):
            try:
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(0 if pause_s == WRITE_S else WRITE_S)
            try:
                self._audit.tell_counts()
                while self._audit.waiting:
                    await self._write()
                pause_s = WRITE_S
            except Exception as error:
                if self._audit.failures % 10 == 0:
                    known = isinstance(error, TierlogError)
                    _log.warning("the audit is not written", error=str(error), exc_info=None if known else error)
                self._audit.failures += 1
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def _write(self) -> None:
        """Writes the oldest events. Raises if it is not sure that they are written."""
        topic = await self._topic()
        events = self._audit.oldest(BATCH_BYTES)
        values = encode(events, self._audit.total_written, self._origin)
        records = [NewRecord(event.time_ms, None, value) for event, value in zip(events, values, strict=True)]
        leader, tp = self._target(topic)
        if leader == self._origin.node_id:
            await self._append(tp, records)
        else:
            await self._elsewhere.append(leader, tp, records)
        self._audit.written(len(events))

    def _target(self, topic: Topic) -> tuple[NodeId, TopicPartition]:
        """Returns one of the partitions that this broker leads, each in turn; if it leads none, one of the others."""
        led = [(state.leader, number) for number, state in enumerate(self._image.partition_states(topic))]
        here = [each for each in led if each[0] == self._origin.node_id]
        choice = here or [each for each in led if each[0] != NO_NODE]
        if not choice:
            raise NoLeader("nobody leads a partition of it now", where=topic.name)
        self._next += 1
        leader, number = choice[self._next % len(choice)]
        return leader, TopicPartition(topic.name, PartitionId(number))

    async def _append(self, tp: TopicPartition, records: Sequence[NewRecord]) -> None:
        partition = self._partitions.get(*tp)
        batch = encode_records(records)
        appended = partition.append(batch, read_header(batch), self._audit.clock())
        committed = partition.when_committed(appended.end_offset)
        try:
            if committed is not None:
                async with asyncio.timeout(COMMIT_S):
                    await committed
        except TimeoutError:
            raise OutcomeUnknown(f"not committed within {COMMIT_S:g} s", where=str(tp)) from None

    async def _topic(self) -> Topic:
        topic = self._image.find_topic(AUDIT_TOPIC)
        if topic is None:
            replicas = max(1, min(self._settings.replication_factor, count_hosts(places_of(self._image.brokers()))))
            try:
                topic = await self._admin.create_topic(
                    AUDIT_TOPIC, self._settings.partitions, replicas, self._config({}), internal=True
                )
            except TopicExists:
                topic = self._image.topic(AUDIT_TOPIC)
        if not self._settled:
            await self._admin.replace_config(AUDIT_TOPIC, self._config(topic.config), by_service=True)
            self._settled = True
        return topic

    def _config(self, present: Mapping[str, str]) -> dict[str, str]:
        """A topic that was archived stays so: else what only the bucket has would be lost."""
        archived = self._settings.archived or present.get("remote.storage.enable") == "true"
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self._settings.retention_ms),
            "retention.bytes": "-1",
            "segment.ms": str(self._settings.segment_ms),
            "remote.storage.enable": str(archived).lower(),
        }
