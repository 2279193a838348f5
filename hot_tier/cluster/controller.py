"""The one broker that decides for all: who leads when a leader is lost, and when a reassignment is done.

Every broker runs a `Controller`. It campaigns for the key `controller` under its broker's lease. The holder of the key
governs until its lease ends or it stops. `elections` makes the decisions, from the image. Each decision is written by
compare-and-swap on the partition's version and on the key itself, so a controller that was replaced and does not know
it writes nothing. A wrong decision from an image that lags is refused by the store, or made again when the image is
newer.

The controller also gives partitions back to their preferred leaders from time to time. And it gives the service's own
topics all their replicas as soon as there are enough brokers: the first client makes these topics, perhaps when only
one broker is up.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import structlog

from hot_tier.cluster import model
from hot_tier.cluster.elections import advance_reassignment, elect, prefer
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.membership import Membership
from hot_tier.cluster.model import CONTROLLER_KEY, NO_NODE, PartitionState, Topic
from hot_tier.cluster.moves import PartitionMoves
from hot_tier.cluster.partition_writes import PartitionWrite, swap_states
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.standalone import REMEMBER_DELETED_MS
from hot_tier.cluster.store import ABSENT, Compare, Delete, MetadataStore, Put, Revision
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId, PartitionId, TopicId, TopicPartition
from hot_tier.log.config import TopicConfig, parse_topic_config

RETRY_S: Final = 0.1
STOP_TIMEOUT_S: Final = 1.0
UPKEEP_S: Final = 60.0

_log = structlog.get_logger()

Decide = Callable[[Topic, PartitionState], PartitionState | None]


class Controller:
    """`clock` is the time of day in milliseconds."""

    def __init__(
        self,
        store: MetadataStore,
        image: ClusterImage,
        membership: Membership,
        settings: ClusterSettings,
        *,
        defaults: TopicConfig,
        internal_replication_factors: Mapping[str, int],
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._image = image
        self._moves = PartitionMoves(store, image)
        self._internal_replication_factors = internal_replication_factors
        self._membership = membership
        self._settings = settings
        self._defaults = defaults
        self._clock = clock
        self._node = membership.info.id
        self._held = ABSENT
        self._touched: set[tuple[TopicId, PartitionId]] = set()
        self._all_touched = True
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._image.subscribe(self._image_changed)
        self._running = asyncio.get_running_loop().create_task(self._run(), name="controller")

    async def stop(self) -> None:
        """Stops. If this broker governs, another can govern at once."""
        if self._running is None:
            return
        self._image.unsubscribe(self._image_changed)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._running = None
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._store.transact([Compare(CONTROLLER_KEY, self._held)], [Delete(CONTROLLER_KEY)])
        except (TimeoutError, TierlogError) as error:
            _log.warning("controller not handed over, it goes with the lease", error=str(error))

    def _image_changed(self, change: ImageChange) -> None:
        self._all_touched |= change.brokers
        self._touched |= change.partitions
        for _, after in change.topics.values():
            if after is not None:  # its settings may allow an election that was not allowed before
                self._touched |= {(after.id, PartitionId(index)) for index in range(after.partitions)}
        self._wake.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._campaign()
                _log.info("governing", node=self._node)
                await self._govern()
                _log.info("no longer governing", node=self._node)
            except TierlogError as error:
                _log.warning("controller interrupted", error=str(error))
            except Exception:
                _log.exception("controller failed, it starts again")
            await asyncio.sleep(RETRY_S)

    async def _campaign(self) -> None:
        """Returns once this broker holds the key."""
        while True:
            await self._image.wait_for(lambda: self._image.controller in (NO_NODE, self._node))
            registered = Compare(model.broker_key(self._node), self._membership.registration_epoch)
            claim = Put(CONTROLLER_KEY, model.encode({"node": self._node}), self._membership.lease)
            seen = self._image.revision
            won = await self._store.transact([Compare(CONTROLLER_KEY, ABSENT), registered], [claim])
            if won is None:
                # A claim whose answer was lost may have been granted.
                item = await self._store.get(CONTROLLER_KEY)
                if item is not None and model.decode_map(item.key, item.value).get("node") == self._node:
                    won = item.revision
            if won is not None:
                self._held = won
                await self._image.reached(won)
                return
            await self._image.reached(Revision(seen + 1))

    async def _govern(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._settings.leader_rebalance_interval_ms / 1000 or UPKEEP_S
        upkeep_at = loop.time() + interval_s
        self._all_touched = True
        while self._image.controller == self._node:
            try:
                await self._settle()
                if loop.time() >= upkeep_at:
                    upkeep_at = loop.time() + interval_s
                    await self._upkeep()
            except TierlogError:
                self._all_touched = True
                raise
            try:
                async with asyncio.timeout_at(upkeep_at):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _upkeep(self) -> None:
        if self._settings.leader_rebalance_interval_ms:
            live, draining = self._brokers()
            able = live - draining
            await self._write(self._decided(lambda _, state: prefer(state, able), None))
        # A broker that was away for longer than this keeps what it has of the topic, and says so when it starts.
        oldest = self._clock() - REMEMBER_DELETED_MS
        for deleted in list(self._image.deleted_topics()):
            if deleted.deleted_ms < oldest:
                await self._store.transact([self._guard()], [Delete(model.deleted_key(deleted.id))])

    async def _settle(self) -> None:
        """Decides for every partition that a change concerns."""
        self._wake.clear()
        touched, self._touched = self._touched, set()
        everything, self._all_touched = self._all_touched, False
        live, draining = self._brokers()

        def decide(topic: Topic, state: PartitionState) -> PartitionState | None:
            if state.leader in live:
                return advance_reassignment(state, live)
            return elect(state, live, draining, unclean=self._may_be_unclean(topic))

        swaps = self._decided(decide, None if everything else touched)
        if swaps:
            written = await self._write(swaps)
            _log.info("partitions decided", changed=len(written), refused=len(swaps) - len(written))
        if everything:
            for topic in [topic for topic in self._image.topics() if topic.internal]:
                wanted = self._internal_replication_factors.get(topic.name, topic.replication_factor)
                if plan := await self._moves.widen(topic.name, wanted):
                    _log.info("replicas added", topic=topic.name, partitions=len(plan))

    def _brokers(self) -> tuple[set[NodeId], set[NodeId]]:
        brokers = self._image.brokers()
        return {broker.id for broker in brokers}, {broker.id for broker in brokers if broker.draining}

    def _may_be_unclean(self, topic: Topic) -> bool:
        try:
            return parse_topic_config(topic.config, self._defaults).unclean_leader_election_enable
        except TierlogError:  # written by a broker that knows other settings
            return False

    def _decided(self, decide: Decide, among: Collection[tuple[TopicId, PartitionId]] | None) -> list[PartitionWrite]:
        return [
            PartitionWrite(topic.id, index, changed)
            for topic, index, state in self._partitions(among)
            if (changed := decide(topic, state)) is not None
        ]

    def _partitions(
        self, among: Collection[tuple[TopicId, PartitionId]] | None
    ) -> Iterator[tuple[Topic, PartitionId, PartitionState]]:
        """Returns the given partitions that still exist. None stands for all partitions."""
        if among is None:
            for topic in self._image.topics():
                for index, state in enumerate(self._image.partition_states(topic)):
                    yield topic, PartitionId(index), state
            return
        for topic_id, index in among:
            found = self._image.find_topic_by_id(topic_id)
            if found is not None and index < found.partitions:
                yield found, index, self._image.partition_state(TopicPartition(found.name, index))

    async def _write(self, swaps: list[PartitionWrite]) -> list[PartitionWrite]:
        return await swap_states(self._store, swaps, [self._guard()])

    def _guard(self) -> Compare:
        return Compare(CONTROLLER_KEY, self._held)
