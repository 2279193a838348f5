"""A bucket that goes back in every way, at every step of archiving, in an order drawn from a seed.

The books are kept apart from the service: what was sent, and which offsets some object or the local disk still has. Of
whatever the broker does (a harm to the bucket is not its doing), this must hold:

- no offset loses its last copy, but what was deleted on purpose or given up by name;
- a read gives the record that was sent, or an error; never another, and it passes over nothing that was not given up;
- while the archive is stopped, nothing is published and nothing goes from the local disk;
- once what is missing is taken up or given up, archiving goes on.

A failing seed prints what it did. `TIERLOG_MODEL_SEEDS=200` tries more.
"""

import os
import random
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cold_tier.cache import ColdReadSettings
from cold_tier.errors import RecordsMissing
from cold_tier.format.index import read_index
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Reader
from hot_tier.errors import TierlogError
from hot_tier.record.records import decode_records
from offloader import failpoints
from offloader.settings import OffloadSettings
from tests.offloader.harness import Archived, Clock, archived_node
from tests.offloader.test_offloader import DROPPING, HOUR, without_worker

SEEDS = int(os.environ.get("TIERLOG_MODEL_SEEDS", "4"))
STEPS = 40
SETTINGS = OffloadSettings(orphan_age_ms=0, delete_grace_ms=HOUR, garbage_check_ms=0, manifest_history_ms=3 * HOUR)
PLACES = [place for place in failpoints.PLACES if place.split(".")[0] in ("archive", "retention", "garbage")]


class Model:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.clock = Clock()
        self.clock.now_ms = 4_000_000_000_000  # Later than every object's time: all ages are reached.
        self.did: list[str] = []
        self.sent: dict[int, bytes] = {}
        self.given_up: set[int] = set()
        self.markers: set[int] = set()
        self.epoch = 0
        self.copies = 0
        self.armed: tuple[str, int, bool] | None = None
        self.harmed = False
        """The bucket was harmed within the step that is being checked."""
        self.node: Archived
        self.running = AsyncExitStack()

    # What is done

    async def start(self) -> None:
        node = archived_node(str(self.folder), SETTINGS, DROPPING, clock=self.clock)
        self.node = await self.running.enter_async_context(node)
        without_worker(self.node, self.folder)

    async def restart(self) -> None:
        await self.running.aclose()
        await self.start()

    async def produce(self) -> None:
        first = self.node.partition.log.log_end_offset
        await self.node.produce(self.random.choice([5, 20, 40]))
        for offset, record in enumerate(self.node.sent[-(self.node.partition.log.log_end_offset - first) :], first):
            self.sent[offset] = record.value

    async def transact(self) -> None:
        """One that is aborted, one that is committed. Their batches are their markers are in no row."""
        for producer in (1, 2):
            self.epoch += 1
            first = self.node.partition.log.log_end_offset
            await self.node.transaction(
                [5, self.random.choice([1, 30])], commit=producer == 1, producer_id=producer, epoch=self.epoch
            )
            end = self.node.partition.log.log_end_offset
            for offset, record in enumerate(self.node.sent[first - end + 1 :], first):
                self.sent[offset] = record.value
            self.markers.add(end - 1)

    async def rounds(self) -> None:
        for _ in range(self.random.choice([1, 3, 8])):
            self.clock.now_ms += self.random.choice([1000, HOUR])
            await self.node.offloader.round()

    async def collect(self) -> None:
        await self.node.offloader.collect_garbage()

    async def delete_records(self) -> None:
        partition = self.node.partition
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        if end > start + 20:
            partition.delete_records_before(self.random.randrange(start, start + 20))

    async def copy(self) -> None:
        shutil.copytree(self.folder / "bucket", self.folder / f"copy-{self.copies}")
        self.copies += 1

    async def harm(self) -> None:
        self.go_back()

    async def arm(self) -> None:
        self.armed = self.random.choice(PLACES), self.random.choice([1, 1, 2]), self.random.random() < 0.5

    async def decide(self) -> None:
        archive = next(iter(self.node.offloader), None)
        if archive is None or archive.stopped is None:
            return
        try:
            await self.node.offloader.repair(archive, "recover")
        except RecordsMissing:
            if self.random.random() < 0.5:
                return
            missing = {offset for offset in self.readable() if offset not in self.copied()}
            repaired = await self.node.offloader.repair(archive, "accept-loss")
            lost = {offset for start, end in repaired.lost for offset in range(start, end)}
            assert lost >= missing, "what is gone is said to be"
            assert not lost & self.copied(), "only what is gone is given up"
            self.given_up |= lost

    def reach(self, place: str) -> None:
        """In the place of a failpoint: the bucket goes back right here, and sometimes the step fails too."""
        if self.armed is None or self.armed[0] != place:
            return
        _, left, fails = self.armed
        self.armed = (place, left - 1, fails) if left > 1 else None
        if left == 1:
            self.go_back()
            if fails:
                raise OSError(f"failed at {place}")

    def go_back(self) -> None:
        bucket = self.folder / "bucket"
        manifests = bucket / self.node.layout.manifest_folder
        copy = self.folder / f"copy-{self.random.randrange(self.copies)}" if self.copies else None
        kinds = ["newest", "all manifests"] + (["manifests", "everything"] * 3 if copy is not None else [])
        kind = self.random.choice([*kinds, "emptied"])
        self.did.append(f"the bucket goes back: {kind}")
        self.harmed = True
        if kind == "newest":
            for path in sorted(manifests.glob("*"))[: self.random.choice([1, 1, 3])]:
                path.unlink()
        elif kind == "emptied":
            shutil.rmtree(bucket)
            os.mkdir(bucket)
        elif kind == "everything":
            shutil.rmtree(bucket)
            shutil.copytree(copy, bucket)
        else:
            shutil.rmtree(manifests, ignore_errors=True)
            if kind == "manifests" and (copy / self.node.layout.manifest_folder).exists():
                shutil.copytree(copy / self.node.layout.manifest_folder, manifests)

    # What must hold

    def readable(self) -> range:
        return range(self.node.partition.log.log_start_offset, self.node.partition.log.log_end_offset)

    def copied(self) -> set[int]:
        """Offsets of which there is a copy somewhere."""
        log, layout, bucket = self.node.partition.log, self.node.layout, self.folder / "bucket"
        found = set(range(log.local_log_start_offset, log.log_end_offset))
        for path in (bucket / layout.index_folder).glob("*.index"):
            index = read_index(path.read_bytes(), str(path))
            rows = bucket / layout.rows_folder / path.name.replace(".index", ".parquet")
            there = rows.exists() and rows.stat().st_size == index.rows_bytes
            if index.aside is not None:
                aside = bucket / layout.aside_folder / path.name.replace(".index", ".aside")
                there = there and aside.exists() and aside.stat().st_size == index.aside.entry.size
            if there and (index.row_groups or index.aside):
                found |= set(range(index.base_offset, index.end_offset))
        return found

    async def check_reads(self) -> None:
        cold = ColdReader(self.node.store, ColdReadSettings())
        reader = Reader(Archive(self.node.catalog, cold))
        at, end = self.readable().start, self.node.partition.high_watermark
        while at < end:
            try:
                fetched = await reader.read(self.node.partition, at, 1 << 20, 0)
            except TierlogError:
                at += 1
                continue
            records = [record for record in decode_records(fetched.records) if record.offset >= at]
            for record in records:
                passed = set(range(at, record.offset)) - self.given_up - self.markers
                assert not passed, f"a read at {at} passed over {sorted(passed)}"
                assert record.value == self.sent[record.offset], record.offset
                at = record.offset + 1
            if not records:
                assert at in self.given_up | self.markers, f"nothing at {at}, and no error"
                at += 1
        await cold.close()

    async def run(self) -> None:
        await self.start()
        steps = (
            [self.produce, self.produce, self.transact, self.transact]
            + [self.rounds] * 6
            + [self.copy, self.arm, self.restart, self.decide] * 2
        )
        steps += [self.harm, self.collect, self.delete_records]
        await self.produce()
        for _ in range(STEPS):
            step = self.random.choice(steps)
            self.did.append(step.__name__)
            self.harmed = False
            had, local = self.copied(), self.node.partition.log.local_log_start_offset
            stopped = any(archive.stopped is not None for archive in self.node.offloader)
            manifests = set(os.listdir(self.manifests)) if self.manifests.exists() else set()
            await step()
            if not self.harmed and step != self.decide:
                gone = {offset for offset in self.readable() if offset in had and offset not in self.copied()}
                assert not gone, f"the only copy of {sorted(gone)} is gone"
                if stopped and step != self.restart and all(each.stopped for each in self.node.offloader):
                    assert self.node.partition.log.local_log_start_offset == local
                    now = set(os.listdir(self.manifests)) if self.manifests.exists() else set()
                    assert now <= manifests, "published while it is stopped"
            await self.check_reads()
        await self.end()

    @property
    def manifests(self) -> Path:
        return self.folder / "bucket" / self.node.layout.manifest_folder

    async def end(self) -> None:
        """With everything given up that is gone, archiving goes on to the end."""
        self.armed = None
        self.did.append("end")
        for _ in range(4):
            self.clock.now_ms += HOUR
            await self.node.offloader.round()
        [archive] = self.node.offloader
        if archive.stopped is not None:
            lost = (await self.node.offloader.repair(archive, "accept-loss")).lost
            self.given_up |= {offset for start, end in lost for offset in range(start, end)}
        await self.produce()
        for _ in range(20):
            self.clock.now_ms += HOUR
            await self.node.offloader.round()
        assert archive.stopped is None and archive.backlog_bytes == 0, archive.last_failure
        await self.check_reads()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_bucket_that_goes_back_at_any_time(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(tmp_path, seed)
    monkeypatch.setattr(failpoints, "reach", model.reach)
    try:
        await model.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {model.did}")
        raise
    finally:
        await model.running.aclose()
