"""What a follower does next: what it asks its leader for, and what an answer means for its log.

Pure: `fetcher` sends and receives, `followed_partition` carries out. Rules that the leader relies on:
- A fetch at `offset` says that everything below is on this disk (synced if `flush=commit`), in the history that ends in
  `last_epoch`. So it is made after the sync, never while one is under way.
- A log is cut where the leader's history parts from ours, found by leader epochs, and nowhere else: the high watermark
  that a follower knows lags behind what was acknowledged, so cutting there would lose records.
- An answer belongs to the role that asked: the driver drops it when this node has since been given another leader,
  another epoch or the lead itself.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from hot_tier.errors import FencedLeaderEpoch, NotLeader, OffsetArchived, OffsetOutOfRange, TierlogError
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.replication.leadership import History

NOT_TOLD: Final = Offset(-1)


class LogView(History, Protocol):
    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def local_log_start_offset(self) -> Offset: ...


@dataclass(frozen=True, slots=True)
class FetchFrom:
    offset: Offset
    last_epoch: LeaderEpoch
    """Of the last record below `offset`, NO_EPOCH when there is none."""
    leader_epoch: LeaderEpoch
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    error: TierlogError | None = None
    records: bytes | memoryview = b""
    high_watermark: Offset = NOT_TOLD
    log_start_offset: Offset = NOT_TOLD
    """The leader's; -1 when it was not told. An answer OffsetOutOfRange must tell it."""
    diverging: tuple[LeaderEpoch, Offset] | None = None
    gaps_below: Offset = NOT_TOLD
    """Batches may be missing up to here, because compaction took them."""


@dataclass(frozen=True, slots=True)
class Append:
    """Take the records, if any, then what the leader says about the log (`follower_high_watermark`)."""

    records: bytes | memoryview
    high_watermark: Offset
    log_start_offset: Offset
    gaps_below: Offset = NOT_TOLD


@dataclass(frozen=True, slots=True)
class TruncateTo:
    offset: Offset


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Forget the whole log and continue here, empty: the leader no longer has what follows on ours."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FromArchive:
    """What follows on our log is in the bucket: start again where the archive ends."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    reason: str


@dataclass(frozen=True, slots=True)
class LeaderMoved:
    """The broker that was asked does not lead in the epoch we know: wait for what the image says next."""


Decision = Append | TruncateTo | ResetTo | FromArchive | TryAgain | LeaderMoved


def next_fetch(view: LogView, leader_epoch: LeaderEpoch) -> FetchFrom:
    return FetchFrom(view.log_end_offset, view.leader_epoch, leader_epoch, view.log_start_offset)


def decide(view: LogView, answer: FetchAnswer) -> Decision:
    """Returns what an answer to `next_fetch(view, …)` means. The log has not changed in between."""
    match answer.error:
        case None:
            pass
        case NotLeader() | FencedLeaderEpoch():
            return LeaderMoved()
        case OffsetArchived():
            return FromArchive()
        case OffsetOutOfRange():
            return _out_of_range(view, answer.log_start_offset)
        case error:
            return TryAgain(str(error))
    if answer.diverging is not None:
        return _cut(view, *answer.diverging)
    return Append(answer.records, answer.high_watermark, answer.log_start_offset, answer.gaps_below)


def _out_of_range(view: LogView, leader_start: Offset) -> Decision:
    empty = view.log_end_offset == view.local_log_start_offset
    if leader_start >= 0 and (view.log_end_offset < leader_start or empty):
        return ResetTo(leader_start)
    # The leader's log ends before ours in the same history: it has lost records that we hold. Ours are not cut for
    # that.
    return TryAgain(f"the leader has nothing at {view.log_end_offset}, where our log ends")


def _cut(view: LogView, epoch: LeaderEpoch, end_offset: Offset) -> Decision:
    """Cuts to where `epoch` ends at the leader or here, whichever comes first, and asks again from there."""
    _, own_end = view.end_of_epoch(epoch)
    cut = min(end_offset, own_end)
    if not 0 <= cut < view.log_end_offset:
        return TryAgain(
            f"the leader says that epoch {epoch} ends at {end_offset}, our log ends at {view.log_end_offset}"
        )
    return TruncateTo(cut)


def follower_high_watermark(known: Offset, told: Offset, log_end: Offset) -> Offset:
    """Returns what is committed, as far as this follower's log has it. What was committed once stays committed.

    A new leader starts with what it knew itself, which may be less than what this follower was told by the old one.
    """
    return min(max(known, told), log_end)
