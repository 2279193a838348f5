"""Runs one machine for each partition of a journal that this broker leads.

It owns the shards and loads them. The user of a journal provides the machine:

`make_machine`  returns an empty machine, which writes its records with the given writer
`decode`        turns the newest value of each key into the state that the machine restores; runs in a thread. It also
                gets what open transactions wrote
`restore`       gives a machine the state that was read back, before its first request
`end`           stops a machine when the leadership is over, and answers everyone who waits for it

Invariants:
- A shard lives for one leader epoch. It is `loading` from the moment that this broker leads its partition, so that no
  request is served before the state is read back. It is removed when the leadership ends.
- Nothing is written in an epoch that is over: the next leader continues from what it has read, and no older write may
  come after that. Later writes of the machine are refused.
- A machine is restored from everything that was in the log when this broker began to lead, once that is committed. So
  state that was shown once is still there after the next election.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from gateway.coordinators.errors import CoordinatorNotAvailable, NotCoordinator
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.journal.replay import Latest, read_latest
from gateway.coordinators.journal.shard import Shard
from gateway.coordinators.journal.topic import JournalTopic, TopicMaker
from gateway.coordinators.journal.writer import JournalWriter
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import NotEnoughReplicasAfterAppend, TierlogError
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.table import PartitionTable

LOADS_AT_ONCE: Final = 4

_log = structlog.get_logger()

M = TypeVar("M")
"""A machine."""
L = TypeVar("L")
"""The state that a machine restores."""


class Journal(Generic[M, L]):
    def __init__(
        self,
        topic: JournalTopic,
        *,
        make_machine: Callable[[JournalWriter], M],
        decode: Callable[[Latest], L],
        restore: Callable[[M, L], None],
        end: Callable[[M], None],
        node_id: NodeId,
        image: ClusterImage,
        admin: TopicAdmin,
        partitions: PartitionTable,
        clock: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._maker = TopicMaker(topic, image, admin)
        self._make_machine = make_machine
        self._decode = decode
        self._restore = restore
        self._end = end
        self._node_id = node_id
        self._image = image
        self._find_partition = partial(partitions.get, topic.name)
        self._clock = clock
        self._shards: dict[int, Shard[M]] = {}
        self._loads: set[asyncio.Task[None]] = set()
        self._load_slots = asyncio.Semaphore(LOADS_AT_ONCE)

    def open(self) -> None:
        self._image.subscribe(self._image_changed)
        self._follow()

    async def close(self) -> None:
        self._image.unsubscribe(self._image_changed)
        for number in list(self._shards):
            self._unload(number)
        loads = list(self._loads)
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        await self._maker.close()

    async def settled(self) -> None:
        """Returns when everything that is being read back has been read."""
        while self._loads:
            await asyncio.wait(set(self._loads))

    def __iter__(self) -> Iterator[Shard[M]]:
        return iter(self._shards.values())

    # Finding a key

    def find(self, key: str) -> Shard[M]:
        """Returns the shard of a key, loaded or not. Raises NotCoordinator if another broker leads its partition."""
        topic = self._maker.find()
        shard = None if topic is None else self._shards.get(partition_of(key, topic.partitions))
        if shard is None:
            what = f"another broker coordinates this {self._topic.keeps}"
            raise NotCoordinator(what, where=key, hint="ask for its coordinator again")
        return shard

    def find_ready(self, key: str) -> M:
        """Returns the machine of a key, with all its state. Raises an error while the state is not read back."""
        shard = self.find(key)
        shard.check_serves(key)
        return shard.machine

    def leader(self, key: str) -> NodeId | None:
        """Returns the broker that leads the partition of a key; None while there is no topic."""
        topic = self._maker.find()
        if topic is None:
            return None
        number = PartitionId(partition_of(key, topic.partitions))
        return self._image.partition_state(TopicPartition(self._topic.name, number)).leader

    async def coordinator(self, key: str) -> BrokerInfo:
        """Returns the broker that coordinates a key. Makes the topic if there is none."""
        await self.require_topic()
        leading = self.leader(key)
        leader = None if leading is None else self._image.broker(leading)
        if leader is None:
            what = f"no broker leads the partition of this {self._topic.keeps}"
            raise CoordinatorNotAvailable(what, where=key, hint="try again")
        return leader

    async def require_topic(self) -> Topic:
        return await self._maker.require()

    def when_read_back(self, number: int, call: Callable[[M], None]) -> None:
        """Calls with the machine of a partition once it has its state; never if another broker leads by then."""
        shard = self._shards.get(number)
        if shard is None:
            return
        if shard.loading:
            shard.when_read_back.append(call)
        elif shard.failure is None:
            call(shard.machine)

    # Leading and reading back

    def _image_changed(self, change: ImageChange) -> None:
        topic = self._maker.find()
        touched = topic is not None and any(topic_id == topic.id for topic_id, _ in change.partitions)
        if touched or self._topic.name in change.topics:
            self._follow()

    def _follow(self) -> None:
        topic = self._maker.find()
        states = [] if topic is None else self._image.partition_states(topic)
        led = {number: state.leader_epoch for number, state in enumerate(states) if state.leader == self._node_id}
        for number, shard in list(self._shards.items()):
            if led.get(number) != shard.leader_epoch:
                self._unload(number)
        for number in led.keys() - self._shards.keys():
            self._load(number, led[number])

    def _load(self, number: int, leader_epoch: LeaderEpoch) -> None:
        writer = JournalWriter(self._find_partition, number, leader_epoch, self._topic.keeps, self._clock)
        machine = self._make_machine(writer)
        shard = self._shards[number] = Shard(number, leader_epoch, self._topic.keeps, writer, machine)
        if self._is_unused(shard):
            shard.loading = False
            return
        name = f"load {self._topic.name}-{number}"
        task = asyncio.get_running_loop().create_task(self._read_back(shard), name=name)
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    def _is_unused(self, shard: Shard[M]) -> bool:
        """Returns whether the log is empty. Then the first user of a new topic need not wait."""
        try:
            return self._find_partition(PartitionId(shard.number)).log_end_offset == 0
        except TierlogError:
            return False

    async def _read_back(self, shard: Shard[M]) -> None:
        try:
            partition = self._find_partition(PartitionId(shard.number))
            end_offset = partition.log_end_offset
            await _committed(partition, end_offset)
            async with self._load_slots:
                latest = await read_latest(partition, end_offset)
                loaded = await asyncio.to_thread(self._decode, latest)
        except TierlogError as error:
            if self._shards.get(shard.number) is shard:
                place = f"{self._topic.name}-{shard.number}"
                _log.error("partition of a coordinator not readable", partition=place, error=str(error))
                shard.failure = error
                shard.loading = False
            return
        if self._shards.get(shard.number) is shard:
            self._restore(shard.machine, loaded)
            shard.loading = False
            for call in shard.when_read_back:
                call(shard.machine)
            shard.when_read_back.clear()

    def _unload(self, number: int) -> None:
        self._end(self._shards.pop(number).machine)


async def _committed(partition: LedPartition, end_offset: Offset) -> None:
    """Waits until all below `end_offset` is committed, even by too few replicas: the next leader is one of them."""
    try:
        committed = partition.when_committed(end_offset)
        if committed is not None:
            await committed
    except NotEnoughReplicasAfterAppend:
        pass
