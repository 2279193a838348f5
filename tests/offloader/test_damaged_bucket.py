"""One object of the bucket is harmed. Readers, a restore and the broker's own upkeep then work on it.

Whoever reads gets the records that were sent, or an error: never another record, and nothing is left out without one.
Whatever the broker did meanwhile, no record is lost: once the object is whole again, all of them are there.
"""

import asyncio
import os
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cold_tier.cache import ColdReadSettings
from cold_tier.objects.open import StoreSettings
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Isolation, Reader
from hot_tier.errors import TierlogError
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import iter_headers
from hot_tier.record.records import Record, decode_records
from offloader.settings import OffloadSettings
from tests.offloader.harness import TOPIC, Archived, Clock, archived_node
from tierlog.restore import restore_offline
from tierlog.settings import Settings

KINDS = (".parquet", ".index", ".manifest", ".json")
HARMS = (
    *("a bit of the first bytes", "a bit of the last bytes", "a bit", "some bytes", "cut", "emptied", "longer"),
    *("removed", "swapped", "an older one"),
)
MOMENTS = ("live", "restart")
SEED = 20_261_116
FEW = 20
EVERY = 2
"""How often each case of the long run is drawn anew."""
SETTINGS = OffloadSettings(orphan_age_ms=0, delete_grace_ms=0, garbage_check_ms=0)
DROPPING = {"retention.ms": "-1", "local.retention.ms": "1"}
HOUR_MS = 3_600_000


class Wrong(AssertionError):
    """A reader was given something else than what was sent, or not told that something is missing."""


@dataclass(frozen=True)
class Case:
    kind: str
    harm: str
    moment: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.harm}, {self.moment}, seed {self.seed}"


CASES = [(kind, harm, moment) for kind in KINDS for harm in HARMS for moment in MOMENTS]


@dataclass
class Template:
    """A broker's directory and its bucket, most records in the bucket alone."""

    folder: Path
    sent: list[Record]
    now_ms: int


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder = tmp_path_factory.mktemp("whole")

    async def make() -> Template:
        clock = Clock()
        # Later than every object's time: upkeep finds all of them old enough to go, if it takes them for garbage.
        clock.now_ms = 4_000_000_000_000
        async with archived_node(str(folder), SETTINGS, DROPPING, clock=clock) as node:
            for _ in range(3):
                await node.produce(40)
                await node.settle()
                clock.now_ms += HOUR_MS
            await node.offloader.round()
            assert node.partition.log.local_log_start_offset > 60
            return Template(folder, at_offsets(node.sent), clock.now_ms)

    return asyncio.run(make())


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine runs on in all of these cases, and syncing is most of their time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


def at_offsets(sent: list[Record]) -> list[Record]:
    return [record._replace(offset=offset) for offset, record in enumerate(sent)]


def harm(bucket: Path, case: Case) -> dict[Path, bytes]:
    """Does it to an object of the kind, chosen by the seed. Returns what it was, so that it can be undone."""
    chance = random.Random(str(case))
    objects = sorted(bucket.rglob(f"*{case.kind}"))
    # Old manifests matter to nobody, so that half of the time it is the newest, which is the first by name.
    victim = objects[0] if case.kind == ".manifest" and chance.random() < 0.5 else chance.choice(objects)
    before = {victim: victim.read_bytes()}
    content = bytearray(before[victim])
    if case.harm in ("a bit of the first bytes", "a bit of the last bytes", "a bit"):
        span = {"a bit of the first bytes": (0, 64), "a bit of the last bytes": (-64, 0), "a bit": (0, len(content))}
        start, end = span[case.harm]
        at = chance.randrange(max(start + len(content) if start < 0 else 0, 0), min(end or len(content), len(content)))
        content[at] ^= 1 << chance.randrange(8)
    elif case.harm == "some bytes":
        at = chance.randrange(len(content))
        content[at : at + 16] = chance.randbytes(len(content[at : at + 16]))
    elif case.harm == "cut":
        del content[chance.randrange(len(content)) :]
    elif case.harm == "emptied":
        content.clear()
    elif case.harm == "longer":
        content += b"\0"
    elif case.harm == "removed":
        victim.unlink()
        return before
    else:
        others = [each for each in objects if each != victim]
        if not others:
            return {}
        # Manifests are named from the newest to the oldest, everything else by its first offset.
        older = others[-1] if case.kind == ".manifest" else others[0]
        other = older if case.harm == "an older one" else chance.choice(others)
        if case.harm == "swapped":
            before[other] = other.read_bytes()
            other.write_bytes(content)
        content = bytearray(before.get(other) or other.read_bytes())
    victim.write_bytes(content)
    return before


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


async def check_reads(node: Archived, sent: list[Record], whole: bool = False) -> int:
    """Reads on from many offsets. Returns how many reads ended in an error."""
    partition, reader = node.partition, node.running.node.reader
    errors = 0
    for start in range(0, len(sent), 7):
        offset = start
        try:
            while offset < len(sent):
                fetched = await reader.read(partition, offset, 600, Isolation.READ_COMMITTED)
                ends = [header.end_offset for _, header in iter_headers(fetched.records)]
                if not ends:
                    raise Wrong(f"offset {offset}: nothing, and no error")
                found = decode_records(fetched.records, from_offset=offset)
                if found != sent[offset : ends[-1]]:
                    raise Wrong(f"read from {offset}: {found[:3]} instead of {sent[offset : offset + 3]}")
                offset = ends[-1]
        except TierlogError as error:
            if whole:
                raise Wrong(f"offset {offset} is lost: {error}") from error
            errors += 1
    return errors


async def check_restore(folder: Path, sent: list[Record], now_ms: int) -> None:
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
    async with reading(second, now_ms) as node:
        await node.offloader.round()
        await check_reads(node, sent[: node.partition.high_watermark])


async def run(case: Case, template: Template, folder: Path) -> str:
    shutil.copytree(template.folder, folder)
    bucket, now_ms = folder / "bucket", template.now_ms
    errors = 0
    if case.moment == "restart":
        before = harm(bucket, case)
    async with reading(folder, now_ms) as node:
        if case.moment == "live":
            await node.offloader.round()
            await check_reads(node, template.sent[:30], whole=True)
            before = harm(bucket, case)
        for _ in range(2):
            node.clock.now_ms += HOUR_MS
            await node.offloader.round()
            await node.offloader.collect_garbage()
            errors += await check_reads(node, template.sent)
    await check_restore(folder, template.sent, now_ms)
    for path, content in before.items():
        path.write_bytes(content)
    async with reading(folder, now_ms) as node:
        await node.offloader.round()
        await check_reads(node, template.sent, whole=True)
    return "errors" if errors else "right"


def run_all(cases: list[Case], template: Template, folder: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for number, case in enumerate(cases):
        try:
            outcomes[asyncio.run(run(case, template, folder / str(number)))] += 1
        except Wrong as error:
            wrong.append(f"{case}: {error}")
        finally:
            shutil.rmtree(folder / str(number), ignore_errors=True)
    assert not wrong, "\n".join([f"{len(wrong)} of {len(cases)} readers were deceived", *wrong[:40]])
    return outcomes


def test_some_of_it(template: Template, tmp_path: Path) -> None:
    chosen = random.Random(SEED).sample(CASES, FEW)
    outcomes = run_all([Case(*each, SEED) for each in chosen], template, tmp_path)
    assert outcomes["errors"] > FEW // 4


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(EVERY))
def test_all_of_it(template: Template, tmp_path: Path, seed: int) -> None:
    outcomes = run_all([Case(*each, seed) for each in CASES], template, tmp_path)
    assert outcomes["errors"] > len(CASES) // 4
