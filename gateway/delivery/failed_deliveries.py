"""How often the delivery of a record to a group has failed, kept in cluster metadata.

One key per group and partition holds a small document, which is changed by compare-and-swap:

    {"suspect_end": 120, "failures": {"117": [2, "cannot parse", 1748779200123]}}

- No count is lost: if another writer was faster, the change is made again on the new document.
- Records are remembered only while they may be delivered again: each change removes the records that the group has
  committed past. The document holds at most `MAX_RECORDS`; beyond that, the one that failed longest ago is removed.
- `suspect_end`: an answer with records below this offset was not handled, and nobody knows which record caused it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import orjson

from hot_tier.cluster import model
from hot_tier.cluster.store import ABSENT, Compare, Delete, MetadataStore, Put, Revision
from hot_tier.errors import CorruptMetadata, MetadataConflict
from hot_tier.ids import TopicId

MAX_RECORDS: Final = 1_000
MAX_REASON: Final = 200
"""How many characters of the reason are kept with a count. The dead letter carries the whole last reason."""
ATTEMPTS: Final = 10
MAX_CACHED: Final = 10_000


class Failure(NamedTuple):
    times: int
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The failures of one group at one partition."""

    suspect_end: int = 0
    failures: Mapping[int, Failure] = field(default_factory=dict)

    def counted(self, offset: int, reason: str, now_ms: int, committed: int) -> "Tally":
        before = self.failures.get(offset)
        kept = {at: failure for at, failure in self.failures.items() if at >= committed and at != offset}
        kept[offset] = Failure(1 if before is None else before.times + 1, reason[:MAX_REASON], now_ms)
        while len(kept) > MAX_RECORDS:
            del kept[min(kept, key=lambda at: kept[at].at_ms)]
        return replace(self, failures=kept)

    def suspecting(self, end: int) -> "Tally":
        return replace(self, suspect_end=max(end, self.suspect_end))

    def cleared(self) -> "Tally":
        return replace(self, suspect_end=0)

    def without(self, offset: int) -> "Tally":
        return replace(self, failures={at: failure for at, failure in self.failures.items() if at != offset})


NONE: Final = Tally()


def encode(tally: Tally) -> bytes:
    return orjson.dumps(
        {
            "suspect_end": tally.suspect_end,
            "failures": {str(offset): list(failure) for offset, failure in tally.failures.items()},
        }
    )


def decode(key: str, data: bytes) -> Tally:
    value = model.decode_map(key, data)
    try:
        return Tally(
            int(value["suspect_end"]),
            {
                int(offset): Failure(int(times), str(reason), int(at_ms))
                for offset, (times, reason, at_ms) in value["failures"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptMetadata(f"not a tally of failed deliveries: {error!r}", where=key) from None


class FailedDeliveries:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._cache: dict[str, tuple[Tally, Revision]] = {}

    async def get(self, group: str, topic_id: TopicId, partition: int) -> Tally:
        tally, _ = await self._load(model.failures_key(group, topic_id, partition))
        return tally

    async def change(self, group: str, topic_id: TopicId, partition: int, decide: Callable[[Tally], Tally]) -> Tally:
        """Changes the stored tally, and tries again if another writer was faster. Returns the new tally."""
        key = model.failures_key(group, topic_id, partition)
        for _ in range(ATTEMPTS):
            current, revision = await self._load(key)
            changed = decide(current)
            if changed == current:
                return current
            gone = changed == NONE
            written = await self._store.transact(
                [Compare(key, revision)], [Delete(key) if gone else Put(key, encode(changed))]
            )
            if written is not None:
                self._cache[key] = (changed, ABSENT if gone else written)
                return changed
            self._cache.pop(key, None)
        raise MetadataConflict(f"another broker keeps changing the failures of group {group!r}: gave up", where=key)

    def forget(self, group: str, topic_id: TopicId, partition: int) -> None:
        """Drops the cached tally, because it may be out of date."""
        self._cache.pop(model.failures_key(group, topic_id, partition), None)

    async def of_group(self, group: str) -> list[tuple[TopicId, int, Tally]]:
        listing = await self._store.range(model.group_failures_prefix(group))
        found = []
        for item in listing.items:
            _, topic_id, partition = model.parse_failures_key(item.key)
            found.append((topic_id, int(partition), decode(item.key, item.value)))
        return found

    async def forget_group(self, group: str) -> None:
        for item in (await self._store.range(model.group_failures_prefix(group))).items:
            self._cache.pop(item.key, None)
            await self._store.transact([], [Delete(item.key)])

    async def _load(self, key: str) -> tuple[Tally, Revision]:
        known = self._cache.get(key)
        if known is None:
            item = await self._store.get(key)
            known = (NONE, ABSENT) if item is None else (decode(key, item.value), item.revision)
            if len(self._cache) >= MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = known
        return known
