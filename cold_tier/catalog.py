"""Which manifest each partition of this broker reads by: the seam between who publishes and who reads.

The offloader puts every snapshot here once it is published; the stitched fetch and the HTTP API take it from here. A
partition that is not here yet has not been loaded: that is no statement about what the bucket holds. What another
broker leads and publishes is loaded when a reader `want`s it. Why an archive is stopped is here too, for readers who
ask for what no manifest here gives.
"""

from collections.abc import Callable, Iterator

from cold_tier.errors import ArchiveStopped
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.objects.retrying import RetryingStore


class Catalog:
    def __init__(self, store: RetryingStore, reading: RetryingStore | None = None) -> None:
        """`reading` is the same store for those who wait for an answer: pages are read through it."""
        self.store = store
        self._pages = PageCache(reading or store)
        self._manifests: dict[PartitionLayout, Manifest] = {}
        self._stopped: dict[PartitionLayout, ArchiveStopped] = {}
        self._wanted: set[PartitionLayout] = set()
        self.when_wanted: Callable[[], None] = lambda: None

    def put(self, snapshot: Snapshot) -> None:
        known = self._manifests.get(snapshot.layout)
        if known is None or known.snapshot.version <= snapshot.version:
            self._manifests[snapshot.layout] = Manifest(snapshot, self._pages)

    def get(self, layout: PartitionLayout) -> Manifest | None:
        return self._manifests.get(layout)

    def stop(self, layout: PartitionLayout, why: ArchiveStopped) -> None:
        self._stopped[layout] = why

    def stopped(self, layout: PartitionLayout) -> ArchiveStopped | None:
        return self._stopped.get(layout)

    def resume(self, layout: PartitionLayout) -> None:
        """The next snapshot counts, whatever was here before."""
        if self._stopped.pop(layout, None) is not None:
            self._manifests.pop(layout, None)

    def want(self, layout: PartitionLayout) -> None:
        """A reader needs this one, and it is not here."""
        if layout not in self._wanted:
            self._wanted.add(layout)
            self.when_wanted()

    def take_wanted(self) -> set[PartitionLayout]:
        wanted, self._wanted = self._wanted, set()
        return wanted

    def drop(self, layout: PartitionLayout) -> None:
        self._manifests.pop(layout, None)
        self._stopped.pop(layout, None)

    def __iter__(self) -> Iterator[Manifest]:
        return iter(list(self._manifests.values()))
