"""This broker as a member of its cluster: how it comes, stays and goes.

    prepare      before its logs are opened: the registration of its last process is gone, and it gives up what it can
                 no longer vouch for (`hot_tier.cluster.restart_isr`)
    register     once it can serve: `brokers/<node>` under a lease; from now on others count it as alive
    keep alive   the lease is renewed; if it is lost all the same (a long pause, etcd restored) it registers anew
    leave        its leaderships go to others, then its registration goes

- One registration is one incarnation: its revision, `registration_epoch`, is what leaders know this follower by.
- A broker that prepares holds the lock of its data directory, so the process that registered from this directory is
  dead. But something that listens at the registered address may run on a copy of the directory, and a registration
  from another directory may be alive: if its lease does not run out, this broker does not start.
- The data directory that the store remembers changes in the transaction that registers, not before: a start that is
  cut off half-way finds again that the directory is new.
- A renewed lease counts from the time when the renewal was sent, not answered: `lease_age_ms` is never too small.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog

from hot_tier.cluster import model, restart_isr
from hot_tier.cluster.directory import new_identity
from hot_tier.cluster.elections import resign
from hot_tier.cluster.endpoints import KAFKA_PROTOCOLS
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import NO_LEASE, BrokerInfo, Identity, NodeRecord
from hot_tier.cluster.partition_writes import PartitionWrite, newest, swap_states
from hot_tier.cluster.probe import Answer, is_refused, knock
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.standalone import name_cluster
from hot_tier.cluster.store import ABSENT, Compare, LeaseId, MetadataStore, Put, Revision
from hot_tier.errors import MetadataUnavailable, NodeIdTaken, TierlogError
from hot_tier.ids import NodeId, PartitionId
from hot_tier.log.config import TopicConfig

RENEWALS: Final = 8
"""How many renewals are sent in the time of a lease. A broker whose requests arrive but that gets no answers renews
its lease once more, and is replaced a whole lease later: the sooner it sends that renewal, the sooner."""
RETRY_S: Final = 0.1
REVOKE_TIMEOUT_S: Final = 1.0
PROBE_AGAIN_S: Final = 0.03
PROBES: Final = 6

_log = structlog.get_logger()


class Membership:
    """`clock` is steady, in milliseconds, and goes on while the machine sleeps."""

    def __init__(
        self,
        store: MetadataStore,
        info: BrokerInfo,
        settings: ClusterSettings,
        *,
        identity: Identity,
        boot_id: str,
        defaults: TopicConfig,
        clock: Callable[[], int],
    ) -> None:
        self.info = info
        self.identity = identity
        """Of the data directory. `prepare` sets the one to register with; it must be on disk before that."""
        self.registration_epoch = ABSENT
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when this broker must stop, because another broker has its number."""
        self._store = store
        self._settings = settings
        self._boot_id = boot_id
        self._defaults = defaults
        self._clock = clock
        self._expected: Identity | None = None
        """What the store must say of this broker. Anything else means that another broker has its number."""
        self._lease = NO_LEASE
        self._granted: set[LeaseId] = set()
        """The leases of this process. A registration with one of them is its own, even if the answer was lost."""
        self._renewed_ms = 0
        self._image: ClusterImage | None = None
        self._registration_gone = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._probes: dict[NodeId, asyncio.Task[None]] = {}

    @property
    def lease(self) -> LeaseId:
        """Returns the lease of the registration. Other keys that shall live as long belong to it too."""
        return self._lease

    @property
    def lease_age_ms(self) -> int:
        return self._clock() - self._renewed_ms

    # Coming

    async def prepare(self, *, stopped_cleanly: bool) -> None:
        """Prepares to register. Raises NodeIdTaken, DataLost or MetadataUnavailable; the next start then finds
        everything as it was."""
        await name_cluster(self._store)
        await self._end_previous()
        found = await self._record()
        record = None if found is None else found[0]
        trusted = record is not None and self.identity.is_same_or_later(record.identity)
        same_boot = record is not None and record.boot_id == self._boot_id != ""
        await restart_isr.give_up(
            self._store,
            self.info.id,
            same_directory=trusted,
            tail_kept=stopped_cleanly or same_boot,
            accept_lost_data=self._settings.accept_lost_data,
            defaults=self._defaults,
        )
        self._expected = None if record is None else record.identity
        self.identity = self.identity.next_run() if trusted or record is None else new_identity()
        self.info = replace(self.info, data_id=self.identity.data_id)

    async def _end_previous(self) -> None:
        """Ends the lease of the last registration under this number. It is gone when this returns."""
        key = model.broker_key(self.info.id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 2 * self._settings.lease_ttl_ms / 1000
        while (item := await self._store.get(key)) is not None:
            previous = model.decode_broker(key, item.value, item.revision)
            where = previous.for_peers(KAFKA_PROTOCOLS)
            found = await knock(where.host, where.port)
            same_directory = previous.data_id == self.identity.data_id
            if found is Answer.REFUSED or (same_directory and found is Answer.SILENCE):
                await self._store.revoke_lease(previous.lease)
            elif loop.time() > deadline:
                raise self._taken(previous)
            else:
                await asyncio.sleep(RETRY_S)

    def _taken(self, other: BrokerInfo) -> NodeIdTaken:
        return NodeIdTaken(
            f"broker {other.id} runs already, at {other.for_peers(KAFKA_PROTOCOLS)}",
            hint="give every broker of a cluster its own --node-id and its own data directory",
        )

    async def _record(self) -> tuple[NodeRecord, Revision] | None:
        key = model.node_key(self.info.id)
        item = await self._store.get(key)
        return None if item is None else (model.decode_node(key, item.value), item.revision)

    async def register(self, image: ClusterImage) -> None:
        """Others count on this broker from now on. Returns when the image shows it."""
        await self._register()
        self._image = image
        image.subscribe(self._image_changed)
        self._keeping = asyncio.get_running_loop().create_task(self._keep_alive(), name="broker lease")
        await image.reached(self.registration_epoch)

    async def _register(self) -> None:
        sent_ms = self._clock()
        lease = await self._store.grant_lease(self._settings.lease_ttl_ms)
        self._granted.add(lease)
        key, node_key = model.broker_key(self.info.id), model.node_key(self.info.id)
        while True:
            found = await self._record()
            record, revision = found or (NodeRecord(self.identity.data_id), ABSENT)
            if found is not None and record.identity not in (self._expected, self.identity):
                raise NodeIdTaken(
                    f"another broker has taken the number {self.info.id} meanwhile",
                    hint="give every broker of a cluster its own --node-id",
                )
            mine = replace(record, data_id=self.info.data_id, runs=self.identity.runs, boot_id=self._boot_id)
            self.info = replace(self.info, lease=lease, draining=record.draining)
            try:
                epoch = await self._store.transact(
                    [Compare(key, ABSENT), Compare(node_key, revision)],
                    [Put(key, model.encode(self.info), lease), Put(node_key, model.encode(mine))],
                )
            except MetadataUnavailable:
                # The write may have happened all the same. The next round sees it then.
                await asyncio.sleep(RETRY_S)
                epoch = None
            if epoch is None:
                item = await self._store.get(key)
                if item is None:
                    continue
                other = model.decode_broker(key, item.value, item.revision)
                if other.lease != lease:
                    if other.lease not in self._granted:
                        raise self._taken(other)
                    await self._store.revoke_lease(other.lease)
                    continue
                epoch = item.revision
            break
        self._expected = self.identity
        self._lease, self._renewed_ms = lease, sent_ms
        self.registration_epoch = epoch

    # Staying

    async def _keep_alive(self) -> None:
        interval_s = self._settings.lease_ttl_ms / 1000 / RENEWALS
        pause_s = interval_s
        while True:
            try:
                async with asyncio.timeout(pause_s):
                    await self._registration_gone.wait()
            except TimeoutError:
                pass
            gone = self._registration_gone.is_set()
            self._registration_gone.clear()
            try:
                sent_ms = self._clock()
                if not gone and await self._store.keep_alive(self._lease):
                    self._renewed_ms = sent_ms
                else:
                    await self._register()
                    # The watch may have shown the new registration before its answer came; then it looked like another
                    # broker's.
                    self._registration_gone.clear()
                    self._look_for_registration()
                    _log.warning("lease lost, registered anew", node=self.info.id, epoch=self.registration_epoch)
                pause_s = interval_s
            except NodeIdTaken as error:
                self.failure.set_exception(error)
                return
            except TierlogError as error:
                _log.warning("lease not renewed", node=self.info.id, age_ms=self.lease_age_ms, error=str(error))
                pause_s = min(RETRY_S, interval_s)
                if gone:
                    self._registration_gone.set()
                    await asyncio.sleep(pause_s)

    def _image_changed(self, change: ImageChange) -> None:
        if change.brokers:
            self._look_for_registration()

    def _look_for_registration(self) -> None:
        if self._image is None:
            return
        shown = self._image.broker(self.info.id)
        if shown is None or shown.lease != self._lease:
            if self._image.revision >= self.registration_epoch:
                self._registration_gone.set()
        elif shown.epoch > self.registration_epoch:
            # A broker of version 0.1 that marks this one as draining drops what it does not know.
            mine = self.info
            self.info = replace(shown, endpoints=mine.endpoints, version=mine.version, host_name=mine.host_name)
            self.registration_epoch = shown.epoch

    # Others that may be gone

    def suspect(self, node: NodeId) -> None:
        """A connection to this broker broke. If nothing listens at its address its process is gone, and this ends its
        lease."""
        image = self._image
        broker = None if image is None else image.broker(node)
        if image is None or broker is None or node == self.info.id or node in self._probes:
            return
        image.doubt(node)
        task = asyncio.get_running_loop().create_task(self._probe(broker), name=f"probe of broker {node}")
        self._probes[node] = task

        def done(_: asyncio.Task[None]) -> None:
            del self._probes[node]
            image.trust(node)

        task.add_done_callback(done)

    async def _probe(self, broker: BrokerInfo) -> None:
        """Probes several times: a dying process closes its connections first and its listening sockets some time
        later."""
        refused = 0
        try:
            where = broker.for_peers(KAFKA_PROTOCOLS)
            for _ in range(PROBES):
                refused = refused + 1 if await is_refused(where.host, where.port) else 0
                if refused == 2:
                    break
                await asyncio.sleep(PROBE_AGAIN_S)
            else:
                return
            item = await self._store.get(model.broker_key(broker.id))
            if item is not None and item.revision == broker.epoch:
                _log.warning("broker is gone, its lease is ended", node=broker.id, address=str(where))
                await self._store.revoke_lease(broker.lease)
        except TierlogError as error:
            _log.warning("broker not probed", node=broker.id, error=str(error))

    # Going

    async def leave(self) -> None:
        """Hands leaderships over, then ends the registration. An election decides what could not be handed over in
        time."""
        if self._image is None:
            return
        try:
            async with asyncio.timeout(self._settings.stop_timeout_ms / 1000):
                if not self.failure.done():
                    await self._mark_draining()
                    await self._hand_over(self._image)
        except (TimeoutError, TierlogError) as error:
            _log.warning("leaderships not handed over", node=self.info.id, error=str(error))
        await self.close()

    async def close(self) -> None:
        """Ends the registration at once."""
        tasks = [*self._probes.values(), *([self._keeping] if self._keeping else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._image is not None:
            self._image.unsubscribe(self._image_changed)
            self._image = None
        if self._lease == NO_LEASE:
            return
        try:
            async with asyncio.timeout(REVOKE_TIMEOUT_S):
                await self._store.revoke_lease(self._lease)
        except (TimeoutError, TierlogError) as error:
            _log.warning("lease not revoked, it will expire", node=self.info.id, error=str(error))

    async def _mark_draining(self) -> None:
        key = model.broker_key(self.info.id)
        while (item := await self._store.get(key)) is not None:
            shown = model.decode_broker(key, item.value, item.revision)
            if shown.draining or shown.lease != self._lease:
                return
            marked = Put(key, model.encode(replace(shown, draining=True)), shown.lease)
            if await self._store.transact([Compare(key, item.revision)], [marked]) is not None:
                return

    async def _hand_over(self, image: ClusterImage) -> None:
        node = self.info.id
        while True:
            live = {broker.id for broker in image.brokers()}
            draining = {broker.id for broker in image.brokers() if broker.draining}
            swaps = [
                PartitionWrite(topic.id, PartitionId(index), successor)
                for topic in image.topics()
                for index, state in enumerate(image.partition_states(topic))
                if state.leader == node and (successor := resign(state, node, live, draining)) is not None
            ]
            if not swaps:
                return
            seen = image.revision
            written = await swap_states(self._store, swaps)
            await image.reached(max(newest(written), Revision(seen + 1)))
