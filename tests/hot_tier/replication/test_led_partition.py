"""A partition over a real log: what is committed, who is told, and who is turned away."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from hot_tier.cluster.model import PartitionState, Topic
from hot_tier.cluster.store import Revision
from hot_tier.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailure,
    TierlogError,
    UnknownLeaderEpoch,
)
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import read_header
from hot_tier.record.records import Record, encode_records
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.too_old import TELL_AGAIN_MS

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
ME, OTHER = NodeId(1), NodeId(2)
TP = TopicPartition("t", PartitionId(0))


class Harness:
    """A partition, its log, and a disk that syncs when told."""

    def __init__(self, directory: str, config: TopicConfig, state: PartitionState) -> None:
        self.disk = Disk(directory, LogSettings(min_free_bytes=0))
        self.log = PartitionLog(self.disk, TP, TOPIC_ID, config)
        self.flush_requests = 0
        self.log.request_flush = self._count
        self.topic = Topic("t", TOPIC_ID, 1, len(state.replicas), {}, NOW_MS)
        self.partition = LedPartition(TP, self.topic, self.log, state, ME, NOW_MS)

    def _count(self) -> None:
        self.flush_requests += 1

    def append(self, records: int = 1, acks: int = -1, **producer: int) -> Offset:
        """The end offset."""
        batch = encode_records([Record(0, NOW_MS, 0, None, b"v", ())] * records, **producer)
        return self.partition.append(batch, read_header(batch), NOW_MS, acks).end_offset

    def fetched(self, offset: int) -> None:
        """By the other replica."""
        self.partition.replica_fetched(OTHER, 1, Offset(offset), NOW_MS)

    def waits(self, end_offset: int) -> asyncio.Future[None]:
        future = self.partition.when_committed(Offset(end_offset))
        assert future is not None
        return future

    def acknowledged(self, end_offset: int, acks: int) -> asyncio.Future[None] | None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return future if self.partition.tell_acknowledged(Offset(end_offset), acks, future) else None


def test_records_that_come_too_old_are_counted_and_told_now_and_then(make: Callable[..., "Harness"]) -> None:
    def append(harness: "Harness", age_ms: int, now_ms: int = NOW_MS, **producer: int) -> int:
        batch = encode_records([Record(0, now_ms - age_ms, 0, None, b"v", ())] * 3, **producer)
        harness.partition.append(batch, read_header(batch), now_ms)
        return harness.partition._too_old.records.get("t", 0)

    async def run() -> None:
        harness = make(TopicConfig(retention_ms=1000))
        assert append(harness, 1000) == 0
        with capture_logs() as told:
            assert append(harness, 1001) == 3
            assert append(harness, 5000) == 6
            assert append(harness, 5000, NOW_MS + TELL_AGAIN_MS) == 9
        assert [(line["topic"], line["records"], line["retention_ms"]) for line in told] == [
            ("t", 3, 1000),
            ("t", 6, 1000),
        ]
        harness.partition._too_old.forget("t")
        assert append(harness, 0, producer_id=1, producer_epoch=0, base_sequence=0) == 0
        for kept in (
            TopicConfig(retention_ms=-1),
            TopicConfig(retention_ms=1000, cleanup_policy=("compact",)),
            TopicConfig(retention_ms=1000, message_timestamp_type="LogAppendTime"),
        ):
            harness.partition.configure(harness.topic, kept)
            assert append(harness, 1 << 40) == 0

    asyncio.run(run())


def state(epoch: int = 3, isr: tuple[NodeId, ...] = (ME,), version: int = 1) -> PartitionState:
    return PartitionState(ME, LeaderEpoch(epoch), isr, (ME, OTHER), version=Revision(version))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Harness]:
    def build(config: TopicConfig | None = None, in_state: PartitionState | None = None) -> Harness:
        return Harness(str(tmp_path), config or TopicConfig(), in_state or state())

    return build


async def test_what_is_synced_is_committed(make: Callable[..., Harness]) -> None:
    h = make()
    assert h.append(3) == 3
    assert (h.partition.high_watermark, h.log.log_end_offset, h.flush_requests) == (0, 3, 1)
    waiting = h.waits(3)
    h.log.flush()
    assert h.partition.high_watermark == h.partition.last_stable_offset == 3
    assert waiting.done() and waiting.exception() is None
    assert h.partition.when_committed(Offset(3)) is None


async def test_without_sync_what_is_written_is_committed(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"))
    assert h.append(3) == 3
    assert h.partition.high_watermark == 3
    assert h.partition.when_committed(Offset(3)) is None
    assert h.flush_requests == 0


async def test_batches_carry_the_leader_epoch(make: Callable[..., Harness]) -> None:
    h = make(in_state=state(epoch=9))
    h.append()
    h.log.flush()
    place = h.log.locate(0, 1 << 20, 1)
    assert place is not None
    assert read_header(await h.log.read(place)).leader_epoch == 9


async def test_everyone_below_is_answered_and_nobody_above(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(2)
    first, second = h.waits(2), h.waits(1)
    job = h.log.sync.prepare()
    assert job is not None
    h.append(5)
    third = h.waits(7)
    job.run()
    h.log.sync.settle(job)
    assert (first.done(), second.done(), third.done()) == (True, True, False)
    h.log.flush()
    assert third.done()


async def test_a_repeated_batch_waits_for_its_original(make: Callable[..., Harness]) -> None:
    h = make()
    producer = {"producer_id": 5, "producer_epoch": 0}
    assert h.append(2, base_sequence=0, **producer) == 2
    job = h.log.sync.prepare()
    assert job is not None
    assert h.append(4, base_sequence=2, **producer) == 6
    late = h.waits(6)
    asked = h.flush_requests
    assert h.append(2, base_sequence=0, **producer) == 2
    assert h.log.log_end_offset == 6
    assert h.flush_requests == asked, "nothing new to sync"
    repeated = h.waits(2)
    job.run()
    h.log.sync.settle(job)
    assert (repeated.done(), late.done()) == (True, False)


async def test_the_log_refuses_and_nothing_moves(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(1, producer_id=5, producer_epoch=0, base_sequence=0)
    with pytest.raises(OutOfOrderSequence):
        h.append(1, producer_id=5, producer_epoch=0, base_sequence=9)
    assert h.log.log_end_offset == 1


async def test_a_cancelled_wait_harms_nobody(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(1)
    gone, stays = h.waits(1), h.waits(1)
    gone.cancel()
    h.log.flush()
    assert stays.done() and not stays.cancelled()


async def test_fetches_hear_of_every_move(make: Callable[..., Harness]) -> None:
    h = make()
    heard: list[int] = []

    def once() -> None:
        heard.append(-1)
        h.partition.remove_waiter(once)

    def always() -> None:
        heard.append(h.partition.high_watermark)

    h.partition.add_waiter(once)
    h.partition.add_waiter(always)
    h.append()
    assert heard == []
    h.log.flush()
    h.log.flush()
    h.append()
    h.log.flush()
    assert heard == [-1, 1, 2]
    h.partition.remove_waiter(always)
    h.partition.remove_waiter(always)
    h.append()
    h.log.flush()
    assert heard == [-1, 1, 2]


# One ack


async def test_acks_1_waits_for_the_leaders_own_sync_alone(make: Callable[..., Harness]) -> None:
    h = make(in_state=state(isr=(ME, OTHER)))
    h.append(2, acks=1)
    waiting, committed = h.acknowledged(Offset(2), 1), h.waits(2)
    assert waiting is not None and not waiting.done()
    h.log.flush()
    assert waiting.done() and waiting.exception() is None
    assert (h.partition.high_watermark, committed.done()) == (0, False)
    assert h.acknowledged(Offset(2), 1) is None
    h.fetched(2)
    assert committed.done()


async def test_acks_1_of_a_leader_alone_in_sync_is_answered_with_the_commit(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(2, acks=1)
    waiting = h.acknowledged(Offset(2), 1)
    assert waiting is not None
    seen: list[int] = []
    h.partition.add_waiter(lambda: seen.append(int(waiting.done())))
    h.log.flush()
    assert (h.partition.high_watermark, waiting.done()) == (2, True)
    assert seen == [0], "it could be read before it was acknowledged"


async def test_acks_1_does_not_wait_where_nothing_is_synced(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"), state(isr=(ME, OTHER)))
    h.append(2, acks=1)
    assert h.acknowledged(Offset(2), 1) is None
    assert h.acknowledged(Offset(2), 0) is None
    assert h.acknowledged(Offset(2), -1) is not None


async def test_acks_1_needs_no_more_replicas_than_the_leader(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(min_insync_replicas=2))
    h.append(acks=1)
    waiting = h.acknowledged(Offset(1), 1)
    assert waiting is not None
    h.log.flush()
    assert waiting.exception() is None


async def test_acks_1_is_refused_when_another_is_about_to_lead(make: Callable[..., Harness]) -> None:
    h = make(in_state=state(isr=(ME, OTHER)))
    h.append(acks=1)
    waiting = h.acknowledged(Offset(1), 1)
    assert waiting is not None
    h.partition.strand()
    assert isinstance(waiting.exception(), NotLeader)


# Leadership


async def test_leader_epochs_are_compared(make: Callable[..., Harness]) -> None:
    partition = make(in_state=state(epoch=3)).partition
    partition.check_leader_epoch(3)
    partition.check_leader_epoch(-1)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_leader_epoch(2)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_leader_epoch(4)


async def test_too_few_replicas_refuse_acks_all_alone(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(min_insync_replicas=2))
    with pytest.raises(NotEnoughReplicas):
        h.append(acks=-1)
    assert h.log.log_end_offset == 0
    assert h.append(acks=1) == 1
    assert h.append(acks=0) == 2


async def test_other_members_hold_the_commit(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"), state(isr=(ME, OTHER)))
    h.append(4)
    assert h.partition.high_watermark == 0, "the other has not told what it holds"
    waiting = h.waits(4)
    h.fetched(3)
    assert (h.partition.high_watermark, h.log.committed_offset, waiting.done()) == (3, 3, False)
    h.fetched(9)
    assert (h.partition.high_watermark, h.log.committed_offset, waiting.done()) == (4, 4, True)


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("acks", [-1, 1])
async def test_alone_with_unclean_election_nothing_is_acknowledged_without_a_lease(
    make: Callable[..., Harness], unclean: bool, acks: int
) -> None:
    """A paused broker that wakes up finds its sync done: another may have been elected without it."""
    h = make(TopicConfig(unclean_leader_election_enable=unclean))
    leases = [True]
    h.partition.close(NotLeader("again, with a lease"))
    h.partition = LedPartition(TP, h.topic, h.log, state(), ME, NOW_MS, lease_valid=lambda: leases[-1])
    h.append(acks=acks)
    waiting = h.acknowledged(Offset(1), acks)
    assert waiting is not None
    leases.append(False)
    h.log.flush()
    assert waiting.done() is not unclean
    if unclean:
        with pytest.raises(NotLeader):
            h.append()
        h.partition.lead(state(isr=(ME, OTHER), version=2), NOW_MS)
        assert h.append() == 2, "the other must hold it too"


async def test_what_was_synced_without_a_lease_is_acknowledged_with_the_next(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(unclean_leader_election_enable=True))
    leases = [True]
    h.partition.close(NotLeader("again, with a lease"))
    h.partition = LedPartition(TP, h.topic, h.log, state(), ME, NOW_MS, lease_valid=lambda: leases[-1])
    h.append()
    waiting = h.waits(1)
    leases.append(False)
    h.log.flush()
    leases.append(True)
    async with asyncio.timeout(10):
        await waiting


async def test_a_member_that_leaves_no_longer_holds_the_commit(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"), state(isr=(ME, OTHER)))
    h.append(4)
    waiting = h.waits(4)
    h.partition.lead(state(isr=(ME,), version=2), NOW_MS)
    assert h.partition.high_watermark == 4
    assert waiting.done()


async def test_what_a_member_held_in_another_epoch_does_not_count(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"), state(epoch=3, isr=(ME, OTHER)))
    h.append(2)
    h.fetched(9)
    h.partition.lead(state(epoch=4, isr=(ME, OTHER)), NOW_MS)
    h.append(2)
    assert h.partition.high_watermark == 2
    h.fetched(4)
    assert h.partition.high_watermark == 4


async def test_a_new_epoch_keeps_the_commit_and_who_waits(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(2)
    h.log.flush()
    h.append(1)
    waiting = h.waits(3)
    h.partition.lead(state(epoch=4), NOW_MS)
    assert (h.partition.leader_epoch, h.partition.high_watermark) == (4, 2)
    h.log.flush()
    assert waiting.done()


async def test_the_last_stable_offset_stops_at_an_open_transaction(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"))
    h.append(5)
    h.log.producers.transactions.begin(7, 2)
    assert (h.partition.last_stable_offset, h.partition.high_watermark) == (2, 5)


# Settings


async def test_sync_can_be_turned_off_and_on(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(2)
    waiting = h.waits(2)
    relaxed = TopicConfig(flush="os")
    h.log.set_config(relaxed)
    h.partition.configure(h.topic, relaxed)
    assert waiting.done()
    h.append(1)
    assert h.partition.high_watermark == 3
    h.log.set_config(TopicConfig())
    h.partition.configure(h.topic, TopicConfig())
    assert h.partition.high_watermark == 3, "what was committed stays so"
    assert h.append(1) == 4
    assert h.partition.high_watermark == 3
    h.log.flush()
    assert h.partition.high_watermark == 4


async def test_a_log_with_unsynced_records_is_synced_when_opened(make: Callable[..., Harness]) -> None:
    h = make(TopicConfig(flush="os"))
    h.append(3)
    h.log.config = TopicConfig()
    again = LedPartition(TP, h.topic, h.log, state(), ME, NOW_MS)
    assert h.flush_requests == 1
    assert again.high_watermark == 0
    h.log.flush()
    assert again.high_watermark == 3


# Endings


@pytest.mark.parametrize("reason", [NotLeader("moved"), StorageFailure("broken", where="/d", hint="buy a disk")])
async def test_closing_answers_everyone(make: Callable[..., Harness], reason: TierlogError) -> None:
    h = make()
    h.append()
    h.log.flush()
    h.append(2)
    one, two, three = h.waits(3), h.waits(2), h.acknowledged(Offset(3), 1)
    assert three is not None
    told: list[bool] = []
    h.partition.add_waiter(lambda: told.append(True))
    h.partition.close(reason)
    first, second = one.exception(), two.exception()
    assert type(first) is type(second) is type(three.exception()) is type(reason)
    assert first is not second and str(first) == str(reason)
    assert told == [True]
    with pytest.raises(type(reason)):
        h.append()
    for acks in (-1, 1):
        with pytest.raises(type(reason)):
            h.acknowledged(Offset(3), acks)
    assert h.partition.when_committed(Offset(1)) is None, "what is committed stays so"
    h.log.flush()
    assert h.partition.high_watermark == 1, "a closed partition commits nothing more"


async def test_a_failed_sync_is_told_and_never_taken_back(make: Callable[..., Harness]) -> None:
    h = make()
    h.append()
    waiting = h.waits(1)
    job = h.log.sync.prepare()
    assert job is not None
    job.error = OSError(5, "Input/output error")
    h.log.sync.settle(job)
    assert isinstance(waiting.exception(), StorageFailure)
    with pytest.raises(StorageFailure):
        h.append()
    assert h.partition.high_watermark == 0


# Deleting records


async def test_records_are_deleted_up_to_the_high_watermark_at_most(make: Callable[..., Harness]) -> None:
    h = make()
    h.append(3)
    h.log.flush()
    h.append(2)
    for bad in (4, 5, 1 << 40, -2):
        with pytest.raises(OffsetOutOfRange):
            h.partition.delete_records_before(bad)
    assert h.partition.delete_records_before(2) == 2
    assert h.partition.delete_records_before(1) == 2, "the log start never goes back"
    assert h.partition.delete_records_before(-1) == 3
    assert h.log.log_start_offset == 3


# Anything


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("prepare"), st.just(0)),
        st.tuples(st.just("settle"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["wait for all", "wait for one"]), st.integers(0, 20)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(operations)
def test_waiters_are_answered_exactly_when_their_offset_is_synced(steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            h = Harness(directory, TopicConfig(), state())
            jobs = []
            synced = seen = 0
            waiting: list[tuple[int, asyncio.Future[None]]] = []
            for what, number in steps:
                match what:
                    case "append":
                        h.append(number)
                    case "prepare":
                        job = h.log.sync.prepare()
                        if job is not None:
                            jobs.append(job)
                    case "settle" if jobs:
                        job = jobs.pop(number % len(jobs))
                        job.run()
                        h.log.sync.settle(job)
                        synced = max(synced, job.point.offset)
                    case "wait for all" | "wait for one":
                        future = h.acknowledged(Offset(number), -1 if what == "wait for all" else 1)
                        assert (future is None) == (number <= synced)
                        if future is not None:
                            waiting.append((number, future))
                assert h.partition.high_watermark == synced
                assert seen <= h.partition.high_watermark <= h.log.log_end_offset
                seen = h.partition.high_watermark
                assert all(future.done() == (end <= synced) for end, future in waiting)
            h.disk.close()

    asyncio.run(run())
