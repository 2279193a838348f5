"""The simulated store as production code sees it: `hot_tier.cluster.store.MetadataStore` over the simulated network."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from hot_tier.cluster import model
from hot_tier.cluster.store import Compare, Delete, Event, KeyValue, Put, Range, Revision
from hot_tier.errors import MetadataAnswerLost, MetadataUnavailable
from tests.sim.store import STORE, Transaction

if TYPE_CHECKING:
    from tests.sim.broker import Broker


class Metadata:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def get(self, key: str) -> KeyValue | None:
        found = await self.range(key)
        return next((item for item in found.items if item.key == key), None)

    async def range(self, prefix: str) -> Range:
        listing = await self._ask("listing", prefix)
        if listing is None:
            raise MetadataUnavailable("no answer")
        assert isinstance(listing, Range)
        return listing

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        changes = [(write.key, _decoded(write)) for write in writes]
        request = Transaction([(each.key, each.revision) for each in compares], *changes[0], also=changes[1:])
        written = await self._ask("transact", request)
        if written is None:
            raise MetadataAnswerLost("no answer")
        return Revision(written) if isinstance(written, int) else None

    async def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        changes: asyncio.Queue[Sequence[Event]] = asyncio.Queue()

        def deliver(batches: list[list[Event]]) -> None:
            for batch in batches:
                changes.put_nowait(batch)

        self._broker.store.watch(self._broker, from_revision, deliver)
        while True:
            yield await changes.get()

    async def _ask(self, method: str, request: Any) -> Any:
        return await self._broker.loop.wait_for(self._broker.call(STORE, method, request))


def _decoded(write: Put | Delete) -> Any:
    if isinstance(write, Delete):
        return None
    kind = write.key.partition("/")[0]
    if kind == "partitions":
        return model.decode_partition(write.key, write.value, Revision(0))
    if kind == "archived":
        return model.decode_archived(write.key, write.value)
    return model.decode_map(write.key, write.value)
