"""Which manifest each partition of this broker reads by: the seam between who publishes and who reads.

The offloader puts every snapshot here once it is published; the stitched fetch and the HTTP API take it from here. A
partition that is not here yet has not been loaded: that is no statement about what the bucket holds.
"""

from collections.abc import Iterator

from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.objects.retrying import RetryingStore


class Catalog:
    def __init__(self, store: RetryingStore) -> None:
        self.store = store
        self._pages = PageCache(store)
        self._manifests: dict[PartitionLayout, Manifest] = {}

    def put(self, snapshot: Snapshot) -> None:
        known = self._manifests.get(snapshot.layout)
        if known is None or known.snapshot.version <= snapshot.version:
            self._manifests[snapshot.layout] = Manifest(snapshot, self._pages)

    def get(self, layout: PartitionLayout) -> Manifest | None:
        return self._manifests.get(layout)

    def drop(self, layout: PartitionLayout) -> None:
        self._manifests.pop(layout, None)

    def __iter__(self) -> Iterator[Manifest]:
        return iter(list(self._manifests.values()))
