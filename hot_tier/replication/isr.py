"""Keeps the store's in-sync sets as this broker's leaderships want them, and hands over what it can no longer lead.

Owns: when partitions are looked at, and the writes. Leaves to `leadership` who belongs into the set, and what counts
until a write is answered.

A partition whose follower has caught up is looked at at once. All are looked at when brokers come, go or fall silent,
and from time to time for followers that lag. A broker is silent if it is registered and has not asked this one for
anything for a while; followers ask all the time, with or without records. Changes at the same time are written
together. A write that is refused is decided again from what the image shows then. A write without an answer is proposed
again, until the image shows what became of it.

Logs that take no more writes are handed over, and partitions that are stranded here: the brokers that would have to
confirm a record are registered, but none has asked for anything for a while. They can go on without us; we cannot go on
without them. Producers are told at once, because the store may be out of reach too.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from typing import Final, NamedTuple

import structlog

from hot_tier.clock import steady_ms
from hot_tier.cluster import model
from hot_tier.cluster.elections import resign
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.partition_writes import PartitionWrite, swap_states
from hot_tier.cluster.store import Compare, LeaseId, MetadataStore, Revision
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId
from hot_tier.replication.leadership import Leadership, Silence
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.settings import ReplicationSettings

CHECK_S: Final = 1.0
LOOK_S: Final = 0.25
SILENT_MS: Final = 1_000
"""The least time after which a broker is silent. It is three times as long as a follower's request may wait."""
AGAIN_S: Final = 0.05

_log = structlog.get_logger()


class IsrWrite(NamedTuple):
    partition: LedPartition
    leadership: Leadership
    swap: PartitionWrite


class IsrKeeper:
    def __init__(self, store: MetadataStore, image: ClusterImage, settings: ReplicationSettings) -> None:
        self._store = store
        self._image = image
        self._settings = settings
        self._partitions: Iterable[LedPartition] = ()
        self._due: dict[LedPartition, None] = {}
        self._all_due = False
        self._heard_ms: Mapping[NodeId, int] = {}
        self._registered_ms: dict[LeaseId, int] = {}
        """When each registration was first seen: a broker that has just come has not asked yet."""
        self._listening_since_ms = 0
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.shrinks = 0
        self.expands = 0

    def start(self, partitions: Iterable[LedPartition], heard_ms: Mapping[NodeId, int]) -> None:
        """`partitions` returns those that this broker leads now; `heard_ms` has when each follower last asked."""
        self._partitions = partitions
        self._heard_ms = heard_ms
        self._listening_since_ms = steady_ms()
        self._note_registrations()
        self._image.subscribe(self._image_changed)
        self._running = asyncio.get_running_loop().create_task(self._run(), name="in-sync sets")

    async def stop(self) -> None:
        if self._running is not None:
            self._image.unsubscribe(self._image_changed)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def due(self, partition: LedPartition) -> None:
        """Notes that a follower which is not in sync has fetched."""
        self._due[partition] = None
        self._wake.set()

    def _image_changed(self, change: ImageChange) -> None:
        if change.brokers:
            self._note_registrations()
            self._all_due = True
            self._wake.set()

    def _note_registrations(self) -> None:
        now_ms, seen = steady_ms(), self._registered_ms
        self._registered_ms = {broker.lease: seen.get(broker.lease, now_ms) for broker in self._image.brokers()}

    async def _run(self) -> None:
        check_ms = min(CHECK_S * 1000, self._settings.lag_time_max_ms / 2)
        checked_ms = looked_ms = steady_ms()
        known_silent: Set[NodeId] = set()
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            now_ms = steady_ms()
            if now_ms - looked_ms > 2000 * LOOK_S:
                # This process stood still, or waited for the store. That time counts against nobody.
                self._listening_since_ms = now_ms
            looked_ms = now_ms
            silent = self._silence(now_ms).nodes
            if now_ms - checked_ms >= check_ms or not silent <= known_silent:
                checked_ms, self._all_due = now_ms, True
            known_silent = silent
            self._wake.clear()
            due, self._due = self._due, {}
            everyone, self._all_due = self._all_due, False
            try:
                settled = await self._propose(list(self._partitions) if everyone else due)
            except Exception:
                # Without it a dead follower would hold up every commit.
                _log.exception("in-sync sets not looked at")
                settled = False
            if not settled:
                self._all_due = True
                self._wake.set()
                await asyncio.sleep(AGAIN_S)

    def _silence(self, now_ms: int) -> Silence:
        since_ms = now_ms - max(3 * self._settings.fetch_wait_max_ms, SILENT_MS)
        if self._listening_since_ms > since_ms:
            return Silence(since_ms, frozenset())
        registered_ms, heard_ms = self._registered_ms, self._heard_ms
        here = [broker for broker in self._image.brokers() if registered_ms.get(broker.lease, now_ms) < since_ms]
        return Silence(since_ms, {broker.id for broker in here if heard_ms.get(broker.id, 0) < since_ms})

    async def _propose(self, partitions: Iterable[LedPartition]) -> bool:
        """Proposes in-sync sets. Returns False if something has to be looked at again soon."""
        now_ms = steady_ms()
        brokers = self._image.brokers()
        live = {broker.id: int(broker.epoch) for broker in brokers}
        draining = {broker.id for broker in brokers if broker.draining}
        silence = self._silence(now_ms)
        groups: dict[frozenset[NodeId], list[IsrWrite]] = {}
        resigned: list[PartitionWrite] = []
        for partition in partitions:
            leadership = partition.leadership
            min_in_sync = partition.log.config.min_insync_replicas
            stranded = leadership.is_stranded(silence, live, min_in_sync)
            if stranded:
                partition.strand()
            if stranded or partition.log.failure is not None:
                successor = resign(leadership.state, leadership.state.leader, live, draining)
                if successor is not None:
                    resigned.append(PartitionWrite(partition.topic.id, partition.tp.partition, successor))
                continue
            if not partition.is_open or len(leadership.state.replicas) == 1:
                continue
            wanted = leadership.isr_wanted(now_ms, self._settings.lag_time_max_ms, live, draining, silence, min_in_sync)
            if wanted is None:
                continue
            swap = PartitionWrite(partition.topic.id, partition.tp.partition, replace(leadership.state, isr=wanted))
            added = frozenset(wanted).difference(leadership.in_sync)
            self.shrinks += len(wanted) - len(added) < len(leadership.in_sync)
            self.expands += bool(added)
            leadership.proposed(wanted)
            groups.setdefault(added, []).append(IsrWrite(partition, leadership, swap))
        done = await asyncio.gather(
            self._resign(resigned), *(self._write(group, added, live) for added, group in groups.items())
        )
        return all(done)

    async def _resign(self, swaps: list[PartitionWrite]) -> bool:
        """Hands over what this broker can no longer lead. The image then says who leads."""
        if not swaps:
            return True
        try:
            written = await swap_states(self._store, swaps)
        except TierlogError as error:
            _log.warning("leaderships not handed over", partitions=len(swaps), error=str(error))
            return False
        _log.warning("leaderships handed over", partitions=len(written))
        return len(written) == len(swaps)

    async def _write(self, proposals: list[IsrWrite], added: Collection[NodeId], live: dict[NodeId, int]) -> bool:
        guards = [Compare(model.broker_key(node), Revision(live[node])) for node in added]
        try:
            written = await swap_states(self._store, [each.swap for each in proposals], guards)
        except Exception as error:
            # After any error settle the proposal: one that is never answered would be the last one.
            for each in proposals:
                each.leadership.unanswered()
            if not isinstance(error, TierlogError):
                raise
            _log.warning("in-sync sets not written", partitions=len(proposals), error=str(error))
            return False
        states = {swap.key: swap.state for swap in written}
        for partition, leadership, swap in proposals:
            state = states.get(swap.key)
            if state is None:
                leadership.refused()
                continue
            _log.info("in-sync set changed", partition=str(partition.tp), isr=state.isr)
            if partition.leadership is leadership:
                partition.in_sync_written(state)
        return len(written) == len(proposals)
