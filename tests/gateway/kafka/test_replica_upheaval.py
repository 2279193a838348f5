"""Leaders change, links break and brokers come and go while records are written: none that was acknowledged is lost.

Faults are drawn from a seed; when they strike is up to the machine. The test elects as a controller does: only brokers
in sync and alive.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.elections import elect, resign
from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.store import Compare, Put
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId, Offset
from hot_tier.record.batch import iter_headers
from hot_tier.record.records import decode_records
from tests.gateway.kafka.members import REPLICATION, Members, members
from tests.support.waiting import until

NODES = (1, 2, 3)
PARTITIONS = 2
FAULTS = 12
ENOUGH = 20
"""Acknowledged records. A busy machine needs longer for them than the faults take."""


class Upheaval:
    def __init__(self, cluster: Members, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.acked: dict[tuple[int, int], bytes] = {}
        self.done = False
        self.down: int | None = None

    # Records

    async def produce(self, index: int) -> None:
        number = 0
        while not self.done:
            number += 1
            value = b"%d:%d:" % (index, number) + b"x" * self.random.randrange(3000)
            try:
                leader = self.cluster[self.cluster.state(index).leader]
                end = leader.append(value, index=index)
                committed = leader.partition(index).when_committed(Offset(end))
                if committed is not None:
                    async with asyncio.timeout(5):
                        await committed
                assert self.acked.setdefault((index, end - 1), value) == value, "one offset, two values"
            except (TierlogError, KeyError, TimeoutError):
                await asyncio.sleep(0.01)

    # Faults

    async def swap(self, index: int, decide) -> None:
        """By compare-and-swap, until it holds or there is nothing to do."""
        while True:
            state = self.cluster.state(index)
            changed: PartitionState | None = decide(state)
            if changed is None:
                return
            image = next(iter(self.cluster.by_node.values())).image
            key = model.partition_key(image.topic("t").id, index)
            revision = await self.cluster.store.transact(
                [Compare(key, state.version)], [Put(key, model.encode(changed))]
            )
            if revision is not None:
                await self.cluster._shown(revision)
                return
            await image.reached(state.version + 1)

    @property
    def live(self) -> list[NodeId]:
        return [NodeId(node) for node in self.cluster.by_node]

    async def move_leader(self) -> None:
        index = self.random.randrange(PARTITIONS)
        await self.swap(index, lambda state: resign(state, state.leader, self.live))

    async def break_links(self) -> None:
        member = self.cluster[self.random.choice(self.live)]
        for fetcher in member.fetchers._fetchers.values():
            if fetcher._link is not None:
                fetcher._link.client._transport.abort()

    async def stop_one(self) -> None:
        if self.down is not None:
            await self.start_it()
        self.down = self.random.choice(self.live)
        await self.cluster.stop(self.down)
        await self.elect()

    async def start_it(self) -> None:
        if self.down is not None:
            node, self.down = self.down, None
            await self.cluster.start(node)
            await self.elect()

    async def elect(self) -> None:
        """Brokers came or went. Who alone was in sync leads again only when it is back."""
        for index in range(PARTITIONS):
            await self.swap(index, lambda state: elect(state, self.live))

    async def run(self) -> None:
        producers = [asyncio.create_task(self.produce(index)) for index in range(PARTITIONS)]
        faults = (self.move_leader, self.move_leader, self.break_links, self.stop_one, self.start_it)
        for _ in range(FAULTS):
            await asyncio.sleep(self.random.random() * 0.3)
            await self.random.choice(faults)()
        await self.start_it()
        await until(lambda: len(self.acked) > ENOUGH, 60)
        self.done = True
        await asyncio.gather(*producers)


LAGS_MS = (REPLICATION.lag_time_max_ms, 100)
"""With the second, replicas leave the in-sync set and come back all the time, as on a machine that is too busy."""


@pytest.mark.parametrize("lag_ms", LAGS_MS, ids=["steady", "falling-behind"])
@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_acknowledged_is_lost(tmp_path, seed, flush, lag_ms):
    settings = replace(REPLICATION, lag_time_max_ms=lag_ms)
    async with members(tmp_path, *NODES, flush=flush, settings=settings) as cluster:
        await cluster.create(*NODES, partitions=PARTITIONS, **{"min.insync.replicas": "2"})
        upheaval = Upheaval(cluster, seed)
        await upheaval.run()
        for index in range(PARTITIONS):
            await equal_and_whole(cluster, index, upheaval.acked)


async def equal_and_whole(cluster: Members, index: int, acked: dict[tuple[int, int], bytes]) -> None:
    # Followers may take turns at falling behind, so that all are never in sync at one moment.
    in_sync: set[int] = set()
    await until(lambda: in_sync.update(cluster.state(index).isr) or in_sync == set(NODES), 20)
    leader = cluster[cluster.state(index).leader]
    end = leader.log(index).log_end_offset
    await until(lambda: leader.partition(index).high_watermark == end, 20)
    await until(lambda: all(cluster[node].log(index).log_end_offset == end for node in NODES), 20)
    data = await leader.bytes(index)
    for node in NODES:
        assert await cluster[node].bytes(index) == data
    found = {
        record.offset: record.value
        for position, header in iter_headers(data)
        for record in decode_records(memoryview(data)[position : position + header.size])
    }
    assert sorted(found) == list(range(end))
    for (partition, offset), value in acked.items():
        assert partition != index or found[offset] == value
