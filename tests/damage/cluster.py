"""Three replicas, one with a harmed file: what is wrong there never gets to another, and it is mended from them.

The harmed broker is the leader or a follower. It runs on, or it is stopped or killed, harmed and started again. Its log
is read, compacted again where it is a compacted one, and mended. The other two must be whole all the time.
"""

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway.fetch.reader import Isolation, Reader
from gateway.kafka.segment_client import copy_batches
from hot_tier.errors import CorruptLog, OffsetNotAvailable, TierlogError
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.proof import prove_segment
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.mender import PAUSE_S, Mender
from tests.damage.harms import do
from tests.damage.model import Model, Wrong
from tests.damage.one_log import everything, target
from tests.damage.table import COMPACTED, KILL, LIVE, Case
from tests.gateway.kafka.members import REPLICATION, Member, Members, members
from tests.gateway.kafka.node import now_ms
from tests.support.waiting import until

NODES: Final = (1, 2, 3)
BATCHES: Final = 20
ROUNDS: Final = 200
PATIENT: Final = replace(REPLICATION, lag_time_max_ms=8_000)
"""A slow machine takes no follower out of the in-sync replicas."""
DEADLINE_S: Final = 60
"""Far longer than that: a follower whose log has failed is in sync until then, and commits wait for it."""


class Replicated:
    def __init__(self, cluster: Members, case: Case, folder: Path) -> None:
        self.cluster = cluster
        self.case = case
        self.folder = folder
        self.harmed = 1 + case.seed % 2
        self.others = [node for node in NODES if node != self.harmed]
        self.model = Model()
        self.numbers = iter(range(1000))

    @property
    def leader(self) -> Member:
        return self.cluster[self.cluster.state().leader]

    async def put(self) -> None:
        number = next(self.numbers)
        records = [NewRecord(now_ms(), b"key %d" % (number % 3), b"value %d" % number * 20)]
        records.append(NewRecord(now_ms(), b"other %d" % number, b"x"))
        batch = encode_records(records)
        end = self.leader.partition().append(batch, read_header(batch), now_ms()).end_offset
        committed = self.leader.partition().when_committed(end)
        if committed is not None:
            async with asyncio.timeout(DEADLINE_S):
                await committed

    async def write(self) -> None:
        """The same segments everywhere. Compacted, the third replica may have done it at another time."""
        for _ in range(BATCHES):
            await self.put()
        end = self.leader.log().log_end_offset
        self.model.note(await everything(self.leader.log()))
        self.model.acked_end = end
        await until(lambda: all(self.cluster[node].log().committed_offset == end for node in NODES), DEADLINE_S)
        for node in NODES:
            log = self.cluster[node].log()
            log.flush()
            if self.case.shape == COMPACTED and not (node == NODES[-1] and self.case.seed % 3 == 0):
                await self.cluster[node].logs.compactor.compact(log)
        shutil.copytree(self.directory(self.others[0]), self.folder / "older")
        for _ in range(2):
            await self.put()
        self.model.note(await everything(self.leader.log(), end))
        await self.cluster.copied(end + 4)

    def directory(self, node: int) -> Path:
        return self.folder / "members" / f"node-{node}"

    async def harm(self) -> bool:
        """False where that changes nothing."""
        directory = self.directory(self.harmed)
        if self.case.moment == KILL:
            shutil.copytree(directory, self.folder / "killed")
        if self.case.moment != LIVE:
            await self.cluster.stop(self.harmed)
            if self.cluster.state().leader == self.harmed:
                await self.cluster.elect(self.others[0], tuple(self.others))
        if self.case.moment == KILL:
            shutil.rmtree(directory)
            os.rename(self.folder / "killed", directory)
        return do(self.case.harm, target(self.case, directory, self.folder / "older"))

    async def check(self, node: int, *, whole: bool) -> int:
        member, end = self.cluster[node], self.model.acked_end

        async def fetch(offset: int) -> bytes | bytearray | memoryview:
            partition = member.table.readable("t", 0)
            if offset >= partition.high_watermark:
                raise OffsetNotAvailable("it has not come here yet")
            return (await Reader().read(partition, offset, 300, Isolation.READ_UNCOMMITTED)).records

        if whole:
            await until(lambda: member.table.readable("t", 0).high_watermark >= end, DEADLINE_S)
        must = self.model.latest() if self.case.shape == COMPACTED else None
        return await self.model.check(fetch, end, must=must, starts=range(0, end, 3), whole=whole)

    async def mended(self, log: PartitionLog) -> bool:
        """Whether the mender, or following the leader anew, made the log whole."""
        now_s = 0.0
        member = self.cluster[self.harmed]
        mender = Mender(member.table, member.image, member.node_id, copy_batches, lambda: now_s)
        if self.case.moment == LIVE:
            _prove(log)
        for _ in range(ROUNDS):
            await mender.round()
            now_s += PAUSE_S[1]
            whole = not log.known_damage() and log.log_end_offset >= self.model.acked_end
            if whole and not await self.check(self.harmed, whole=False):
                return True
            await asyncio.sleep(0.01)
        return False


async def run(case: Case, folder: Path) -> str:
    """What came of it: "right" (nobody noticed), "mended", "left" (a compacted log of which nobody has the same copy),
    "failed" or "refused" (it takes no more writes, or does not start: the others go on)."""
    (folder / "members").mkdir(parents=True)
    async with members(folder / "members", *NODES, settings=PATIENT) as cluster:
        config = {"min.insync.replicas": "2", "segment.bytes": "1024"}
        if case.shape == COMPACTED:
            config |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        await cluster.create(*NODES, **config)
        replicated = Replicated(cluster, case, folder)
        await replicated.write()
        if not await replicated.harm():
            return "nothing changed"
        if case.moment != LIVE:
            try:
                await cluster.start(replicated.harmed)
            except TierlogError:
                return await _without(replicated, "refused")
        log = cluster[replicated.harmed].log()
        await until(lambda: log.failure is not None or log.log_end_offset >= replicated.model.acked_end, DEADLINE_S)
        compacts_first = case.seed % 5 < 2
        errors = 0 if compacts_first else await replicated.check(replicated.harmed, whole=False)
        if case.shape == COMPACTED:
            await cluster[replicated.harmed].logs.compactor.compact(log)
        errors += bool(log.known_damage()) + await replicated.check(replicated.harmed, whole=False)
        _seal(log)
        if log.failure is not None:
            return await _without(replicated, "failed")
        if not await replicated.mended(log):
            if case.shape != COMPACTED:
                raise Wrong(f"not mended: {log.known_damage()}, failure {log.failure}")
            return await _without(replicated, "left")
        await _goes_on(replicated, NODES)
        return "mended" if errors else "right"


def _prove(log: PartitionLog) -> None:
    """As the archive does. Bits of a record that flip under the process that wrote it are found by nobody else but
    clients, by the CRC."""
    for info in log.sealed_segments():
        try:
            prove_segment(info.path, info.contents)
        except CorruptLog as error:
            log.note_damage(info, str(error))


def _seal(log: PartitionLog) -> None:
    """The mender takes sealed segments."""
    try:
        log.roll(now_ms())
        log.flush()
    except TierlogError:
        pass


async def _without(replicated: Replicated, outcome: str) -> str:
    await _goes_on(replicated, replicated.others)
    return outcome


async def _goes_on(replicated: Replicated, nodes) -> None:
    """All of `nodes` are whole, and take new records."""
    for node in nodes:
        await replicated.check(node, whole=True)
    leader = replicated.leader
    if leader.node_id == replicated.harmed and replicated.harmed not in nodes:
        await until(lambda: replicated.cluster.state().leader in nodes, DEADLINE_S)
    await replicated.put()
    end = replicated.leader.log().log_end_offset
    await until(lambda: all(replicated.cluster[node].log().log_end_offset >= end for node in nodes), DEADLINE_S)
