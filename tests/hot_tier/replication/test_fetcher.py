"""When a follower asks, what it names, and which answers it believes. The test is the leader, answer by answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from hot_tier.cluster import model
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo, PartitionState, Topic
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import Put
from hot_tier.errors import NotLeader, OffsetArchived, StaleBrokerEpoch
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from hot_tier.log.stored_log import StoredLog
from hot_tier.record.batch import assign
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.fetchers import Fetchers
from hot_tier.replication.following import FetchAnswer, FetchFrom
from hot_tier.replication.link import LinkListener, PartitionKey
from hot_tier.replication.replica import Replica
from hot_tier.replication.settings import ReplicationSettings

ME, LEADER = NodeId(1), NodeId(2)
TOPIC = Topic("t", UUID(int=7), 9, 2, {}, 0)


def batch(offset: int, epoch: int = 0) -> bytes:
    made = encode_records([NewRecord(1, None, b"v%d" % offset)])
    assign(made, offset, epoch)
    return bytes(made)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


@dataclass
class Link:
    """What was sent, and a listener to answer to."""

    listener: LinkListener
    sent: list[tuple[dict[int, int], set[int]]] = field(default_factory=list)
    """Of each request, the position of each partition that it names, and the partitions that it forgets."""
    closed: bool = False

    def send(self, asked: Mapping[PartitionKey, FetchFrom], forgotten: Iterable[PartitionKey]) -> int:
        self.sent.append(
            ({key[1]: int(start.offset) for key, start in asked.items()}, {partition for _, partition in forgotten})
        )
        return len(self.sent)

    def close(self) -> None:
        self.closed = True

    def answer(self, number: int, **answers: FetchAnswer) -> None:
        """`p0=…` for partition 0."""
        self.listener.answered(number, [((TOPIC.id, int(name[1:])), answer) for name, answer in answers.items()])


class Following:
    def __init__(self, directory: str, image: ClusterImage, config: TopicConfig, **parts: object) -> None:
        self.links: list[Link] = []
        self.suspected: list[int] = []
        self.config = config
        self.disk = Disk(directory, LogSettings(min_free_bytes=0))
        self.wants_flush: list[StoredLog] = []
        self.fetchers = Fetchers(
            image,
            self._connect,
            ReplicationSettings(),
            suspect=self.suspected.append,
            **parts,  # type: ignore[arg-type]
        )
        self.fetchers.start()

    async def _connect(self, broker: BrokerInfo, name: str, listener: LinkListener) -> Link:
        self.links.append(Link(listener))
        return self.links[-1]

    def replica(self, index: int, epoch: int = 0, adding: bool = False) -> Replica:
        tp = TopicPartition("t", PartitionId(index))
        log = PartitionLog(self.disk, tp, TOPIC.id, self.config)
        log.request_flush = self.wants_flush.append
        return self.again(log, epoch, adding)

    def again(self, log: PartitionLog, epoch: int, adding: bool = False) -> Replica:
        both = (LEADER, ME)
        state = PartitionState(LEADER, LeaderEpoch(epoch), both, both, adding=(ME,) if adding else ())
        return Replica(log.tp, TOPIC, log, state, ME)

    async def link(self, sent: int) -> Link:
        """The link as it is after so many requests."""
        await until(lambda: self.links and len(self.links[-1].sent) >= sent)
        assert len(self.links[-1].sent) == sent
        return self.links[-1]


@asynccontextmanager
async def following(tmp_path: Path, flush: str = "os", **parts: object) -> AsyncIterator[Following]:
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    await store.transact([], [Put(model.broker_key(LEADER), model.encode(BrokerInfo(LEADER, "127.0.0.1", 1)))])
    image = ClusterImage(store)
    await image.open()
    made = Following(str(tmp_path), image, TopicConfig(flush=flush), **parts)  # type: ignore[arg-type]
    yield made
    await made.fetchers.close()
    await image.close()
    await store.close()
    made.disk.close()


async def test_all_are_named_once_and_then_what_moved(tmp_path: Path) -> None:
    async with following(tmp_path) as f:
        zero, one = f.replica(0), f.replica(1)
        f.fetchers.follow(zero)
        f.fetchers.follow(one)
        link = await f.link(1)
        assert link.sent[0] == ({0: 0, 1: 0}, set())
        link.answer(1, p0=FetchAnswer(records=batch(0), high_watermark=Offset(0)))
        await f.link(2)
        assert link.sent[1] == ({0: 1}, set())
        link.answer(2, p0=FetchAnswer(high_watermark=Offset(1)))
        await f.link(3)
        assert link.sent[2] == ({}, set()), "a high watermark leaves the position as it is"
        assert (zero.high_watermark, zero.log.log_end_offset, one.log.log_end_offset) == (1, 1, 0)


async def test_a_position_is_told_when_it_is_synced_and_others_do_not_wait_for_it(tmp_path: Path) -> None:
    async with following(tmp_path, flush="commit") as f:
        zero, one = f.replica(0), f.replica(1)
        f.fetchers.follow(zero)
        f.fetchers.follow(one)
        link = await f.link(1)
        link.answer(1, p0=FetchAnswer(records=batch(0)), p1=FetchAnswer(records=batch(0)))
        assert f.wants_flush == [zero.log, one.log]
        one.log.flush()
        await f.link(2)
        assert link.sent[1] == ({1: 1}, set())
        zero.log.flush()
        await f.link(3)
        assert link.sent[2] == ({0: 1}, set()), "beside the one that waits at the leader"
        await asyncio.sleep(0.02)
        assert len(link.sent) == 3


async def test_positions_of_one_answer_are_told_together(tmp_path: Path) -> None:
    async with following(tmp_path, flush="commit") as f:
        zero, one = f.replica(0), f.replica(1)
        f.fetchers.follow(zero)
        f.fetchers.follow(one)
        link = await f.link(1)
        link.answer(1, p0=FetchAnswer(records=batch(0)), p1=FetchAnswer(records=batch(0)))
        zero.log.flush()
        one.log.flush()
        await f.link(2)
        assert link.sent[1] == ({0: 1, 1: 1}, set())


async def test_answers_to_an_earlier_role_are_dropped(tmp_path: Path) -> None:
    async with following(tmp_path) as f:
        other, old = f.replica(1), f.replica(0)
        f.fetchers.follow(other)
        f.fetchers.follow(old)
        link = await f.link(1)
        link.answer(1)
        await f.link(2)
        f.fetchers.unfollow(old)
        old.close(NotLeader("a new epoch"))
        new = f.again(old.log, epoch=1)
        f.fetchers.follow(new)
        link.answer(2, p0=FetchAnswer(records=batch(0)))
        await f.link(3)
        assert link.sent[2] == ({0: 0}, set())
        link.answer(3, p0=FetchAnswer(records=batch(0, epoch=1)))
        assert (new.log.log_end_offset, new.log.leader_epoch) == (1, 1)


async def test_what_is_let_go_is_forgotten(tmp_path: Path) -> None:
    async with following(tmp_path) as f:
        zero, one = f.replica(0), f.replica(1)
        f.fetchers.follow(zero)
        f.fetchers.follow(one)
        link = await f.link(1)
        link.answer(1)
        await f.link(2)
        f.fetchers.unfollow(zero)
        await f.link(3)
        assert link.sent[2] == ({}, {0})
        link.answer(2, p0=FetchAnswer(records=batch(0)))
        assert zero.log.log_end_offset == 0
        f.fetchers.unfollow(one)
        await until(lambda: link.closed)


async def test_a_refusal_names_all_anew_and_an_error_only_its_partition(tmp_path: Path) -> None:
    async with following(tmp_path) as f:
        for index in range(3):
            f.fetchers.follow(f.replica(index))
        link = await f.link(1)
        link.listener.refused(1, StaleBrokerEpoch("not seen yet"))
        await f.link(2)
        assert link.sent[1][0] == {0: 0, 1: 0, 2: 0}
        link.answer(2, p1=FetchAnswer(NotLeader("not yet")))
        await f.link(3)
        link.answer(3)
        await until(lambda: len(link.sent) == 5 or {1: 0} in [named for named, _ in link.sent[3:]])
        assert {1: 0} in [named for named, _ in link.sent[3:]]


async def test_a_lost_link_is_told_and_made_anew(tmp_path: Path) -> None:
    async with following(tmp_path) as f:
        f.fetchers.follow(f.replica(0))
        link = await f.link(1)
        link.answer(1, p0=FetchAnswer(records=batch(0)))
        await f.link(2)
        link.listener.lost(ConnectionResetError())
        await until(lambda: len(f.links) == 2)
        again = await f.link(1)
        assert again.sent[0][0] == {0: 1}
        assert f.suspected == [LEADER]


async def test_a_bad_batch_is_asked_for_again_from_where_the_good_ones_end(tmp_path: Path) -> None:
    async with following(tmp_path) as f:
        f.fetchers.follow(f.replica(0))
        link = await f.link(1)
        bad = bytearray(batch(1))
        bad[-1] ^= 1
        link.answer(1, p0=FetchAnswer(records=batch(0) + bytes(bad)))
        await until(lambda: {0: 1} in [named for named, _ in link.sent])


async def test_what_is_in_the_bucket_is_begun_from_there(tmp_path: Path) -> None:
    restored: list[Replica] = []

    async def restore(replica: Replica) -> None:
        restored.append(replica)
        replica.log.reset_to(40, 0)

    async with following(tmp_path, restore=restore) as f:
        replica = f.replica(0)
        f.fetchers.follow(replica)
        link = await f.link(1)
        link.answer(1, p0=FetchAnswer(OffsetArchived("in the bucket")))
        await until(lambda: {0: 40} in [named for named, _ in link.sent])
        assert restored == [replica]


async def test_what_a_reassignment_copies_keeps_its_rate(tmp_path: Path) -> None:
    async with following(tmp_path, reassignment_bytes_per_s=lambda: 1000) as f:
        coming, here = f.replica(0, adding=True), f.replica(1)
        assert f.fetchers.throttle(here, 1 << 20, 10.0) == 0
        assert f.fetchers.throttle(coming, 500, 10.0) == 0.5
        assert f.fetchers.throttle(coming, 500, 10.0) == 1.0
        assert f.fetchers.throttle(coming, 500, 20.0) == 0.5
