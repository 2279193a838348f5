"""One led partition's archive: publishing, retention and garbage. This module owns the one safe order.

    metadata names the upload -> objects -> verified (offloader.archive) -> manifest -> metadata -> local delete
    log start -> manifest without the segment -> grace -> newest manifest read again -> objects deleted
    examined (offloader.proposals) -> manifest with the new in the place of the old -> grace -> … -> objects deleted

The steps of an archive are a table (`archive_steps`). Nothing is decided before `open` has loaded the newest manifest
and taken it over under this leader epoch, and `offloader.trust` has allowed to continue from it. Deleting a local
segment or an object cannot be undone. So each deletion first asks the bucket whether the newest manifest is exactly the
one that was published here last; if not, that manifest is judged before anything else is done. A local segment is
deleted only if the objects that hold it are still there (`offloader.stored`).

An upload that was named and never published is removed before the next one begins. Otherwise readers that read the
Parquet files without the manifest would count its rows twice.

Whatever publishes or deletes holds `turn`, so that one thing happens at a time: the offloader's round may meet a
collection that somebody asked for.
"""

import asyncio
import dataclasses
import uuid
from collections.abc import Sequence
from typing import Final

import structlog

from cold_tier import pins, proposals
from cold_tier.catalog import Catalog
from cold_tier.checking.garbage import (
    may_be_newer,
    named_by_other_topics,
    named_keys,
    superseded_manifests,
    unnamed_objects,
)
from cold_tier.errors import ArchiveStopped, CorruptObject, ManifestFenced
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import Owner, SegmentEntry, Snapshot
from cold_tier.manifest.reader import Manifest
from cold_tier.manifest.replacement import Replacement
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.pins import Pin
from hot_tier.cluster.model import Archived, Stopped, Writer
from hot_tier.cluster.store import MetadataStore
from hot_tier.errors import CorruptLog
from hot_tier.log.files import signature
from hot_tier.log.mending import proved_again
from hot_tier.log.producer_snapshots import producers_at
from hot_tier.replication.led_partition import LedPartition
from offloader import failpoints
from offloader.archive import ArchiveJob
from offloader.archive_record import ArchiveRecord, last_published, newest_known
from offloader.archive_steps import MUST_OPEN, Event, Step, after
from offloader.encryption import demand_encryption
from offloader.held import Held
from offloader.local_history import check_history, epochs_within
from offloader.plan import (
    Expiry,
    GracePeriod,
    NextSegment,
    archive_start,
    backlog_bytes,
    local_drop_offset,
    next_to_archive,
)
from offloader.settings import OffloadSettings
from offloader.source import REPLACE_IT
from offloader.stored import stored_until
from offloader.trust import FOR_GOOD, Local, Verdict, is_of, judge, stopped_error

_log = structlog.get_logger()

LOOK_MS: Final = 120_000


class PartitionArchive:
    def __init__(
        self,
        partition: LedPartition,
        catalog: Catalog,
        metadata: MetadataStore,
        settings: OffloadSettings,
        owner: Owner,
    ) -> None:
        self.partition = partition
        self.layout = PartitionLayout(partition.tp.topic, partition.topic.id, partition.tp.partition)
        self.leader_epoch = partition.leader_epoch
        self._catalog = catalog
        self.store = catalog.store
        self.owner = dataclasses.replace(owner, writer=uuid.uuid4().hex)
        self.metadata = metadata
        self.record = ArchiveRecord(metadata, self.layout, Writer(self.leader_epoch, self.owner.writer))
        self.stopped: ArchiveStopped | None = None
        """Why nothing is archived, dropped or deleted until the bucket is put right or a person decides."""
        self._settings = settings
        self._writer: ManifestWriter | None = None
        self._step = Step.CLOSED
        self._grace = GracePeriod(settings.delete_grace_ms)
        self._uploading: SegmentName | None = None
        """The upload that metadata names. It is published later, or removed."""
        self.turn = asyncio.Lock()
        self.last_success_ms = 0
        self.archived_segments = 0
        self.archived_bytes = 0
        self.failures = 0
        self.failures_in_a_row = 0
        self.last_failure = ""
        self.held: Held | None = None
        """The segment that archiving waits for: it is not proven to be undamaged."""
        self._file: tuple[int, ...] = ()
        self.kept: Held | None = None
        """The segment that stays on the local disk although its time is over, because its archived copy is gone."""
        self.failing_since_ms: int | None = None
        self.recovered_ms: int | None = None
        self._looked_ms = 0
        self.pins: list[Pin] = []
        """The pins that held the topic when they were last read."""

    @property
    def writer(self) -> ManifestWriter:
        assert self._writer is not None, "open first"
        return self._writer

    @property
    def manifest(self) -> Manifest:
        """Returns the manifest as it was last published."""
        manifest = self._catalog.get(self.layout)
        assert manifest is not None, "open first"
        return manifest

    @property
    def manifests_url(self) -> str:
        return f"{self.store.url}{self.layout.manifest_folder}"

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def must_open(self) -> bool:
        return self._step in MUST_OPEN

    def mistrust(self) -> None:
        """Says that a publish may or may not have taken effect. The next step is then to ask the bucket."""
        self._came(Event.DOUBTED)

    def _came(self, event: Event) -> None:
        self._step = after(self._step, event)

    @property
    def backlog_bytes(self) -> int:
        end = self._writer.current.end_offset if self._writer else self.partition.log.log_start_offset
        return backlog_bytes(self.partition.log.segments(), end)

    async def open(self, now_ms: int) -> None:
        """Loads the newest manifest and takes it over. From now on the manifest decides where the log starts.

        Raises ArchiveStopped, and publishes nothing, if `offloader.trust` does not allow to continue from it.
        """
        async with self.turn:
            recorded, revision = await self.record.read()
            if recorded is not None and recorded.stopped is not None and recorded.stopped.why in FOR_GOOD:
                raise self._stop(recorded.stopped)
            announced = False

            async def check(found: Snapshot | None) -> None:
                nonlocal announced
                # If metadata is the same before and after, the manifest was the newest in between.
                if not announced and (await self.record.read())[1] != revision:
                    raise ManifestFenced("the archive's record in metadata changed", where=str(self.partition.tp))
                await self._judge(found, recorded)
                check_history(self.partition.log, found, self.manifests_url)
                if not announced:
                    await self.record.announce(found, revision)
                announced = True

            self._writer = await ManifestWriter.open(
                self.store,
                self.layout,
                self.leader_epoch,
                self.partition.log.local_log_start_offset,  # if nothing was ever archived, there are none below it
                now_ms,
                check=check,
                owner=self.owner,
                published=last_published(recorded),
            )
            self._came(Event.OPENED)
            self._looked_ms = now_ms
            self._resume()
            key = None if recorded is None else recorded.uploading
            self._name(None if key is None else self.layout.parse_rows(key))
            self._show()
            await self._remove_abandoned()
            await self._record_archived()

    @property
    def local(self) -> Local:
        return Local(self.partition.log.log_start_offset, self.partition.log.local_log_start_offset)

    def known(self, recorded: Archived | None) -> Archived | None:
        """Returns what metadata says, or, if it is newer, what was published here and could not be recorded."""
        current = None if self._writer is None else self._writer.current
        return newest_known(recorded, current, self.leader_epoch)

    async def _judge(self, found: Snapshot | None, recorded: Archived | None) -> None:
        judgement = judge(found, self.known(recorded), self.local, self.owner, self.leader_epoch)
        if judgement.verdict is Verdict.DEPOSED:
            assert found is not None
            raise ManifestFenced(
                f"epoch {self.leader_epoch} is deposed: epoch {found.version.leader_epoch} has already published",
                where=self.manifests_url,
            )
        if not judgement.stops:
            return
        if judgement.verdict is Verdict.WENT_BACK and found is not None and is_of(found, self.owner):
            check_history(self.partition.log, found, self.manifests_url)
            self._catalog.put(found)  # Readers can still read what it names.
        stopped = Stopped(judgement.verdict, judgement.what)
        error = self._stop(stopped)
        await self.record.stop(stopped)
        raise error

    def _stop(self, stopped: Stopped) -> ArchiveStopped:
        self.stopped = stopped_error(stopped, self.layout, self.manifests_url)
        self._came(Event.STOPPED)
        self._catalog.stop(self.layout, self.stopped)
        return self.stopped

    def _resume(self) -> None:
        if self.stopped is not None:
            _log.info("an archive is in order again", partition=str(self.partition.tp))
        self.stopped = None
        self._catalog.resume(self.layout)

    def next_segment(self, now_ms: int) -> NextSegment | None:
        """Returns the next segment to archive. Also returns None while that segment is held."""
        log, stable_end = self.partition.log, self.partition.last_stable_offset
        following = next_to_archive(log.sealed_segments(), self.writer.current, stable_end, log.log_start_offset)
        held = self.held
        if held is not None and (following is None or following.info.contents != held.info.contents):
            held = self.held = None
        return None if held is not None and not held.is_due(now_ms) else following

    def hold(self, following: NextSegment, error: CorruptLog, now_ms: int) -> None:
        """Holds a segment whose proof failed, unless it was compacted or dropped meanwhile and is no longer there."""
        info, held = following.info, self.held
        there = {(each.contents, each.cleaned_ms) for each in self.partition.log.sealed_segments()}
        if (info.contents, info.cleaned_ms) not in there:
            return
        self.partition.log.note_damage(info, error.what)
        since_ms = now_ms if held is None else held.since_ms
        if held is None:
            _log.error("segment is not archived: it is damaged", partition=str(self.partition.tp), error=str(error))
        self.held = Held(info, str(error), since_ms, now_ms, self._file)

    async def begin(self, following: NextSegment, now_ms: int) -> ArchiveJob:
        """Returns the job that archives a segment. Metadata names the upload before the bucket has it.
        Raises CorruptLog if the segment is known to be damaged, and KeyMissing if its key is not here."""
        info = following.info
        self._file = signature(info.path)
        if info.damage and not await proved_again(self.partition.log, info):
            raise CorruptLog(info.damage, where=info.path, hint=REPLACE_IT)
        source = self.partition.log
        producers = await asyncio.to_thread(
            producers_at, source.directory, source.sealed_segments(), info.end_offset, now_ms
        )
        base = following.base_offset
        master_key = await demand_encryption(self.record, self.store.keys, source.config, base)
        async with self.turn:
            await self._remove_abandoned()
            name = SegmentName(base, self.leader_epoch, uuid.uuid4().hex)
            self._name(name)
            await self._record_archived()
        return ArchiveJob(
            layout=self.layout,
            name=name,
            log_path=info.path,
            contents=info.contents,
            base_offset=base,
            epochs=epochs_within(source.epochs.entries(), base, info.end_offset),
            producers=producers,
            now_ms=now_ms,
            bytes_per_second=self._settings.bytes_per_second,
            zstd_level=self._settings.zstd_level,
            master_key=master_key,
            aborted=tuple(self.partition.aborted_transactions(info.base_offset, info.end_offset)),
        )

    async def publish(self, segment: SegmentEntry, now_ms: int) -> None:
        """Publishes a verified segment, then records it in metadata."""
        async with self.turn:
            failpoints.reach("archive.before_publish")
            await self.writer.append([segment], now_ms)
            failpoints.reach("archive.published")
            self._name(None)
            self.held = None
            await self._published()
            failpoints.reach("archive.recorded")
        self.archived_segments += 1
        self.archived_bytes += segment.log_bytes

    async def replace(self, replacements: Sequence[Replacement], now_ms: int) -> None:
        """Puts examined segments in the place of their originals, which stay for the grace period."""
        async with self.turn:
            failpoints.reach("replace.before_publish")
            await self.writer.replace(replacements, now_ms)
            failpoints.reach("replace.published")
            await self._published()

    async def look(self, now_ms: int) -> None:
        """Asks from time to time whether the bucket went back."""
        if 0 <= now_ms - self._looked_ms < LOOK_MS:
            return
        if not await self.writer.still_there():
            raise ManifestFenced(
                "the manifest that was published last is no longer there",
                where=str(self.partition.tp),
                hint="the newest manifest is loaded again before anything else is done",
            )
        self._looked_ms = now_ms

    async def apply_retention(self, now_ms: int) -> None:
        async with self.turn:
            await self._expire(now_ms)
            await self._drop_local(now_ms)

    async def _expire(self, now_ms: int) -> None:
        partition_log, current = self.partition.log, self.writer.current
        segments = partition_log.segments()
        start = archive_start(partition_log.log_start_offset, current, segments)
        expiry = Expiry(partition_log.config, dataclasses.replace(current, log_start_offset=start), segments, now_ms)
        async for segment in self.manifest.segments(current.start_offset, current.end_offset):
            if not expiry.expires(segment):
                break
        if expiry.log_start_offset > current.log_start_offset and not await self.pinned(now_ms):
            failpoints.reach("retention.before_publish")
            await self.writer.expire(expiry.log_start_offset, now_ms)
            failpoints.reach("retention.published")
            await self._published()

    async def _drop_local(self, now_ms: int) -> None:
        partition_log = self.partition.log
        drop = local_drop_offset(partition_log.config, partition_log.segments(), self.writer.current, now_ms)
        if drop is None or (self.kept is not None and not self.kept.is_due(now_ms)):
            return
        await self.ensure_still_leading()
        until, wrong = await stored_until(self.store, self.manifest, partition_log.local_log_start_offset, drop)
        partition_log.drop_local_before(until, now_ms)
        failpoints.reach("retention.local_dropped")
        self._keep(wrong, now_ms)

    def _keep(self, wrong: str, now_ms: int) -> None:
        """If something is wrong with the archived copy of the oldest local segment, notes that the segment stays."""
        if not wrong:
            self.kept = None
            return
        info = self.partition.log.segments()[0]
        why = f"{wrong}; the local copy {info.path} stays (put the object back from a copy of the bucket)"
        if self.kept is None:
            _log.error("a local segment stays: its archived copy is gone", partition=str(self.partition.tp), why=why)
        since_ms = now_ms if self.kept is None else self.kept.since_ms
        self.kept = Held(info, why, since_ms, now_ms, signature(info.path))

    async def collect_removed(self, now_ms: int) -> int:
        """Deletes objects that the manifest removed longer ago than the grace period. Returns how many."""
        async with self.turn:
            due = self._grace.over(self.writer.current.removed, now_ms)
            if not due or await self.pinned(now_ms):
                return 0
            await self.ensure_still_leading()
            failpoints.reach("garbage.before_delete")
            await self.store.delete(due)
            failpoints.reach("garbage.deleted")
            await self.writer.forget(due, now_ms)
            await self._published()
            return len(due)

    async def collect_orphans(self, now_ms: int) -> int:
        """Deletes objects of this partition that its manifest does not name, and superseded ones. Returns how many.
        Deletes only objects that are too old to be a write under way, even if clocks differ, and none that may be newer
        than the manifest. Rows lie in one folder per topic name. So the rows that a deleted topic of the same name left
        there are deleted too, but not those that the manifest of another cluster's topic of that name holds.
        """
        async with self.turn:
            await self.ensure_still_leading()  # Even if there is nothing to delete: the bucket may have gone back.
            manifest = self.manifest
            found = await unnamed_objects(self.store, [self.layout], await named_keys(manifest))
            old = [info.key for info in found.values() if now_ms - info.modified_ms >= self._settings.orphan_age_ms]
            orphans = [key for key in old if not may_be_newer(key, manifest.snapshot)]
            if any(self.layout.parse_segment(key) for key in orphans):
                needed = await named_by_other_topics(self.store, self.layout)
                needed |= await proposals.named(self.store, self.layout)
                orphans = [key for key in orphans if key not in needed]
            before = now_ms - self._settings.manifest_history_ms
            superseded = [info.key for info in await superseded_manifests(self.store, manifest, before)]
            if superseded and not await self.pinned(now_ms):
                orphans += superseded
            if orphans:
                await self.ensure_still_leading()
                await self.store.delete(orphans)
            return len(orphans)

    async def pinned(self, now_ms: int) -> bool:
        """Returns whether a job holds the topic's retention. Costs a LIST, so it is asked only before a deletion.
        A pin that cannot be read counts as valid. It delays nothing else.
        """
        try:
            self.pins = await pins.held(self.store, self.layout.topic, self.layout.topic_id, now_ms)
            return bool(self.pins)
        except CorruptObject as error:
            if self.last_failure != str(error):
                self.last_failure = str(error)
                _log.warning("a pin that cannot be read holds", partition=str(self.partition.tp), error=str(error))
            return True

    async def _remove_abandoned(self) -> None:
        abandoned = self._uploading
        if abandoned is not None and abandoned.base_offset >= self.writer.current.end_offset:
            await self.ensure_still_leading()
            await self.store.delete(self.layout.objects(abandoned))
        self._name(None)

    def _name(self, upload: SegmentName | None) -> None:
        """Sets the upload that metadata names or will name. None means that there is none any more."""
        self._uploading = upload
        self._came(Event.SETTLED if upload is None else Event.NAMED)

    async def ensure_still_leading(self) -> None:
        if not await self.writer.still_newest():
            raise ManifestFenced(
                "the newest manifest is not the one that was published here last",
                where=str(self.partition.tp),
                hint="nothing is deleted; the newest manifest is loaded again",
            )

    async def _published(self) -> None:
        """Shows readers what was just published, and records it in metadata."""
        self._show()
        await self._record_archived()

    def _show(self) -> None:
        snapshot = self.writer.current
        self._catalog.put(snapshot)
        if snapshot.log_start_offset > self.partition.log.log_start_offset:
            self.partition.start_at(snapshot.log_start_offset)

    async def _record_archived(self) -> None:
        uploading = None if self._uploading is None else self.layout.rows(self._uploading)
        await self.record.published(self.writer.current, uploading)
