"""A partition with real logs, metadata and a bucket, and an offloader that the test drives round by round."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from cold_tier.cache import ColdReadSettings
from cold_tier.catalog import Catalog
from cold_tier.layout import PartitionLayout
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.reader import ColdReader
from hot_tier.ids import Offset
from hot_tier.record.batch import read_header
from hot_tier.record.columns import NewRecord, Record, decode_records, encode_records
from hot_tier.record.control import Marker, MarkerKind
from hot_tier.replication.led_partition import LedPartition
from offloader.offloader import Offloader
from offloader.settings import OffloadSettings
from tests.gateway.kafka.node import Running, running_node

TOPIC = "orders"
SMALL = {"segment.bytes": "2000", "remote.storage.enable": "true"}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Archived:
    running: Running
    offloader: Offloader
    catalog: Catalog
    store: Bucket
    clock: Clock
    settings: StoreSettings
    sent: list[Record] = field(default_factory=list)
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def partition(self) -> LedPartition:
        return self.running.node.partitions.get(TOPIC, 0)

    @property
    def layout(self) -> PartitionLayout:
        return PartitionLayout(TOPIC, self.running.node.image.topic(TOPIC).id, 0)

    async def produce(self, count: int, per_batch: int = 5, producer_id: int = -1) -> None:
        partition = self.partition
        for _ in range(0, count, per_batch):
            first = partition.log.log_end_offset
            records = [
                NewRecord(self.clock.now_ms + n, b"key-%d" % n, b"value-%d " % (first + n) * 10, (("h", b"%d" % n),))
                for n in range(per_batch)
            ]
            sequence = (-1, -1) if producer_id < 0 else (0, first)
            batch = encode_records(
                records, producer_id=producer_id, producer_epoch=sequence[0], base_sequence=sequence[1]
            )
            appended = partition.append(batch, read_header(batch), self.clock())
            await self._committed(appended.end_offset)
            self.sent += decode_records(batch)

    async def transaction(
        self, counts: Sequence[int] = (5,), *, commit: bool | None = True, producer_id: int = 7, epoch: int = 0
    ) -> None:
        """Writes a batch for each of `counts` in one transaction, then its marker. None: the transaction stays open."""
        partition = self.partition
        for number, count in enumerate(counts):
            first = partition.log.log_end_offset
            records = [
                NewRecord(self.clock.now_ms + n, b"key-%d" % n, b"value-%d " % (first + n) * 10, (("h", b"%d" % n),))
                for n in range(count)
            ]
            batch = encode_records(
                records,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self.sequences.get((producer_id, epoch), 0),
                transactional=True,
            )
            self.sequences[producer_id, epoch] = self.sequences.get((producer_id, epoch), 0) + count
            header = read_header(batch)
            verification = partition.begin_verification(header, f"id-{producer_id}") if number == 0 else None
            appended = partition.append(batch, header, self.clock(), verification=verification)
            await self._committed(appended.end_offset)
            self.sent += decode_records(batch)
        if commit is not None:
            await self.end_transaction(commit=commit, producer_id=producer_id, epoch=epoch)

    async def end_transaction(self, *, commit: bool, producer_id: int = 7, epoch: int = 0) -> None:
        marker = Marker(MarkerKind(int(commit)), 1)
        appended = self.partition.append_marker(producer_id, epoch, marker, self.clock(), transaction_version=1)
        await self._committed(appended.end_offset)

    async def _committed(self, end_offset: Offset) -> None:
        waiting = self.partition.when_committed(end_offset)
        if waiting is not None:
            await waiting

    async def settle(self) -> None:
        """Rounds until nothing sealed is left to archive."""
        for _ in range(50):
            await self.offloader.round()
            if all(archive.backlog_bytes == 0 for archive in self.offloader):
                return
        raise AssertionError([archive.last_failure for archive in self.offloader])

    async def read_cold(self, start: int, end: int) -> list[Record]:
        """Records of [start, end) as the archive gives them."""
        manifest = self.catalog.get(self.layout)
        reader = ColdReader(self.store, ColdReadSettings())
        records: list[Record] = []
        offset = start
        while offset < end:
            read = await reader.read(manifest, offset, 1 << 16)
            if read is None:
                break
            found = decode_records(read.data)
            records += [record for record in found if offset <= record.offset < end]
            offset = max([offset, *(header_end(read.data))])
        await reader.close()
        return records

    async def keys(self, prefix: str = "") -> list[str]:
        return [info.key async for info in self.store.list(prefix)]


def header_end(data) -> list[int]:
    from hot_tier.record.batch import iter_headers

    return [header.end_offset for _, header in iter_headers(data)]


@asynccontextmanager
async def archived_node(
    folder: str, settings: OffloadSettings | None = None, config: dict[str, str] | None = None, **clock_settings
):
    clock = clock_settings.get("clock") or Clock()
    keys_file = clock_settings.get("keys_file", "")
    bucket = StoreSettings(bucket=f"file://{folder}/bucket", deadline_ms=3000, attempt_ms=3000, keys_file=keys_file)
    async with AsyncExitStack() as parts:
        running = await parts.enter_async_context(running_node(os.path.join(folder, "node"), clock=clock))
        if TOPIC not in [topic.name for topic in running.node.image.topics()]:
            await running.node.admin.create_topic(TOPIC, 1, 1, {**SMALL, **(config or {})})
        store = open_store(bucket, create=True)
        catalog = Catalog(store)
        offloader = Offloader(
            running.node.partitions,
            running.node.image,
            running.node.store,
            catalog,
            bucket,
            replace(settings or OffloadSettings(), check_ms=1),
            os.path.join(folder, "scratch"),
            clock,
            running.node.node_id,
        )
        parts.push_async_callback(offloader.close)
        yield Archived(running, offloader, catalog, store, clock, bucket)
        await asyncio.sleep(0)
