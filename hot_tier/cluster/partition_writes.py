"""Many partition states changed at once, each by compare-and-swap on the version it was derived from.

A transaction takes up to `MAX_OPERATIONS` changes and is refused as a whole when one partition has changed meanwhile.
Then it is halved, again and again, until only the changed partitions are left out. The loss of a broker with a thousand
partitions costs eight round trips; one conflict costs seven more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.store import ABSENT, MAX_OPERATIONS, Compare, MetadataStore, Put, Revision
from hot_tier.ids import PartitionId, TopicId

IN_FLIGHT: Final = 4


@dataclass(frozen=True, slots=True)
class PartitionWrite:
    topic_id: TopicId
    partition: PartitionId
    state: PartitionState
    """The new state. Its `version` is that of the state that it replaces."""

    @property
    def key(self) -> str:
        return model.partition_key(self.topic_id, self.partition)


async def swap_states(
    store: MetadataStore, swaps: Sequence[PartitionWrite], guards: Sequence[Compare] = ()
) -> list[PartitionWrite]:
    """Returns the states that were written, with their new versions. Once a guard fails nothing more is written."""
    width = MAX_OPERATIONS - len(guards)
    batches = [swaps[at : at + width] for at in range(0, len(swaps), width)]
    written: list[PartitionWrite] = []
    for at in range(0, len(batches), IN_FLIGHT):
        for done in await asyncio.gather(*(_swap(store, each, guards) for each in batches[at : at + IN_FLIGHT])):
            written += done
    return written


def newest(written: Sequence[PartitionWrite]) -> Revision:
    """Returns the revision at which all changes hold."""
    return max((swap.state.version for swap in written), default=ABSENT)


async def _swap(
    store: MetadataStore, swaps: Sequence[PartitionWrite], guards: Sequence[Compare]
) -> list[PartitionWrite]:
    compares = [Compare(swap.key, swap.state.version) for swap in swaps]
    revision = await store.transact([*guards, *compares], [Put(swap.key, model.encode(swap.state)) for swap in swaps])
    if revision is not None:
        return [PartitionWrite(swap.topic_id, swap.partition, replace(swap.state, version=revision)) for swap in swaps]
    if len(swaps) == 1:
        return []
    middle = len(swaps) // 2
    return await _swap(store, swaps[:middle], guards) + await _swap(store, swaps[middle:], guards)
