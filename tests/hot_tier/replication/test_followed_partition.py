"""A follower's copy over a real log: what an answer does to it, and when its position may be told."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from hot_tier.cluster.model import PartitionState, Topic
from hot_tier.errors import MetadataUnavailable, NotLeader, OffsetArchived, OffsetOutOfRange, TierlogError
from hot_tier.ids import NO_EPOCH, LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.producers import ProducerState
from hot_tier.log.recovery import Recovery
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import assign
from hot_tier.record.records import Record, encode_records
from hot_tier.replication.followed_partition import FollowedPartition, Next
from hot_tier.replication.following import FetchAnswer

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
LEADER, ME = NodeId(1), NodeId(2)
TP = TopicPartition("t", PartitionId(0))
EPOCH = 5


class Harness:
    """A replica, its log, a disk that syncs when told, and a fetcher that counts."""

    def __init__(self, directory: Path, config: TopicConfig) -> None:
        self.log = PartitionLog(Disk(str(directory), LogSettings(min_free_bytes=0)), TP, TOPIC_ID, config)
        self.flush_requests = 0
        self.log.request_flush = self._count
        self.told: list[int] = []
        self.follow()

    def follow(self) -> None:
        topic = Topic("t", TOPIC_ID, 1, 2, {}, NOW_MS)
        state = PartitionState(LEADER, LeaderEpoch(EPOCH), (LEADER, ME), (LEADER, ME))
        self.replica = FollowedPartition(TP, topic, self.log, state, ME)
        self.replica.durable_listener = lambda replica: self.told.append(replica.next_fetch().offset)

    def _count(self) -> None:
        self.flush_requests += 1

    def take(self, *batches: bytes, committed: int = 0) -> Next:
        answer = FetchAnswer(records=b"".join(batches), high_watermark=Offset(committed), log_start_offset=Offset(0))
        return self.replica.take(answer, NOW_MS)


def batch(offset: int, epoch: int = EPOCH, records: int = 1, **producer: int) -> bytes:
    made = encode_records([Record(0, NOW_MS, 0, None, b"value", ())] * records, **producer)
    assign(made, offset, epoch)
    return bytes(made)


def broken(made: bytes) -> bytes:
    return made[:-1] + bytes([made[-1] ^ 1])


@pytest.fixture
def synced(tmp_path: Path) -> Harness:
    return Harness(tmp_path, TopicConfig())


@pytest.fixture
def unsynced(tmp_path: Path) -> Harness:
    return Harness(tmp_path, TopicConfig(flush="os"))


def test_a_position_is_told_only_when_all_before_it_is_synced(synced: Harness) -> None:
    assert synced.take(batch(0), batch(1)) is Next.ASK
    assert synced.flush_requests == 1
    assert synced.told == []
    synced.log.flush()
    assert synced.replica.is_durable
    assert synced.told == [2]


def test_without_sync_a_position_is_told_when_it_is_written(unsynced: Harness) -> None:
    assert unsynced.take(batch(0)) is Next.ASK
    assert unsynced.replica.is_durable
    assert unsynced.flush_requests == 0


@pytest.mark.parametrize(
    "bad",
    [broken(batch(1)), batch(1, epoch=EPOCH + 1), batch(0), batch(2)],
    ids=["damaged on the way", "of an epoch that the leader is not in", "of an offset that is taken", "after a gap"],
)
def test_what_comes_before_a_bad_batch_is_kept_and_synced_and_asked_on_from(synced: Harness, bad: bytes) -> None:
    assert synced.take(batch(0), bad) is Next.LATER
    assert synced.log.log_end_offset == 1
    assert synced.flush_requests == 1, "else the position is never durable and never told"
    synced.log.flush()
    assert synced.told == [1]
    assert synced.take(batch(1)) is Next.ASK


def test_a_gap_is_taken_where_the_leader_says_that_compaction_left_it(unsynced: Harness) -> None:
    records = batch(0) + batch(5) + batch(9)
    answer = FetchAnswer(records=records, high_watermark=Offset(0), log_start_offset=Offset(0), gaps_below=Offset(8))
    assert unsynced.replica.take(answer, NOW_MS) is Next.LATER
    assert unsynced.log.log_end_offset == 6


def test_the_high_watermark_is_what_leaders_said_as_far_as_the_log_goes(unsynced: Harness) -> None:
    unsynced.take(batch(0, records=3), committed=9)
    assert unsynced.replica.high_watermark == unsynced.log.committed_offset == 3
    unsynced.take(committed=1)
    assert unsynced.replica.high_watermark == 3


def test_a_history_that_parts_is_cut_and_goes_on_durably(synced: Harness) -> None:
    synced.take(batch(0, epoch=1, records=2), batch(2, epoch=2), batch(3, epoch=2))
    synced.log.flush()
    assert synced.replica.take(FetchAnswer(diverging=(LeaderEpoch(1), Offset(2))), NOW_MS) is Next.ASK
    assert synced.replica.next_fetch().offset == 2
    assert synced.replica.next_fetch().last_epoch == 1
    assert synced.replica.is_durable


def test_a_leader_that_kept_only_newer_records_is_followed_from_there(synced: Harness) -> None:
    synced.take(batch(0), committed=1)
    synced.log.flush()
    answer = FetchAnswer(OffsetOutOfRange("gone"), log_start_offset=Offset(40))
    assert synced.replica.take(answer, NOW_MS) is Next.ASK
    assert synced.replica.next_fetch().offset == synced.replica.high_watermark == 40
    assert synced.replica.is_durable


def test_what_a_log_knew_before_it_began_anew_is_forgotten(synced: Harness, tmp_path: Path) -> None:
    """A leader compares the last epoch with an offset that it did not end at, and a producer's last sequence is not the
    one that it wrote last."""
    synced.take(batch(0, producer_id=9, producer_epoch=0, base_sequence=0))
    synced.log.roll(NOW_MS)
    synced.log.flush()
    synced.replica.take(FetchAnswer(OffsetOutOfRange("gone"), log_start_offset=Offset(40)), NOW_MS)
    assert synced.replica.next_fetch().last_epoch == NO_EPOCH
    assert not len(synced.log.producers)
    recovery = Recovery(Disk(str(tmp_path), LogSettings(min_free_bytes=0)), synced.log.directory, None, NOW_MS)
    recovered = recovery.look()
    recovery.repair()
    assert (recovered.state.end_offset, recovered.state.epochs.latest) == (40, NO_EPOCH)
    assert not len(recovered.state.producers)


def test_what_the_disk_refuses_is_tried_again(synced: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not passed on: the link that it came by serves other partitions too."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(synced.log, "append_replica", refuse)
    assert synced.take(batch(0)) is Next.LATER


@pytest.fixture
def doubted(synced: Harness) -> Harness:
    """A log of three batches of which something is missing."""
    synced.take(batch(0), batch(1), batch(2), committed=3)
    synced.log.flush()
    synced.log._disk.doubts.note(cut=(), damaged={(TOPIC_ID, 0)}, emptied=())
    synced.follow()
    return synced


def test_of_a_log_in_doubt_no_position_is_told(doubted: Harness) -> None:
    """Its leader would take it into the in-sync set for what it does not hold."""
    asked = doubted.replica.next_fetch()
    assert (asked.offset, asked.last_epoch, asked.log_start_offset) == (0, NO_EPOCH, 0)


@pytest.mark.parametrize("error", [NotLeader("moved"), MetadataUnavailable("not now")])
def test_a_log_in_doubt_is_kept_while_no_leader_has_it(doubted: Harness, error: TierlogError) -> None:
    assert doubted.replica.take(FetchAnswer(error), NOW_MS) is Next.LATER
    assert (doubted.log.log_end_offset, doubted.log.in_doubt) == (3, True)
    assert doubted.replica.next_fetch().offset == 0


def test_a_log_in_doubt_is_copied_anew(doubted: Harness) -> None:
    assert doubted.take(batch(0), batch(1), committed=1) is Next.ASK
    assert not doubted.log.in_doubt
    doubted.log.flush()
    assert doubted.replica.next_fetch().offset == 2
    assert doubted.replica.high_watermark == 1


def test_a_log_in_doubt_begins_where_its_leader_does(doubted: Harness) -> None:
    answer = FetchAnswer(OffsetOutOfRange("gone"), log_start_offset=Offset(2))
    assert doubted.replica.take(answer, NOW_MS) is Next.ASK
    assert doubted.replica.next_fetch().offset == doubted.log.log_end_offset == 2


def test_a_log_in_doubt_is_kept_until_it_begins_at_its_archive(doubted: Harness) -> None:
    assert doubted.replica.take(FetchAnswer(OffsetArchived("in the bucket")), NOW_MS) is Next.FROM_ARCHIVE
    assert (doubted.log.log_end_offset, doubted.log.in_doubt, doubted.replica.next_fetch().offset) == (3, True, 0)
    doubted.replica.begin_at_archive(Offset(0), Offset(2), [(EPOCH, 0)], ProducerState())
    assert (doubted.log.log_end_offset, doubted.log.in_doubt, doubted.replica.next_fetch().offset) == (2, False, 2)
