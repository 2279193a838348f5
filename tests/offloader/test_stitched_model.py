"""Both tiers against a plain list: whatever is rolled, archived, dropped, expired, deleted or restarted in between, a
reader gets exactly the records, and a time lookup the earliest of them.

Segments, row groups and manifest pages are tiny, so that every seam between them is met.
"""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from unittest import mock

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from cold_tier.cache import ColdReadSettings
from cold_tier.errors import ArchiveNotLoaded
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Reader
from hot_tier.errors import OffsetOutOfRange
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.columns import NewRecord, Record, decode_records, encode_records
from offloader.archive import archive_segment
from offloader.settings import OffloadSettings
from tests.offloader.harness import Archived, Clock, archived_node

MINUTE = 60_000
RETENTION = 60 * MINUTE
CONFIG = {
    "segment.bytes": "1024",
    "index.interval.bytes": "100",
    "local.retention.ms": "1",
    "retention.ms": str(RETENTION),
}


BATCH = st.lists(st.integers(-20, 5), min_size=1, max_size=4)
"""Timestamps of its records, in minutes from now: in no order, and often the same."""


class SmallPages(ManifestWriter):
    @classmethod
    async def open(cls, *args, **options):
        return await super().open(*args, page_segments=3, **options)


class Tiers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.runner = asyncio.Runner()
        self.patches = [
            mock.patch("offloader.archive.ROW_GROUP_BYTES", 400),
            mock.patch("offloader.partition_archive.ManifestWriter", SmallPages),
        ]
        for patch in self.patches:
            patch.start()
        self.clock = Clock()
        self.records: list[Record] = []
        """Everything ever written, at its offset."""
        self.loaded = True

    def run(self, work):
        return self.runner.run(work)

    @initialize(minutes=st.lists(BATCH, min_size=10, max_size=40))
    def start(self, minutes) -> None:
        self.run(self._start())
        self.produce(minutes)
        self.time_passes(6)
        self.archive()

    async def _start(self) -> None:
        self.parts = AsyncExitStack()
        context = archived_node(self.folder, OffloadSettings(delete_grace_ms=MINUTE), CONFIG, clock=self.clock)
        self.node: Archived = await self.parts.enter_async_context(context)
        store = self.node.store
        [worker] = self.node.offloader._workers
        worker.archive = lambda job: archive_segment(store, job, self.folder)
        cold = ColdReader(store, ColdReadSettings(memory_bytes=2000), f"{self.folder}/cache")
        self.parts.push_async_callback(cold.close)
        self.reader = Reader(Archive(self.node.catalog, cold))
        self.partition = self.node.partition

    def teardown(self) -> None:
        if hasattr(self, "parts"):
            self.run(self.parts.aclose())
        self.runner.close()
        for patch in self.patches:
            patch.stop()
        shutil.rmtree(self.folder)

    @property
    def start_offset(self) -> int:
        return self.partition.log.log_start_offset

    @rule(minutes=st.lists(BATCH, min_size=1, max_size=15))
    def produce(self, minutes) -> None:
        async def append() -> None:
            for batch_minutes in minutes:
                now, first = self.clock(), len(self.records)
                new = [
                    NewRecord(now + at * MINUTE, b"k" if n % 2 else None, b"%d" % (first + n) * 40, ())
                    for n, at in enumerate(batch_minutes)
                ]
                batch = encode_records(new)
                appended = self.partition.append(batch, read_header(batch), now)
                waiting = self.partition.when_committed(appended.end_offset)
                if waiting is not None:
                    await waiting
                assert appended.base_offset == first
                self.records += decode_records(batch)

        self.run(append())

    @rule()
    def roll(self) -> None:
        async def work() -> None:
            if self.partition.log.log_end_offset:
                self.partition.log.roll(self.clock())
                self.partition.log.flush()

        self.run(work())

    @rule(minutes=st.integers(0, 30))
    def time_passes(self, minutes) -> None:
        self.clock.now_ms += minutes * MINUTE

    @rule()
    def archive(self) -> None:
        before = self.start_offset
        self.run(self.node.offloader.round())
        self._after_round(before)

    def _after_round(self, before: int) -> None:
        assert [a.last_failure for a in self.node.offloader if a.failures] == []
        self.loaded = self.loaded or self.partition.log.log_end_offset > 0
        log = self.partition.log
        note(f"start {log.log_start_offset} local {log.local_log_start_offset} end {log.log_end_offset}")
        expired = self.records[before : log.log_start_offset]
        assert all(record.timestamp < self.clock() - RETENTION for record in expired), "expired too early"

    @rule(part=st.floats(0, 1))
    def delete_records(self, part) -> None:
        async def work() -> None:
            self.partition.delete_records_before(int(start + part * (len(self.records) - start)))

        start = self.start_offset
        if self.records:
            self.run(work())

    @rule()
    def restart(self) -> None:
        self.run(self.parts.aclose())
        self.run(self._start())
        self.loaded = False

    @rule()
    def restart_and_load(self) -> None:
        self.restart()
        self.archive()

    async def _read_all(self, max_bytes: int) -> list[Record]:
        offset, found = self.start_offset, []
        while offset < len(self.records):
            try:
                fetched = await self.reader.read(self.partition, offset, max_bytes, 0)
            except OffsetOutOfRange:
                # Expired under the reader; it goes on at the new start.
                assert offset < self.start_offset
                offset = self.start_offset
                continue
            got = [record for record in decode_records(fetched.records) if record.offset >= offset]
            assert got, f"nothing at {offset}"
            found += got
            offset = max(header.end_offset for _, header in iter_headers(fetched.records))
        return found

    @rule(max_bytes=st.sampled_from([1, 300, 5000]))
    def read_all(self, max_bytes) -> None:
        start = self.start_offset
        try:
            found = self.run(self._read_all(max_bytes))
        except ArchiveNotLoaded:
            assert not self.loaded
            return
        assert found == self.records[start:]

    @rule(max_bytes=st.sampled_from([1, 300, 5000]))
    def read_all_while_segments_move(self, max_bytes) -> None:
        before = self.start_offset

        async def both() -> list[Record]:
            moving = asyncio.create_task(self.node.offloader.round())
            try:
                return await self._read_all(max_bytes)
            finally:
                await moving  # Also when the read fails: rounds do not overlap.

        try:
            found = self.run(both())
        except ArchiveNotLoaded:
            assert not self.loaded
            return
        self._after_round(before)
        gone = {record.offset for record in self.records[before : self.start_offset]}
        assert [r for r in found if r.offset not in gone] == self.records[max(before, self.start_offset) :]
        assert all(record == self.records[record.offset] for record in found)

    @rule(offset=st.integers(-2, 3), part=st.floats(0, 1), max_bytes=st.integers(0, 1000))
    def read_somewhere(self, offset, part, max_bytes) -> None:
        start, end = self.start_offset, len(self.records)
        offset += int(start + part * (end - start))
        try:
            fetched = self.run(self.reader.read(self.partition, offset, max_bytes, 0))
        except OffsetOutOfRange:
            assert not start <= offset <= end
            return
        except ArchiveNotLoaded:
            assert not self.loaded and start <= offset < self.partition.log.local_log_start_offset
            return
        assert start <= offset <= end and fetched.log_start_offset == start and fetched.high_watermark == end
        got = [record for record in decode_records(fetched.records) if record.offset >= offset]
        assert got == self.records[offset : offset + len(got)]
        assert got or offset == end

    @rule(moving=st.booleans())
    def look_up_times(self, moving) -> None:
        before = self.start_offset
        visible = self.records[before:]
        asked = sorted({record.timestamp + by for record in visible for by in (0, 1)} | {0})

        async def look() -> list:
            round_beside = asyncio.create_task(self.node.offloader.round()) if moving else None
            try:
                return await asyncio.gather(
                    self.reader.max_timestamp_offset(self.partition),
                    *(self.reader.offset_for_timestamp(self.partition, timestamp, 0) for timestamp in asked),
                )
            finally:
                if round_beside is not None:
                    await round_beside  # Also when a look-up fails: rounds do not overlap.

        try:
            latest, *found = self.run(look())
        except ArchiveNotLoaded:
            assert not self.loaded
            return
        if moving:
            self._after_round(before)
            if self.start_offset > before:
                return  # Either start is right.
        for timestamp, earliest in zip(asked, found, strict=False):
            expected = next((record for record in visible if record.timestamp >= timestamp), None)
            assert (earliest and earliest.offset) == (expected and expected.offset), timestamp
            assert expected is None or earliest.timestamp == expected.timestamp
        greatest = max(visible, key=lambda record: record.timestamp, default=None)
        assert (latest and latest.offset) == (greatest and greatest.offset)


@pytest.mark.timeout(300)
class TestTiers(Tiers.TestCase):
    settings = settings(max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
