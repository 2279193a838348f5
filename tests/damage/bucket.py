"""One object of the bucket is harmed. Readers, a restore and the broker's own upkeep then work on it.

Whatever the broker did meanwhile, no record is lost: once the object is whole again, all of them are there.
"""

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from cold_tier import pins, proposals
from cold_tier.cache import ColdReadSettings
from cold_tier.manifest.replacement import Proposal, Replacement
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.open import StoreSettings
from cold_tier.reader import ColdReader
from cold_tier.rewrite import Rewrite, rewrite
from gateway.fetch.reader import Archive, Isolation, Reader
from hot_tier.errors import TierlogError
from hot_tier.log.settings import LogSettings
from hot_tier.log.visibility import without_aborted
from offloader.settings import OffloadSettings
from tests.damage.harms import Target, do
from tests.damage.model import Model, Wrong, read_batches
from tests.damage.source import as_sent
from tests.damage.table import KILL, LIVE, Case
from tests.offloader.harness import TOPIC, Archived, Clock, archived_node
from tierlog.restore import restore_offline
from tierlog.settings import Settings

PROPOSAL, PIN = ".proposal", "pins/*.json"
SETTINGS = OffloadSettings(orphan_age_ms=0, delete_grace_ms=0, garbage_check_ms=0)
DROPPING = {"retention.ms": "-1", "local.retention.ms": "1"}
HOUR_MS = 3_600_000


@dataclass
class Template:
    """A broker's directory and its bucket, most records in the bucket alone."""

    folder: tempfile.TemporaryDirectory[str]
    model: Model
    committed: set[int]
    """Offsets of the records that nobody aborted."""
    now_ms: int


_templates: list[Template] = []


async def _template() -> Template:
    if not _templates:
        folder = tempfile.TemporaryDirectory()
        clock = Clock()
        # Later than every object's time: upkeep finds all of them old enough to go, if it takes them for garbage.
        clock.now_ms = 4_000_000_000_000
        small_pages = patch.object(ManifestWriter, "open", partial(ManifestWriter.open, page_segments=3))
        with small_pages:
            async with archived_node(folder.name, SETTINGS, DROPPING, clock=clock) as node:
                aborted: set[int] = set()
                for epoch in range(3):
                    await node.produce(20)
                    begin = node.partition.log.log_end_offset
                    await node.transaction([5, 8], commit=False, epoch=2 * epoch)
                    aborted.update(range(begin, node.partition.log.log_end_offset))
                    await node.transaction([4], commit=True, epoch=2 * epoch + 1)
                    await node.produce(20)
                    await node.settle()
                    clock.now_ms += HOUR_MS
                await node.offloader.round()
                assert node.partition.log.local_log_start_offset > 60
                assert len(node.catalog.get(node.layout).snapshot.pages) > 1
                await _propose(node, folder.name)
                for name in ("job", "other"):
                    await pins.place(node.store, TOPIC, node.layout.topic_id, name, clock.now_ms, 10**12)
                model = as_sent(node)
                _templates.append(Template(folder, model, model.records.keys() - aborted, clock.now_ms))
    return _templates[0]


async def _propose(node: Archived, folder: str) -> None:
    """Two neighbours as one, twice."""
    manifest = node.catalog.get(node.layout)
    found = [segment async for segment in manifest.segments(0, manifest.snapshot.end_offset)]
    for old in (tuple(found[:2]), tuple(found[2:4])):
        store = StoreSettings(bucket=f"file://{folder}/bucket")
        new = await asyncio.to_thread(rewrite, store, Rewrite(node.layout, old))
        replacement = Replacement(tuple(segment.name for segment in old), (new,))
        await proposals.place(node.store, Proposal(node.layout, node.clock(), (replacement,)))


def leave_out(case: Case, bucket: Path) -> None:
    """Pins keep upkeep from deleting anything, and proposals have it publish: both are there where they are harmed."""
    for kind in (PROPOSAL, PIN):
        if case.file != kind:
            for path in bucket.rglob(_pattern(kind)):
                path.unlink()


def _pattern(file: str) -> str:
    return f"*{file}" if file.startswith(".") else file


def target(case: Case, bucket: Path) -> Target:
    chance = random.Random(case.seed)
    objects = sorted(bucket.rglob(_pattern(case.file)))
    # Old manifests matter to nobody, so that half of the time it is the newest, which is the first by name.
    victim = objects[0] if case.file == ".manifest" and chance.random() < 0.5 else chance.choice(objects)
    others = [each for each in objects if each != victim] or [victim]
    # Manifests are named from the newest to the oldest, everything else by its first offset.
    return Target(victim, chance, others, others[-1] if case.file == ".manifest" else others[0])


@asynccontextmanager
async def reading(folder: Path, now_ms: int) -> AsyncIterator[Archived]:
    clock = Clock()
    clock.now_ms = now_ms
    async with archived_node(str(folder), SETTINGS, DROPPING, clock=clock) as node:
        cold = ColdReader(node.store, ColdReadSettings(memory_bytes=2000), f"{folder}/cache")
        node.running.node.reader = Reader(Archive(node.catalog, cold))
        try:
            yield node
        finally:
            await cold.close()


async def check_reads(node: Archived, template: Template, end: int, *, whole: bool = False) -> int:
    reader, partition = node.running.node.reader, node.partition

    async def fetch(offset: int) -> bytes | bytearray | memoryview:
        # Readers of committed records need none of what is aside: the others may get an error where they do not.
        fetched = await reader.read(partition, offset, 600, Isolation.READ_COMMITTED)
        visible, _ = read_batches(without_aborted(fetched.records, fetched.aborted), offset)
        to = read_batches(fetched.records, offset)[1] if len(fetched.records) else end
        seen = {record.offset for _, records in visible for record in records if record.offset < to}
        wrong = seen ^ {at for at in template.committed if offset <= at < to}
        if wrong:
            raise Wrong(f"from {offset} to {to}: aborted and seen, or committed and not: {sorted(wrong)}")
        return (await reader.read(partition, offset, 600, Isolation.READ_UNCOMMITTED)).records

    return await template.model.check(fetch, end, starts=range(0, end, 7), on=lambda start: start % 5 == 0, whole=whole)


async def check_restore(folder: Path, template: Template) -> None:
    """A new node from the bucket alone: all that was archived, up to some offset, or an error."""
    second = folder / "second"
    shutil.copytree(folder / "bucket", second / "bucket")
    store = StoreSettings(bucket=f"file://{second}/bucket")
    settings = Settings(log=LogSettings(data_dir=str(second / "node"), min_free_bytes=0), store=store)
    try:
        restored = [topic async for topic in restore_offline(settings, (TOPIC,), {})]
    except TierlogError:
        return
    if not restored:
        raise Wrong("nothing was restored, without an error")
    async with reading(second, template.now_ms) as node:
        if node.partition.log.config.retention_ms >= 0:
            raise Wrong(f"restored with retention.ms {node.partition.log.config.retention_ms}")
        await node.offloader.round()
        await check_reads(node, template, node.partition.high_watermark)


async def run(case: Case, folder: Path) -> str:
    template = await _template()
    end = max(template.model.records) + 1
    shutil.copytree(template.folder.name, folder)
    bucket = folder / "bucket"
    leave_out(case, bucket)
    whole: dict[Path, bytes] = {}

    def harm() -> bool:
        whole.update({path: path.read_bytes() for path in bucket.rglob(_pattern(case.file))})
        return do(case.harm, target(case, bucket))

    errors = 0
    if case.moment == KILL:
        (folder / "node" / "clean-shutdown").unlink()
    if case.moment != LIVE and not harm():
        return "nothing changed"
    async with reading(folder, template.now_ms) as node:
        if case.moment == LIVE:
            if case.file != PROPOSAL:  # A round would answer it.
                await node.offloader.round()
                await check_reads(node, template, 30, whole=True)
            if not harm():
                return "nothing changed"
        for _ in range(2):
            node.clock.now_ms += HOUR_MS
            await node.offloader.round()
            for archive in node.offloader:
                answered = await node.offloader.consider_proposals(archive)
                errors += sum(each.outcome == "refused" for each in answered)
            await node.offloader.collect_garbage()
            errors += await check_reads(node, template, end)
        if case.file == PIN and list(bucket.rglob(PIN)):
            [archive] = node.offloader
            if not await archive.pinned(node.clock.now_ms):
                raise Wrong("a pin that is damaged does not hold")
            errors += not archive.pins
    await check_restore(folder, template)
    for path, content in whole.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    async with reading(folder, template.now_ms) as node:
        await node.offloader.round()
        await check_reads(node, template, end, whole=True)
    return "errors" if errors else "right"
