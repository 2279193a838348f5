"""Following over a link that the test answers: which answers count, and when a position is told."""

import errno
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo, PartitionState
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import Put
from hot_tier.errors import OffsetArchived, OffsetOutOfRange, StaleBrokerEpoch
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import PartitionLog
from hot_tier.replication.fetcher import CUTTING_S
from hot_tier.replication.fetchers import Fetchers
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.following import FetchAnswer, FetchFrom
from hot_tier.replication.link import LeaderLink, LinkListener, PartitionKey
from hot_tier.replication.settings import ReplicationSettings
from tests.hot_tier.replication.test_followed_partition import EPOCH, LEADER, ME, Harness, batch
from tests.support.waiting import until


class Link:
    def __init__(self) -> None:
        self.requests: list[dict[PartitionKey, FetchFrom]] = []
        self.listener: LinkListener

    async def connect(self, broker: BrokerInfo, name: str, listener: LinkListener) -> LeaderLink:
        self.listener = listener
        return self

    def send(self, asked: Mapping[PartitionKey, FetchFrom], forgotten: Iterable[PartitionKey]) -> int:
        self.requests.append(dict(asked))
        return len(self.requests)

    def close(self) -> None:
        pass

    async def told(self, key: PartitionKey, offset: int) -> int:
        """The number of the request that tells this position."""
        await until(lambda: any(key in each and each[key].offset == offset for each in self.requests))
        return next(n for n, each in enumerate(self.requests, 1) if key in each and each[key].offset == offset)


class Followed(Harness):
    def __init__(self, directory: Path, link: Link, fetchers: Fetchers) -> None:
        super().__init__(directory, TopicConfig())
        self.link = link
        self.fetchers = fetchers

    def answer(self, number: int, answer: FetchAnswer) -> None:
        self.link.listener.answered(number, [(self.replica.key, answer)])


@pytest.fixture
async def followed(tmp_path: Path) -> AsyncIterator[Followed]:
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    await store.transact(
        [], [Put(model.broker_key(LEADER), model.encode(BrokerInfo(LEADER, simple_endpoints("there", 1))))]
    )
    image = ClusterImage(store)
    await image.open()
    link = Link()
    fetchers = Fetchers(image, link.connect, ReplicationSettings(), reassignment_bytes_per_s=lambda: 1)
    held = Followed(tmp_path, link, fetchers)
    fetchers.follow(held.replica)
    fetchers.start()
    yield held
    await fetchers.close()
    await image.close()
    await store.close()


def records(*offsets: int) -> FetchAnswer:
    return FetchAnswer(records=b"".join(map(batch, offsets)), high_watermark=Offset(0), log_start_offset=Offset(0))


async def test_a_position_is_told_once_it_is_synced(followed: Followed) -> None:
    first = await followed.link.told(followed.replica.key, 0)
    followed.answer(first, records(0, 1))
    assert all(followed.replica.key not in each for each in followed.link.requests[first:])
    followed.log.flush()
    assert await followed.link.told(followed.replica.key, 2) > first


async def test_a_follower_that_waits_for_its_disk_is_still_heard_of(followed: Followed) -> None:
    """Leaders take whoever is silent for cut off, and hand over what they cannot commit without it."""
    first = await followed.link.told(followed.replica.key, 0)
    followed.answer(first, records(0))
    await until(lambda: len(followed.link.requests) > first)
    assert followed.link.requests[-1] == {}


@pytest.mark.parametrize("synced", [True, False])
async def test_records_that_were_not_asked_for_are_not_taken(followed: Followed, synced: bool) -> None:
    """Appended they would leave a gap, or be taken for damage."""
    first = await followed.link.told(followed.replica.key, 0)
    followed.answer(first, records(0))
    if synced:
        followed.log.flush()
    for number in (first, first + 1):
        for unasked in (records(0), records(1), records(7)):
            followed.answer(number, unasked)
    assert followed.log.log_end_offset == 1


async def test_after_a_cut_only_what_follows_on_it_is_taken(followed: Followed) -> None:
    first = await followed.link.told(followed.replica.key, 0)
    followed.answer(first, records(0, 1, 2))
    followed.log.flush()
    second = await followed.link.told(followed.replica.key, 3)
    followed.answer(second, FetchAnswer(diverging=(LeaderEpoch(5), Offset(1))))
    assert followed.log.log_end_offset == 1
    followed.answer(second, records(3))
    assert followed.log.log_end_offset == 1, "sent before the leader knew of the cut"
    third = await followed.link.told(followed.replica.key, 1)
    followed.answer(third, records(1))
    assert followed.log.log_end_offset == 2


async def test_a_refused_position_is_told_again(followed: Followed) -> None:
    first = await followed.link.told(followed.replica.key, 0)
    followed.answer(first, FetchAnswer(OffsetOutOfRange("gone"), log_start_offset=Offset(40)))
    await followed.link.told(followed.replica.key, 40)


async def test_every_position_is_told_again_when_the_last_refusal_comes_late(followed: Followed) -> None:
    key = followed.replica.key
    first = await followed.link.told(key, 0)
    followed.answer(first, records(0))
    await until(lambda: len(followed.link.requests) > first)
    followed.log.flush()
    last = await followed.link.told(key, 1)
    (fetcher,) = followed.fetchers._fetchers.values()
    followed.link.listener.refused(last - 1, StaleBrokerEpoch("not registered"))
    await until(lambda: key in fetcher._due)
    followed.link.listener.refused(last, StaleBrokerEpoch("not registered"))
    await until(lambda: any(key in each for each in followed.link.requests[last:]))


async def test_an_archive_that_the_disk_did_not_let_begin_is_tried_again(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(replica: FollowedPartition) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(followed.fetchers, "restore", refuse)
    first = await followed.link.told(followed.replica.key, 0)
    followed.answer(first, FetchAnswer(OffsetArchived("in the bucket")))

    def asked_again() -> bool:
        followed.link.listener.answered(len(followed.link.requests), [])
        return any(followed.replica.key in each for each in followed.link.requests[first:])

    await until(asked_again)


async def test_a_reassignment_is_limited_until_producers_wait_for_the_new_replica(followed: Followed) -> None:
    state = PartitionState(LEADER, LeaderEpoch(EPOCH), (LEADER,), (LEADER, ME), adding=(ME,))
    followed.replica.confirm(state, ME)
    assert followed.fetchers.throttle(followed.replica, 100, now_s=0) == 100
    followed.replica.confirm(replace(state, isr=(LEADER, ME)), ME)
    assert followed.fetchers.throttle(followed.replica, 100, now_s=0) == 0


async def test_many_cuts_are_not_made_in_one_step(
    followed: Followed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the disk some times over: all at once they would cost this broker its lease."""
    link = followed.link
    link.listener.answered(await link.told(followed.replica.key, 0), [])
    one, two = (Harness(tmp_path / str(number), TopicConfig()) for number in (1, 2))
    for number, each in enumerate((one, two), 1):
        each.take(batch(0), batch(1))
        each.log.flush()
        each.replica.key = (each.replica.topic.id, number)
        followed.fetchers.follow(each.replica)
    truncate_to = PartitionLog.truncate_to

    def slowly(log: PartitionLog, offset: int, now_ms: int) -> None:
        time.sleep(2 * CUTTING_S)
        truncate_to(log, offset, now_ms)

    monkeypatch.setattr(PartitionLog, "truncate_to", slowly)
    parted = FetchAnswer(diverging=(LeaderEpoch(EPOCH), Offset(1)))
    told = max(await link.told(one.replica.key, 2), await link.told(two.replica.key, 2))
    link.listener.answered(told, [(one.replica.key, parted), (two.replica.key, parted)])
    assert (one.log.log_end_offset, two.log.log_end_offset) == (1, 2)
    await until(lambda: any(two.replica.key in each for each in link.requests[told:]))
    link.listener.answered(len(link.requests), [(two.replica.key, parted)])
    assert two.log.log_end_offset == 1
