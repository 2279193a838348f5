"""Producer ids, each handed out once in the life of the cluster.

A broker takes a block of ids at a time from the store, by compare-and-swap. When it stops, the unused ids of its block
are lost and never used.
"""

import asyncio
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.model import PRODUCER_IDS_KEY
from hot_tier.cluster.store import ABSENT, Compare, MetadataStore, Put

BLOCK: Final = 1000
FIRST_EPOCH: Final = 0


class ProducerIds:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = 0
        self._end = 0
        self._refilling = asyncio.Lock()

    async def next_id(self) -> int:
        while self._next == self._end:
            async with self._refilling:
                if self._next == self._end:
                    self._next, self._end = await self._take_block()
        self._next += 1
        return self._next - 1

    async def new_producer(self) -> tuple[int, int]:
        """Returns (producer id, epoch) for a producer without a transactional id. The id is always new."""
        return await self.next_id(), FIRST_EPOCH

    async def skip_past(self, producer_id: int) -> None:
        """Hands out only ids above this one from now on: a restored log knows those up to it."""
        while True:
            item = await self._store.get(PRODUCER_IDS_KEY)
            following = 0 if item is None else int(model.decode_map(PRODUCER_IDS_KEY, item.value)["next"])
            if following > producer_id:
                break
            await self._store.transact(
                [Compare(PRODUCER_IDS_KEY, ABSENT if item is None else item.revision)],
                [Put(PRODUCER_IDS_KEY, model.encode({"next": producer_id + 1}))],
            )
        if self._next <= producer_id:
            self._next = self._end

    async def _take_block(self) -> tuple[int, int]:
        while True:
            item = await self._store.get(PRODUCER_IDS_KEY)
            first = 0 if item is None else int(model.decode_map(PRODUCER_IDS_KEY, item.value)["next"])
            taken = await self._store.transact(
                [Compare(PRODUCER_IDS_KEY, ABSENT if item is None else item.revision)],
                [Put(PRODUCER_IDS_KEY, model.encode({"next": first + BLOCK}))],
            )
            if taken is not None:
                return first, first + BLOCK
