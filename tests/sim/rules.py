"""Which functions decide in a run: the real ones, or one of them broken in a way that somebody could break it.

A simulation is worth what it finds. Each mutant is a mistake that has cost some log service records; `test_mutants`
demands that the checkers catch every one of them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from hot_tier.cluster import elections
from hot_tier.cluster.elections import Kept
from hot_tier.cluster.model import PartitionState
from hot_tier.ids import LeaderEpoch, NodeId, Offset
from hot_tier.replication import following
from hot_tier.replication.following import Append, Decision, FetchAnswer, LogView
from hot_tier.replication.leadership import NOBODY_IS_SILENT, History, Leadership, Silence, diverging


@dataclass(frozen=True)
class Rules:
    elect: Callable[[PartitionState, Collection[NodeId], Collection[NodeId]], PartitionState | None] = elections.elect
    restart: Callable[[PartitionState, NodeId, Collection[NodeId], Kept], PartitionState | None] = elections.restart
    advance: Callable[[PartitionState, Collection[NodeId]], PartitionState | None] = elections.advance_reassignment
    resign: Callable[[PartitionState, NodeId, Collection[NodeId], Collection[NodeId]], PartitionState | None] = (
        elections.resign
    )
    leadership: type[Leadership] = Leadership
    diverging: Callable[[History, LeaderEpoch, Offset, LeaderEpoch], tuple[LeaderEpoch, Offset] | None] = diverging
    decide: Callable[[LogView, FetchAnswer], Decision] = following.decide
    syncs_before_fetching: bool = True
    checks_leader_epoch: bool = True
    checks_broker_epoch: bool = True
    compares_registrations: bool = True
    counts_diverging: bool = False
    ends_old_registration: bool = True
    cuts_at_high_watermark: bool = False


class _GrowthCountsWhenWritten(Leadership):
    def _count(self) -> None:
        self._counted = self.in_sync


class _ShrinkCountsAtOnce(Leadership):
    def _count(self) -> None:
        self._counted = self._may_be_in_sync or self.in_sync


class _SilentCountsForNothing(Leadership):
    def isr_wanted(
        self,
        now_ms: int,
        lag_max_ms: int,
        live: Mapping[NodeId, int],
        draining: Collection[NodeId] = (),
        silence: Silence = NOBODY_IS_SILENT,
        min_in_sync: int = 1,
    ) -> tuple[NodeId, ...] | None:
        heard = [node for node in self._counted if node == self._node or node not in silence.nodes]
        if len(heard) >= min_in_sync:
            self._counted = heard
        return super().isr_wanted(now_ms, lag_max_ms, live, draining, silence, min_in_sync)


class _LostAnswerMeansNo(Leadership):
    def unanswered(self) -> None:
        self.refused()


class _CommitsAlone(Leadership):
    def _commit(self) -> bool:
        before = self.high_watermark
        self.high_watermark = max(before, self._ends.get(self._node, before))
        return self.high_watermark != before


class _JoinsByOldProgress(Leadership):
    def confirm(self, state: PartitionState) -> bool:
        told = dict(self._followers)
        moved = super().confirm(state)
        self._followers = told
        return moved

    def _joins(self, node: NodeId, now_ms: int, lag_max_ms: int, live: Mapping[NodeId, int]) -> bool:
        follower = self._followers.get(node)
        if follower is None or node not in live:
            return False
        return super()._joins(node, now_ms, lag_max_ms, {node: follower.broker_epoch})


def _elect_in_same_epoch(
    state: PartitionState, live: Collection[NodeId], draining: Collection[NodeId]
) -> PartitionState | None:
    elected = elections.elect(state, live, draining)
    return None if elected is None else replace(elected, leader_epoch=state.leader_epoch)


def _elect_anyone(
    state: PartitionState, live: Collection[NodeId], draining: Collection[NodeId]
) -> PartitionState | None:
    return elections.elect(state, live, draining, unclean=True)


def _restart_in_same_epoch(
    state: PartitionState, node: NodeId, live: Collection[NodeId], kept: Kept
) -> PartitionState | None:
    return None if kept is Kept.ALL else elections.restart(state, node, live, kept)


def _restart_trusting(
    state: PartitionState, node: NodeId, live: Collection[NodeId], kept: Kept
) -> PartitionState | None:
    return elections.restart(state, node, live, Kept.ALL)


def _resign_in_same_epoch(
    state: PartitionState, node: NodeId, live: Collection[NodeId], draining: Collection[NodeId]
) -> PartitionState | None:
    resigned = elections.resign(state, node, live, draining)
    return None if resigned is None else replace(resigned, leader_epoch=state.leader_epoch)


def _remove_in_same_epoch(state: PartitionState, live: Collection[NodeId]) -> PartitionState | None:
    done = elections.advance_reassignment(state, live)
    kept = done is not None and done.leader == state.leader
    return replace(done, leader_epoch=state.leader_epoch) if done is not None and kept else done


def _never_diverging(
    history: History, leader_epoch: LeaderEpoch, offset: Offset, last_epoch: LeaderEpoch
) -> tuple[LeaderEpoch, Offset] | None:
    return None


def _cut_nothing(view: LogView, answer: FetchAnswer) -> Decision:
    if answer.diverging is not None:
        return Append(b"", answer.high_watermark, answer.log_start_offset)
    return following.decide(view, answer)


RULES: Final = Rules()

MUTANTS: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        "a growth counts only when it is written": replace(RULES, leadership=_GrowthCountsWhenWritten),
        "a shrink counts before it is written": replace(RULES, leadership=_ShrinkCountsAtOnce),
        "a lost answer is taken for a no": replace(RULES, leadership=_LostAnswerMeansNo),
        "a leader commits by itself": replace(RULES, leadership=_CommitsAlone),
        "an election keeps the epoch": replace(RULES, elect=_elect_in_same_epoch),
        "anyone alive is elected": replace(RULES, elect=_elect_anyone),
        "a restarted leader goes on in its epoch": replace(RULES, restart=_restart_in_same_epoch),
        "a lost disk is trusted": replace(RULES, restart=_restart_trusting),
        "handing over keeps the epoch": replace(RULES, resign=_resign_in_same_epoch),
        "a silent follower counts no more before it is written": replace(RULES, leadership=_SilentCountsForNothing),
        "a replica that leaves does not end the epoch": replace(RULES, advance=_remove_in_same_epoch),
        "histories are not compared": replace(RULES, diverging=_never_diverging),
        "a history that parts counts": replace(RULES, counts_diverging=True),
        "a follower counts before it has synced": replace(RULES, syncs_before_fetching=False),
        "a follower cuts at its high watermark": replace(RULES, cuts_at_high_watermark=True),
        "fetches of another epoch count": replace(RULES, checks_leader_epoch=False),
        "what a dead process told counts": replace(
            RULES, leadership=_JoinsByOldProgress, checks_broker_epoch=False, compares_registrations=False
        ),
    }
)
