"""Which groups this broker coordinates: those whose partition of the offsets topic it leads.

Owns the offsets topic (made when first needed), the shards, and their loading. What is done with the groups of a
shard is its users'.

- A shard lives for one leader epoch. It appears as `loading` the moment this broker leads its partition, so that no
  request slips in before its groups are read back, and disappears with the leadership. What it still has to write then
  is refused: the next leader goes on from what it has read, and nothing may come behind that.
- Groups are served from what is committed, all that was in the log when this broker began to lead: an offset that was
  shown once is never gone after the next election.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import structlog

from gateway.coordinators.errors import CoordinatorNotAvailable, InvalidGroupId, NotCoordinator
from gateway.coordinators.offsets_topic.loader import LoadedGroup, load
from gateway.coordinators.offsets_topic.partitioning import OFFSETS_TOPIC, partition_of
from gateway.coordinators.offsets_topic.writer import MAX_WRITE_BYTES, OffsetsWriter
from gateway.coordinators.settings import LONGEST_STRING_BYTES, GroupSettings
from gateway.coordinators.shard import Shard
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import NotEnoughReplicasAfterAppend, TierlogError, TopicExists
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.replication.partition import Partition
from hot_tier.replication.table import PartitionTable

LOADS_AT_ONCE: Final = 4

_log = structlog.get_logger()

Loaded = Callable[[Shard, dict[str, LoadedGroup]], None]
Unloaded = Callable[[Shard], None]


class Shards:
    def __init__(
        self,
        *,
        node_id: NodeId,
        image: ClusterImage,
        admin: TopicAdmin,
        partitions: PartitionTable,
        settings: GroupSettings,
        clock: Callable[[], int],
        loaded: Loaded,
        unloaded: Unloaded,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._admin = admin
        self._find_partition = partial(partitions.get, OFFSETS_TOPIC)
        self._settings = settings
        self._clock = clock
        self._loaded = loaded
        self._unloaded = unloaded
        self._shards: dict[int, Shard] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._load_slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self._making: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._image.subscribe(self._image_changed)
        self._follow()

    async def close(self) -> None:
        self._image.unsubscribe(self._image_changed)
        for number in list(self._shards):
            self._unload(number)
        tasks = [*self._loads, *([self._making] if self._making else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Return once everything that is being read back has been."""
        while self._loads:
            await asyncio.wait(set(self._loads))

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._shards.values())

    # Where a group is

    def find(self, group_id: str) -> Shard:
        """The shard, ready or not. NotCoordinator when another broker has it or nobody does yet."""
        topic = self._image.find_topic(OFFSETS_TOPIC)
        shard = None if topic is None else self._shards.get(partition_of(group_id, topic.partitions))
        if shard is None:
            raise NotCoordinator("another broker coordinates this group", where=group_id, hint="find its coordinator")
        return shard

    def find_ready(self, group_id: str) -> Shard:
        shard = self.find(group_id)
        shard.check_serves(group_id)
        return shard

    def leader(self, group_id: str) -> NodeId | None:
        """Who leads the partition of a group; None while there is no offsets topic."""
        topic = self._image.find_topic(OFFSETS_TOPIC)
        if topic is None:
            return None
        number = PartitionId(partition_of(group_id, topic.partitions))
        return self._image.partition_state(TopicPartition(OFFSETS_TOPIC, number)).leader

    async def coordinator(self, group_id: str) -> BrokerInfo:
        """Who coordinates a group; makes the offsets topic if there is none."""
        await self.require_topic()
        leading = self.leader(group_id)
        leader = None if leading is None else self._image.broker(leading)
        if leader is None:
            raise CoordinatorNotAvailable("no broker leads the offsets of this group", where=group_id, hint="try again")
        return leader

    async def require_topic(self) -> Topic:
        topic = self._image.find_topic(OFFSETS_TOPIC)
        if topic is None:
            if self._making is None:
                self._making = asyncio.get_running_loop().create_task(self._make_topic(), name="offsets topic")
                self._making.add_done_callback(self._made)
            # One client that goes away must not stop what others wait for.
            await asyncio.shield(self._making)
            topic = self._image.find_topic(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("there is no offsets topic", hint="try again")
        return topic

    async def _make_topic(self) -> None:
        settings = self._settings
        try:
            await self._admin.create_topic(
                OFFSETS_TOPIC,
                settings.offsets_topic_partitions,
                max(1, min(settings.offsets_topic_replication_factor, len(self._image.brokers()))),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(settings.offsets_topic_segment_bytes),
                    "max.message.bytes": str(MAX_WRITE_BYTES),
                },
                internal=True,
            )
        except TopicExists:
            pass
        except TierlogError as error:
            _log.warning("offsets topic not made", error=str(error))
            raise CoordinatorNotAvailable(f"the offsets topic could not be made: {error}", hint="try again") from error

    def _made(self, task: asyncio.Task[None]) -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # told to those who waited, if any are left

    # Leading and reading back

    def _image_changed(self, change: ImageChange) -> None:
        topic = self._image.find_topic(OFFSETS_TOPIC)
        touched = topic is not None and any(topic_id == topic.id for topic_id, _ in change.partitions)
        if touched or OFFSETS_TOPIC in change.topics:
            self._follow()

    def _follow(self) -> None:
        topic = self._image.find_topic(OFFSETS_TOPIC)
        states = [] if topic is None else self._image.partition_states(topic)
        led = {number: state.leader_epoch for number, state in enumerate(states) if state.leader == self._node_id}
        for number, shard in list(self._shards.items()):
            if led.get(number) != shard.leader_epoch:
                self._unload(number)
        for number in led.keys() - self._shards.keys():
            self._load(number, led[number])

    def _load(self, number: int, leader_epoch: LeaderEpoch) -> None:
        writer = OffsetsWriter(self._find_partition, number, leader_epoch, self._clock)
        shard = self._shards[number] = Shard(number, leader_epoch, writer)
        if self._is_unused(shard):
            shard.loading = False
            return
        task = asyncio.get_running_loop().create_task(self._read_back(shard), name=f"load {OFFSETS_TOPIC}-{number}")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    def _is_unused(self, shard: Shard) -> bool:
        """Nothing to read: so that the first group of a new offsets topic need not wait."""
        try:
            return self._find_partition(PartitionId(shard.number)).log.log_end_offset == 0
        except TierlogError:
            return False

    async def _read_back(self, shard: Shard) -> None:
        groups: dict[str, LoadedGroup] = {}
        try:
            partition = self._find_partition(PartitionId(shard.number))
            end_offset = partition.log.log_end_offset
            await _committed(partition, end_offset)
            async with self._load_slots:
                groups = await load(partition.log, end_offset)
        except TierlogError as error:
            shard.failure = error
        if self._shards.get(shard.number) is not shard:
            return
        if shard.failure is not None:
            _log.error(
                "group offsets not readable", partition=f"{OFFSETS_TOPIC}-{shard.number}", error=str(shard.failure)
            )
        self._loaded(shard, groups)
        shard.loading = False

    def _unload(self, number: int) -> None:
        self._unloaded(self._shards.pop(number))


async def _committed(partition: Partition, end_offset: Offset) -> None:
    """By however few replicas: what they have, the next leader has."""
    try:
        committed = partition.when_committed(end_offset)
        if committed is not None:
            await committed
    except NotEnoughReplicasAfterAppend:
        pass


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Only what the offsets topic can hold is a group id. The empty one is taken where Kafka takes it."""
    try:
        length = len(group_id.encode())
    except UnicodeEncodeError:
        length = -1
    if length < 0 or length > LONGEST_STRING_BYTES or (length == 0 and not may_be_empty):
        raise InvalidGroupId(
            "a group id is 1 to 32767 bytes of UTF-8", hint="set group.id to a name of your application"
        )
