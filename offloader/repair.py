"""What a person may decide about a stopped archive (`offloader.trust`). The partition's leader does it.

    recover      manifests went back: adds again the segments that are in the bucket and that no manifest names. Only
                 if nothing is missing then.
    accept-loss  the same, but gives up what is in neither tier: a segment without rows stands in its place, and the
                 manifest says that it was lost.
    take-over    somebody else has published: accepts their manifests as this partition's own history. Only if they
                 are, as far as the local log can show. The other publisher is fenced from then on.

A repair publishes above every version that was ever published here. It uses its own token, which it first writes to
metadata. So a stop in the middle leaves the archive stopped or repaired.
"""

import asyncio
import dataclasses
import os
import uuid
from collections.abc import Sequence

import structlog

from cold_tier.cache import ColdReadSettings
from cold_tier.errors import ArchiveNotStopped, CorruptObject, ObjectMissing, RecordsMissing
from cold_tier.format.index import read_index
from cold_tier.format.open import prove_aside
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import write_segment
from cold_tier.layout import PartitionLayout, SegmentName, Version
from cold_tier.manifest.model import NO_TIMESTAMP, Lost, SegmentEntry, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.bucket import Bucket
from cold_tier.reader import ColdReader
from cold_tier.reports import Repaired
from cold_tier.upload import READ_BACK_BYTES, upload_segment
from hot_tier.cluster.model import Archived, Writer
from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset
from hot_tier.record.crc import crc32c
from hot_tier.record.records import Record, decode_records
from offloader.archive_record import ArchiveRecord, last_published
from offloader.chain import Candidate, Hole, best_chain, needed
from offloader.encryption import demand_of
from offloader.local_history import check_history, epochs_within, other_epoch
from offloader.partition_archive import PartitionArchive
from offloader.trust import FOR_GOOD, Verdict, judge

_log = structlog.get_logger()

_AT_ONCE = 8
_COMPARE_BYTES = 1 << 20


async def recover(archive: PartitionArchive, scratch: str, now_ms: int, *, accept_loss: bool) -> Repaired:
    async with archive.turn:
        recorded, _ = await archive.record.read()
        known = archive.known(recorded)
        found = await load_newest(archive.store, archive.layout)
        judgement = judge(found, known, archive.local, archive.owner, archive.leader_epoch)
        if judgement.verdict is not Verdict.WENT_BACK:
            raise _not_stopped(archive, "its manifests did not go back")
        chain = await _find_chain(archive, found, known)
        holes = [step for step in chain if isinstance(step, Hole)]
        if holes and not accept_loss:
            missing = ", ".join(f"{hole.start_offset} to {hole.end_offset - 1}" for hole in holes[:10])
            raise RecordsMissing(
                f"offsets {missing} are neither on the local disk nor in the bucket",
                where=f"{archive.store.url}{archive.layout.folder}",
                hint="put the objects back from a copy of the bucket; or give these records up: "
                f"`tierlog archive accept-loss {archive.layout.topic} {archive.layout.partition}`",
            )
        repaired = await _publish(archive, found, known, chain, scratch, now_ms)
    archive.mistrust()
    await archive.open(now_ms)
    return repaired


async def take_over(archive: PartitionArchive, now_ms: int) -> Repaired:
    async with archive.turn:
        recorded, revision = await archive.record.read()
        found = await load_newest(archive.store, archive.layout)
        judgement = judge(found, archive.known(recorded), archive.local, archive.owner, archive.leader_epoch)
        stopped = None if recorded is None else recorded.stopped
        if judgement.verdict not in FOR_GOOD and (stopped is None or stopped.why not in FOR_GOOD):
            raise _not_stopped(archive, "nobody else has published")
        if found is not None and judgement.verdict in FOR_GOOD:
            check_history(archive.partition.log, found, archive.manifests_url)
            await _compare(archive, Manifest(found, PageCache(archive.store)))
            led_anew = await archive.record.adopt(found, revision)
            _log.warning("an archive is taken over", partition=str(archive.partition.tp), **_versions(found))
        else:
            led_anew = False
            await archive.record.resume()
    archive.mistrust()
    if not led_anew:  # Otherwise the next round opens the archive of the new epoch.
        await archive.open(now_ms)
    return Repaired(archive.layout.topic, archive.layout.partition, 0 if found is None else found.end_offset)


async def _find_chain(
    archive: PartitionArchive, found: Snapshot | None, known: Archived | None
) -> list[Candidate | Hole]:
    """Returns the best chain. Reads every chosen segment completely that no manifest names."""
    partition_log, local = archive.partition.log, archive.local
    candidates = await _candidates(archive, found)
    start = local.log_start_offset if found is None else found.start_offset
    if found is None:
        holding = [each.segment for each in candidates if each.segment.base_offset <= start < each.segment.end_offset]
        start = max((segment.base_offset for segment in holding), default=start)
    goal = max(local.local_start_offset, known.end_offset if known else 0, found.end_offset if found else 0)
    goal = min(goal, partition_log.log_end_offset)
    checked: dict[SegmentName, SegmentEntry] = {}
    while True:
        chain = needed(best_chain(candidates, Offset(start), Offset(goal)), Offset(local.local_start_offset))
        unsure = [
            step.segment.name
            for step in chain
            if isinstance(step, Candidate) and not step.named and step.segment.name not in checked
        ]
        if not unsure:
            return chain
        segment = await _read_whole(archive.store, archive.layout, unsure[0])
        candidates = [each for each in candidates if each.segment.name != unsure[0]]
        if segment is not None:
            checked[segment.name] = segment
            candidates.append(Candidate(segment, named=False))


async def _candidates(archive: PartitionArchive, found: Snapshot | None) -> list[Candidate]:
    store, layout = archive.store, archive.layout
    folders = (layout.rows_folder, layout.index_folder, layout.aside_folder)
    sizes = {info.key: info.size for folder in folders async for info in store.list(folder)}
    candidates: list[Candidate] = []
    if found is not None:
        async for segment in Manifest(found, PageCache(store)).segments(found.start_offset, found.end_offset):
            there = segment.objects(layout).items() <= sizes.items()
            candidates.append(Candidate(segment, named=True, there=there))
    named = {each.segment.name for each in candidates}
    names = [name for key in sizes if (name := layout.parse_index(key)) is not None]
    rest = [name for name in names if name not in named and layout.rows(name) in sizes]
    start = archive.partition.log.log_start_offset if found is None else found.start_offset
    demand = demand_of((await archive.record.read())[0])
    for at in range(0, len(rest), _AT_ONCE):
        read = await asyncio.gather(*(_from_index(store, layout, name) for name in rest[at : at + _AT_ONCE]))
        candidates += [
            Candidate(segment, named=False)
            for segment in read
            if segment is not None
            and segment.objects(layout).items() <= sizes.items()
            and start < segment.end_offset <= archive.partition.log.log_end_offset
            and other_epoch(archive.partition.log, segment) is None
            and (demand is None or demand.met_by(segment))
        ]
    return candidates


async def _from_index(store: Bucket, layout: PartitionLayout, name: SegmentName) -> SegmentEntry | None:
    """Returns what the index says about a segment, or None if it cannot be read. Does not read the other objects."""
    try:
        data = await store.get(layout.index(name))
        where = f"{store.url}{layout.index(name)}"
        index = read_index(data, where)
        master_key = (await asyncio.to_thread(SegmentReader.open, index, where)).master_key
    except (CorruptObject, ObjectMissing):
        return None
    groups = index.row_groups
    return SegmentEntry(
        name=name,
        end_offset=index.end_offset,
        rows=sum(group.rows for group in groups),
        min_timestamp_ms=min((group.min_timestamp_ms for group in groups), default=NO_TIMESTAMP),
        max_timestamp_ms=max((group.max_timestamp_ms for group in groups), default=NO_TIMESTAMP),
        rows_bytes=index.rows_bytes,
        rows_crc32c=0,
        index_bytes=len(data),
        index_crc32c=crc32c(data),
        # The manifests that held the size of the log are gone. This size is smaller, so retention keeps more.
        log_bytes=index.rows_bytes,
        archived_ms=0,
        epochs=index.epochs,
        master_key=master_key,
        aside=None if index.aside is None else index.aside.entry,
    )


async def _read_whole(store: Bucket, layout: PartitionLayout, name: SegmentName) -> SegmentEntry | None:
    """Returns the segment's manifest entry if its other objects match the index byte for byte, else None."""
    segment = await _from_index(store, layout, name)
    if segment is None:
        return None
    key = layout.rows(name)
    try:
        index = read_index(await store.get(layout.index(name)), key)
        checksum, at, tail = 0, 0, b""
        for group in index.row_groups:
            head = await store.get(key, at, group.start - at) if group.start > at else b""
            data = await store.get(key, group.start, group.length)
            if len(data) != group.length or crc32c(data) != group.crc32c:
                return None
            checksum, at = crc32c(data, crc32c(head, checksum)), group.start + group.length
        while data := await store.get(key, at, min(READ_BACK_BYTES, segment.rows_bytes + 1 - at)):
            checksum, at, tail = crc32c(data, checksum), at + len(data), tail + bytes(data)
            if at > segment.rows_bytes:
                return None
        await prove_aside(store, layout, segment, index)
    except (CorruptObject, ObjectMissing):
        return None
    if at != segment.rows_bytes or not tail.endswith(index.footer):
        return None
    return dataclasses.replace(segment, rows_crc32c=checksum)


async def _publish(
    archive: PartitionArchive,
    found: Snapshot | None,
    known: Archived | None,
    chain: Sequence[Candidate | Hole],
    scratch: str,
    now_ms: int,
) -> Repaired:
    layout, taken_up, lost = archive.layout, 0, []
    segments: list[SegmentEntry] = []
    for step in chain:
        if isinstance(step, Hole):
            segments.append(await _stand_in(archive, step, scratch, now_ms))
            lost.append(Lost(step.start_offset, step.end_offset, now_ms))
        elif step.named:
            segments.append(step.segment)
        else:
            segments.append(dataclasses.replace(step.segment, archived_ms=now_ms))
            taken_up += 1
    owner = dataclasses.replace(archive.owner, writer=uuid.uuid4().hex)
    record = ArchiveRecord(archive.metadata, layout, Writer(archive.leader_epoch, owner.writer))
    await record.admit()
    floor = last_published(known) or Version(archive.leader_epoch, -1)
    start = Offset(archive.local.log_start_offset)
    identity = (layout.topic, layout.topic_id, layout.partition)
    before = found or Snapshot(*identity, floor, "", now_ms, start)
    before = dataclasses.replace(before, version=max(before.version, floor))
    writer = ManifestWriter(archive.store, layout, archive.leader_epoch, before, PageCache(archive.store), owner=owner)
    await writer.rebuild(segments, lost, now_ms)
    await record.published(writer.current, None)
    _log.warning(
        "an archive is repaired",
        partition=str(archive.partition.tp),
        taken_up=taken_up,
        lost=[f"{each.start_offset}-{each.end_offset - 1}" for each in lost],
        **_versions(writer.current),
    )
    ranges = tuple((int(each.start_offset), int(each.end_offset)) for each in lost)
    return Repaired(layout.topic, layout.partition, writer.current.end_offset, taken_up, ranges)


async def _stand_in(archive: PartitionArchive, hole: Hole, scratch: str, now_ms: int) -> SegmentEntry:
    """Uploads a segment without rows and returns it."""
    layout = archive.layout
    name = SegmentName(hole.start_offset, archive.leader_epoch, uuid.uuid4().hex)
    os.makedirs(scratch, exist_ok=True)
    path = os.path.join(scratch, f"{name.stem}.parquet")
    described = {
        "topic": layout.topic,
        "topic_id": str(layout.topic_id),
        "partition": str(layout.partition),
        "base_offset": str(hole.start_offset),
        "end_offset": str(hole.end_offset),
    }
    epochs = epochs_within(archive.partition.log.epochs.entries(), hole.start_offset, hole.end_offset)
    try:
        written = write_segment(
            path, iter(()), hole.start_offset, hole.end_offset, epochs, b"", described, zstd_level=1
        )
        return await upload_segment(archive.store, layout, name, path, written, log_bytes=0, archived_ms=now_ms)
    finally:
        if os.path.exists(path):
            os.unlink(path)


async def _compare(archive: PartitionArchive, manifest: Manifest) -> None:
    """Raises CorruptLog unless records that both tiers have are the same."""
    partition_log = archive.partition.log
    end = min(manifest.snapshot.end_offset, partition_log.log_end_offset)
    at: int = max(partition_log.local_log_start_offset, manifest.snapshot.start_offset)
    reader = ColdReader(archive.store, ColdReadSettings())
    try:
        while at < end:
            read = await reader.read(manifest, Offset(at), _COMPARE_BYTES)
            cold = {} if read is None else {each.offset: each for each in decode_records(read.data)}
            until = min(end, max(cold, default=end - 1) + 1)
            hot = await _local_records(archive, at, until)
            for offset in sorted(cold.keys() & hot.keys()):
                if not _same(cold[offset], hot[offset]):
                    raise CorruptLog(
                        f"offset {offset} holds another record in the archive than in the local log",
                        where=f"{archive.store.url}{archive.layout.manifest_folder}",
                        hint="these are two histories: give this broker a bucket or a prefix of its own, or delete "
                        "the topic here and `tierlog archive restore` it",
                    )
            at = until
    finally:
        await reader.close()


async def _local_records(archive: PartitionArchive, start: int, end: int) -> dict[int, Record]:
    partition_log = archive.partition.log
    found: dict[int, Record] = {}
    at = start
    while at < end:
        located = partition_log.locate(at, _COMPARE_BYTES, end)
        if located is None:
            break
        records = decode_records(await partition_log.read(located))
        found |= {each.offset: each for each in records if start <= each.offset < end}
        at = max([at + 1, *(each.offset + 1 for each in records)])
    return found


def _same(one: Record, other: Record) -> bool:
    return (one.timestamp, one.key, one.value, one.headers) == (other.timestamp, other.key, other.value, other.headers)


def _not_stopped(archive: PartitionArchive, why: str) -> ArchiveNotStopped:
    return ArchiveNotStopped(
        f"there is nothing to decide: {why}",
        where=str(archive.partition.tp),
        hint="`tierlog archive status` says what is wrong, if anything is",
    )


def _versions(snapshot: Snapshot) -> dict[str, int]:
    return {"leader_epoch": snapshot.version.leader_epoch, "sequence": snapshot.version.sequence}
