"""The manifest by which this broker reads each partition. The offloader writes it, the readers read it.

The offloader puts every snapshot here once it is published. The stitched fetch and the HTTP API take it from here. A
partition that is not here has not been loaded yet; the bucket may still hold it. The manifest of a partition that
another broker leads is loaded when a reader calls `want`. The catalog also says why an archive is stopped, for readers
that ask for offsets that no manifest here covers.
"""

from collections.abc import Callable, Iterator

from cold_tier.errors import ArchiveStopped
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.objects.bucket import Bucket


class Catalog:
    def __init__(self, store: Bucket, reading: Bucket | None = None) -> None:
        """`reading` is the same store with a shorter deadline, for clients that wait. It reads manifest pages."""
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
        """After this the catalog takes the next snapshot, even if its version is lower than that of the one before."""
        if self._stopped.pop(layout, None) is not None:
            self._manifests.pop(layout, None)

    def want(self, layout: PartitionLayout) -> None:
        """Says that a reader needs this partition's manifest, which is not here."""
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
