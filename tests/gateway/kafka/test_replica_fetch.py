"""What a leader answers to a follower, byte for byte on the wire: the follower is the test."""

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Put
from hot_tier.ids import NodeId
from hot_tier.record.batch import iter_headers
from tests.gateway.kafka.members import Member, Members, members
from tests.gateway.kafka.wire import Wire
from tests.support.waiting import until

VERSION = 17
FOLLOWER = NodeId(9)
LONG_MS = 20_000


class Follower:
    """Speaks for broker 9, which is registered and follows topic t."""

    def __init__(self, cluster: Members, wire: Wire, topic_id: UUID) -> None:
        self.cluster, self.wire, self.topic_id = cluster, wire, topic_id
        self.broker_epoch = self.leader.image.broker(FOLLOWER).epoch
        self.session_id = self.session_epoch = 0

    @property
    def leader(self) -> Member:
        return self.cluster[1]

    def request(self, *named: FetchPartition, wait_ms: int = 0, forgotten: tuple[int, ...] = ()) -> FetchRequest:
        return FetchRequest(
            replica_state=ReplicaState(FOLLOWER, self.broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=list(named))] if named else [],
            forgotten_topics_data=[ForgottenTopic(self.topic_id, "", list(forgotten))] if forgotten else [],
        )

    async def send(self, *named: FetchPartition, **settings) -> None:
        await self.wire.send(self.request(*named, **settings), VERSION)
        self.session_epoch += 1

    async def receive(self) -> FetchResponse:
        _, response = await self.wire.receive(ApiKey.FETCH, VERSION)
        self.session_id = response.session_id
        return response

    async def fetch(self, *named: FetchPartition, **settings) -> list[PartitionData]:
        await self.send(*named, **settings)
        return parts(await self.receive())


def parts(response: FetchResponse) -> list[PartitionData]:
    assert response.error_code == 0
    return [part for topic in response.responses for part in topic.partitions]


def at(offset: int, index: int = 0, last_epoch: int = -1, leader_epoch: int = 0) -> FetchPartition:
    return FetchPartition(index, leader_epoch, offset, last_epoch, 0, 1 << 20)


def offsets(answer: PartitionData) -> list[int]:
    return [header.base_offset for _, header in iter_headers(bytes(answer.records))]


@asynccontextmanager
async def following(tmp_path, partitions: int = 1, **config: str):
    async with members(tmp_path, 1, flush="os") as cluster:
        await cluster.write(
            Put(model.broker_key(FOLLOWER), model.encode(BrokerInfo(FOLLOWER, simple_endpoints("127.0.0.1", 1))))
        )
        topic = await cluster.create(1, FOLLOWER, partitions=partitions, **config)
        async with cluster[1].connect() as wire:
            yield Follower(cluster, wire, topic.id)


async def test_a_follower_reads_beyond_what_is_committed_and_commits_by_asking_for_more(tmp_path):
    async with following(tmp_path) as follower:
        leader = follower.leader
        leader.append(b"a", b"b")
        (answer,) = await follower.fetch(at(0))
        assert (answer.error_code, answer.high_watermark, offsets(answer)) == (0, 0, [0])
        assert leader.partition().high_watermark == 0
        assert await follower.fetch() == [], "its position is used up"
        await follower.fetch(at(2, last_epoch=0))
        assert leader.partition().high_watermark == 2


async def test_a_fetch_that_waits_is_woken_by_the_append(tmp_path):
    async with following(tmp_path) as follower:
        await follower.fetch(at(0))
        await follower.send(wait_ms=LONG_MS)
        await asyncio.sleep(0.01)
        follower.leader.append(b"a")
        (answer,) = parts(await follower.receive())
        assert offsets(answer) == [0]


async def test_a_fetch_that_waits_is_answered_when_the_next_one_comes(tmp_path):
    async with following(tmp_path, partitions=2) as follower:
        await follower.fetch(at(0))
        follower.leader.append(b"a", index=1)
        await follower.send(wait_ms=LONG_MS)
        await follower.send(at(0, index=1), wait_ms=LONG_MS)
        assert parts(await follower.receive()) == []
        (answer,) = parts(await follower.receive())
        assert (answer.partition_index, offsets(answer)) == (1, [0])


async def test_what_is_committed_is_told_without_records_too(tmp_path):
    async with following(tmp_path) as follower:
        await follower.fetch(at(0))
        follower.leader.append(b"a")
        (answer,) = await follower.fetch()
        assert (answer.high_watermark, offsets(answer)) == (0, [0])
        (answer,) = await follower.fetch(at(1, last_epoch=0), wait_ms=LONG_MS)
        assert (answer.high_watermark, answer.records) == (1, b"")
        follower.leader.append(b"b")
        (answer,) = await follower.fetch()
        assert offsets(answer) == [1], "the position still stands"


async def test_only_the_registered_incarnation_counts(tmp_path):
    async with following(tmp_path) as follower:
        registered = follower.broker_epoch
        follower.broker_epoch = registered - 1
        await follower.send(at(0))
        assert (await follower.receive()).error_code == ErrorCode.STALE_BROKER_EPOCH
        follower.broker_epoch, follower.session_epoch = registered, 0
        await follower.fetch(at(0))
        again = Put(model.broker_key(FOLLOWER), model.encode(BrokerInfo(FOLLOWER, simple_endpoints("127.0.0.1", 2))))
        await follower.cluster.write(again)
        await follower.send(at(0))
        assert (await follower.receive()).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_sessions_that_are_not_known(tmp_path):
    async with following(tmp_path) as follower:
        await follower.fetch(at(0))
        follower.session_epoch = 7
        await follower.send(at(0))
        assert (await follower.receive()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        follower.session_id, follower.session_epoch = 99, 1
        await follower.send(at(0))
        assert (await follower.receive()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_history_that_parts_does_not_count(tmp_path):
    async with following(tmp_path) as follower:
        leader = follower.leader
        leader.append(b"a")
        await follower.cluster.elect(1, (1, FOLLOWER))
        leader.append(b"b")
        (answer,) = await follower.fetch(at(2, last_epoch=0, leader_epoch=1))
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset, answer.records) == (0, 1, b"")
        assert leader.partition().high_watermark == 0
        (answer,) = await follower.fetch(at(1, last_epoch=0, leader_epoch=1))
        assert (answer.diverging_epoch, offsets(answer)) == (None, [1])
        assert leader.partition().high_watermark == 1


async def test_epochs_are_fenced(tmp_path):
    async with following(tmp_path) as follower:
        (answer,) = await follower.fetch(at(0, leader_epoch=1))
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        await follower.fetch(at(0))
        await follower.send(wait_ms=LONG_MS)
        await asyncio.sleep(0.01)
        await follower.cluster.elect(1, (1, FOLLOWER))
        (answer,) = parts(await follower.receive())
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH, "told at once, also while it waits"
        (answer,) = await follower.fetch(at(0))
        assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_whoever_no_longer_leads_says_so_at_once(tmp_path):
    async with following(tmp_path) as follower:
        await follower.fetch(at(0))
        await follower.send(wait_ms=LONG_MS)
        await asyncio.sleep(0.01)
        await follower.cluster.elect(FOLLOWER, (FOLLOWER,))
        (answer,) = parts(await follower.receive())
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_offsets_that_are_not_there(tmp_path):
    async with following(tmp_path) as follower:
        leader = follower.leader
        for value in (b"a", b"b", b"c"):
            leader.append(value)
        await follower.fetch(at(3, last_epoch=0))
        leader.partition().delete_records_before(2)
        for offset in (1, 4):
            (answer,) = await follower.fetch(at(offset))
            assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
        assert leader.partition().high_watermark == 3


async def test_what_is_only_in_the_bucket_is_told_apart(tmp_path):
    config = {"remote.storage.enable": "true", "segment.bytes": "1024"}
    async with following(tmp_path, **config) as follower:
        leader = follower.leader
        for _ in range(3):
            leader.append(b"x" * 1000)
        await follower.fetch(at(3, last_epoch=0))
        leader.log().flush()
        assert leader.log().drop_local_before(2, 0) == 2
        (answer,) = await follower.fetch(at(0))
        assert answer.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        assert answer.log_start_offset == 0


async def test_what_was_deleted_is_not_in_the_bucket(tmp_path):
    """Sent there, a new replica would wait until something newer is archived."""
    async with following(tmp_path, **{"remote.storage.enable": "true"}) as follower:
        for value in (b"a", b"b", b"c"):
            follower.leader.append(value)
        await follower.fetch(at(3, last_epoch=0))
        follower.leader.partition().delete_records_before(2)
        (answer,) = await follower.fetch(at(0))
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


async def test_an_answer_holds_as_much_as_was_asked_for(tmp_path):
    async with following(tmp_path, partitions=3) as follower:
        for index in range(3):
            follower.leader.append(b"x" * 5000, index=index)
            follower.leader.append(b"y" * 5000, index=index)
        request = follower.request(*(at(0, index) for index in range(3)))
        request.max_bytes = 12_000
        for topic in request.topics:
            topic.partitions[0].partition_max_bytes = 6_000
        await follower.wire.send(request, VERSION)
        follower.session_epoch += 1
        answers = parts(await follower.receive())
        assert [(part.partition_index, offsets(part)) for part in answers] == [(0, [0]), (1, [0])]
        answers = await follower.fetch()
        assert [(part.partition_index, offsets(part)) for part in answers] == [(2, [0, 1])], "the rest comes next"


async def test_a_batch_larger_than_the_limits_is_not_passed_over_for_ever(tmp_path):
    async with following(tmp_path, partitions=2) as follower:
        small, large = at(0, index=0), at(0, index=1)
        small.partition_max_bytes = large.partition_max_bytes = 2_000
        follower.leader.append(b"small", index=0)
        follower.leader.append(b"x" * 5000, index=1)
        (answer,) = await follower.fetch(small, large)
        assert answer.partition_index == 0
        follower.leader.append(b"small again", index=0)
        answers = await follower.fetch(at(1, index=0, last_epoch=0))
        assert [(part.partition_index, offsets(part)) for part in answers] == [(1, [0]), (0, [1])]


async def test_what_is_forgotten_is_not_answered(tmp_path):
    async with following(tmp_path) as follower:
        await follower.fetch(at(0))
        await follower.fetch(forgotten=(0,))
        follower.leader.append(b"a")
        assert await follower.fetch() == []


async def test_a_follower_that_goes_away_leaves_nothing_behind(tmp_path):
    async with following(tmp_path) as follower:
        await follower.fetch(at(0))
        await follower.send(wait_ms=LONG_MS)
        session = follower.leader.server.replica_sessions.find(FOLLOWER, "test")
        await until(lambda: session._poll is not None)
        follower.wire.outgoing.close()
        await until(lambda: session._poll is None)
        follower.leader.append(b"a")
        async with follower.leader.connect() as wire:
            again = Follower(follower.cluster, wire, follower.topic_id)
            (answer,) = await again.fetch(at(0))
            assert offsets(answer) == [0]
        assert len(follower.leader.partition()._append_listeners) == 1
