"""What a follower does with answers, and that by leader epochs any two histories of one partition come together."""

from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import (
    FencedLeaderEpoch,
    NotLeader,
    OffsetArchived,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    TierlogError,
    UnknownLeaderEpoch,
)
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset
from hot_tier.replication.following import (
    Append,
    Decision,
    FetchAnswer,
    FromArchive,
    LeaderMoved,
    ResetTo,
    TruncateTo,
    TryAgain,
    decide,
    follower_high_watermark,
    next_fetch,
)
from hot_tier.replication.leadership import diverging, end_of_epoch
from tests.hot_tier.replication.histories import EpochLog


def answered(log: EpochLog, error: TierlogError, leader_start: int = -1) -> Decision:
    return decide(log, FetchAnswer(error, log_start_offset=Offset(leader_start)))


def test_a_fetch_names_the_log_end_and_the_history_before_it() -> None:
    asked = next_fetch(EpochLog(1, 1, 3), LeaderEpoch(5))
    assert (asked.offset, asked.last_epoch, asked.leader_epoch, asked.log_start_offset) == (3, 3, 5, 0)
    assert next_fetch(EpochLog(start=7), LeaderEpoch(5)).last_epoch == NO_EPOCH


def test_records_are_appended_with_what_the_leader_says_of_the_log() -> None:
    answer = FetchAnswer(records=b"batches", high_watermark=Offset(3), log_start_offset=Offset(1))
    assert decide(EpochLog(1, 1), answer) == Append(b"batches", Offset(3), Offset(1))


def test_another_leader_is_waited_for_and_anything_else_tried_again() -> None:
    assert answered(EpochLog(1), NotLeader("moved")) == LeaderMoved()
    assert answered(EpochLog(1), FencedLeaderEpoch("over")) == LeaderMoved()
    for error in (UnknownLeaderEpoch("not yet"), StaleBrokerEpoch("old"), TierlogError("whatever")):
        assert isinstance(answered(EpochLog(1), error), TryAgain)


def test_what_the_leader_no_longer_has_is_skipped_or_in_the_bucket() -> None:
    assert answered(EpochLog(1, 1), OffsetOutOfRange("gone"), leader_start=9) == ResetTo(Offset(9))
    assert answered(EpochLog(start=12), OffsetOutOfRange("beyond the end"), leader_start=9) == ResetTo(Offset(9))
    assert answered(EpochLog(1, 1), OffsetArchived("in the bucket")) == FromArchive()


def test_records_are_never_dropped_because_a_leader_has_fewer() -> None:
    assert isinstance(answered(EpochLog(1, 1), OffsetOutOfRange("beyond the end"), leader_start=0), TryAgain)
    assert isinstance(answered(EpochLog(1, 1), OffsetOutOfRange("start not told")), TryAgain)


def test_a_cut_that_makes_no_sense_is_not_made() -> None:
    log = EpochLog(1, 1, 2)
    for epoch, end in ((2, 3), (2, 9), (3, 1), (-1, -1)):
        assert isinstance(decide(log, FetchAnswer(diverging=(LeaderEpoch(epoch), Offset(end)))), TryAgain), (epoch, end)


def test_a_leader_that_has_written_nothing_yet_tells_where_older_epochs_end() -> None:
    leader, epoch = EpochLog(1, 1, 2), LeaderEpoch(6)
    assert end_of_epoch(leader, epoch, 6) == (6, 3)
    assert end_of_epoch(leader, epoch, 4) == (2, 3), "nobody here wrote in 3, 4 and 5"
    assert end_of_epoch(leader, epoch, 1) == (1, 2)
    assert end_of_epoch(leader, epoch, 7) == (-1, -1)
    assert diverging(leader, epoch, Offset(3), LeaderEpoch(2)) is None
    assert diverging(leader, epoch, Offset(5), LeaderEpoch(4)) == (2, 3)
    assert diverging(EpochLog(), epoch, Offset(5), LeaderEpoch(4)) == (4, 0)


def test_the_high_watermark_of_a_follower_never_goes_back_nor_past_its_log() -> None:
    assert follower_high_watermark(Offset(3), Offset(5), Offset(9)) == 5
    assert follower_high_watermark(Offset(3), Offset(5), Offset(4)) == 4
    assert follower_high_watermark(Offset(5), Offset(3), Offset(9)) == 5, "a new leader knows less at first"


@st.composite
def two_histories(draw: st.DrawFn) -> tuple[EpochLog, EpochLog, int]:
    """A leader's and a follower's log with a common beginning, after which no epoch wrote to both."""
    shared = sorted(draw(st.lists(st.integers(0, 4), max_size=6)))
    least = shared[-1] if shared else 0
    owner = draw(st.lists(st.booleans(), min_size=6, max_size=6))
    later = sorted(draw(st.lists(st.integers(least, least + 5), max_size=10)))
    ours = [epoch for epoch in later if owner[epoch - least]]
    theirs = [epoch for epoch in later if not owner[epoch - least]]
    return EpochLog(*shared, *ours), EpochLog(*shared, *theirs), len(shared)


@given(two_histories())
def test_cutting_by_epochs_ends_at_the_common_history(histories: tuple[EpochLog, EpochLog, int]) -> None:
    leader, follower, shared = histories
    epoch = LeaderEpoch(20)
    for _ in range(20):
        asked = next_fetch(follower, epoch)
        if asked.last_epoch == NO_EPOCH:
            break
        parts = diverging(leader, epoch, asked.offset, asked.last_epoch)
        if parts is None:
            break
        decision = decide(follower, FetchAnswer(diverging=parts))
        assert isinstance(decision, TruncateTo)
        assert decision.offset >= shared, "what both have is never cut"
        follower.cut(decision.offset)
    else:
        raise AssertionError("no end")
    assert follower.records == leader.records[: len(follower.records)]
