"""The archive of one broker: the production offloader on the simulated bucket.

Only the worker process is not the real one: it uploads the records of a simulated log, by way of the real
`upload_segment`, and leaves out Parquet. Consumers read archived records by the manifest that the offloader shows.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from cold_tier.catalog import Catalog
from cold_tier.format.index import RowGroup, SegmentIndex
from cold_tier.format.write import WrittenSegment
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.bucket import Bucket, RetryPolicy, StoreCounters
from cold_tier.objects.open import StoreSettings
from cold_tier.upload import upload_segment
from hot_tier.errors import CorruptLog, TierlogError
from hot_tier.ids import Offset, PartitionId
from hot_tier.record.crc import crc32c
from hot_tier.replication.followed_partition import FollowedPartition
from offloader.archive import ArchiveJob
from offloader.follower_archive import ArchivedStart
from offloader.offloader import Offloader
from offloader.settings import OffloadSettings
from tests.sim.bucket import ATTEMPT_MS, BucketClient
from tests.sim.disk import Record, decode_records, encode_records
from tests.sim.store import TOPIC, TOPIC_ID

if TYPE_CHECKING:
    from tests.sim.broker import Broker

GRACE_MS: Final = 900
SETTINGS: Final = OffloadSettings(
    check_ms=120,
    delete_grace_ms=GRACE_MS,
    orphan_age_ms=1_500,
    garbage_check_ms=500,
    manifest_history_ms=2_000,
)
POLICY: Final = RetryPolicy(deadline_ms=600, attempt_ms=int(ATTEMPT_MS), backoff_ms=20, backoff_max_ms=150)
TOPIC_CONFIG: Final = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1600",
    "retention.bytes": "9000",
    "retention.ms": "-1",
    "local.retention.ms": "-1",
}


def layout_of(partition: int) -> PartitionLayout:
    return PartitionLayout(TOPIC, TOPIC_ID, PartitionId(partition))


class BrokerArchive:
    def __init__(self, broker: "Broker") -> None:
        client = BucketClient(broker)
        self.store = Bucket(client, POLICY, clock=broker.loop.time)
        self.catalog = Catalog(self.store)
        self._broker = broker
        metadata: Any = broker.metadata
        settings = broker.rules.offload
        self.offloader = Offloader(
            broker.table,
            broker.image,
            metadata,
            self.catalog,
            StoreSettings(),
            settings,
            "",
            broker.clock_ms,
            broker.node,
        )
        worker: Any = Worker(broker, self.store, client)
        self.offloader._workers = [worker]
        self._begin = ArchivedStart(self.store, broker.image)

    async def begin_at_archive(self, replica: FollowedPartition) -> None:
        try:
            await self._begin(replica)
        except TierlogError as error:
            self._broker.world.note("broker", self._broker.node, "does not begin at the archive:", error)

    async def read(self, partition: int, offset: Offset) -> list[Record] | None:
        """Archived records from `offset` on; None where they cannot be read now."""
        manifest = self.catalog.get(layout_of(partition))
        if manifest is None:
            self.catalog.want(layout_of(partition))
            return None
        segment = await manifest.segment_at(offset)
        if segment is None:
            return None
        try:
            data = await self.store.get(layout_of(partition).rows(segment.name))
        except TierlogError:
            return None
        return decode_records(data)[offset - segment.base_offset :]


class Worker:
    """In the place of `offloader.worker.WorkerProcess`."""

    def __init__(self, broker: "Broker", store: Bucket, client: BucketClient) -> None:
        self._broker = broker
        self._store = store
        self._client = client
        self.requests = StoreCounters()

    async def close(self) -> None:
        pass

    async def archive(self, job: ArchiveJob) -> SegmentEntry:
        await asyncio.sleep(0.005 + 0.02 * self._broker.world.random.random())
        log = self._broker.disk.log(job.layout.partition)
        there = {info.contents for info in log.sealed_segments()}
        if job.contents not in there:
            raise CorruptLog("it is not what its seal says", where=job.log_path)
        rows = encode_records(log.read(job.base_offset, job.end_offset))
        count = job.end_offset - job.base_offset
        group = RowGroup(job.base_offset, job.end_offset, 0, 0, 0, len(rows), count, crc32c(rows))
        index = SegmentIndex(job.base_offset, job.end_offset, len(rows), (group,), job.epochs, b"", job.producers)
        path = job.name.stem
        self._client.files[path] = rows
        try:
            return await upload_segment(
                self._store,
                job.layout,
                job.name,
                path,
                WrittenSegment(index, count, 0, 0, crc32c(rows)),
                log_bytes=job.contents.log_bytes,
                archived_ms=job.now_ms,
            )
        finally:
            del self._client.files[path]
