"""Which functions decide in a run: the real ones, or one of them broken in a way that somebody could break it.

Production drivers call most of them by name: for the time of a run the name stands for what is chosen here.

A simulation is worth what it finds. Each mutant is a mistake that has cost some log service records; `test_mutants`
demands that the checkers catch every one of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from hot_tier.cluster import elections
from hot_tier.cluster.elections import Kept
from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.partition_writes import PartitionWrite, swap_states
from hot_tier.cluster.store import Compare, MetadataStore
from hot_tier.ids import LeaderEpoch, NodeId, Offset
from hot_tier.replication import following
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.following import Append, Decision, FetchAnswer, LogView
from hot_tier.replication.leadership import NOBODY_IS_SILENT, History, Leadership, Silence, diverging
from offloader.settings import OffloadSettings
from tests.sim.archive import SETTINGS
from tests.sim.disk import Log
from tests.sim.roles import Leading
from tests.sim.world import Process

SILENT_MS: Final = 450


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
    followed: type[FollowedPartition] = FollowedPartition
    write: Callable[..., Awaitable[list[PartitionWrite]]] = swap_states
    """Writes in-sync sets."""
    offload: OffloadSettings = SETTINGS
    breaks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What else stands for another thing: names by the module or class that has them."""
    checks_leader_epoch: bool = True
    checks_broker_epoch: bool = True
    counts_diverging: bool = False
    ends_old_registration: bool = True

    @contextmanager
    def decide_for_production_code(self) -> Iterator[None]:
        """What production drivers call by name, in the time that the simulation runs in."""
        with ExitStack() as patches:
            for place, names in [*self._patches().items(), *self.breaks.items()]:
                patches.enter_context(patch.multiple(place, **names))
            yield

    def _patches(self) -> dict[str, dict[str, object]]:
        return {
            "hot_tier.replication.table": {
                "LedPartition": Leading,
                "FollowedPartition": self.followed,
                "steady_ms": _steady_ms,
            },
            "hot_tier.replication.led_partition": {"Leadership": self.leadership},
            "hot_tier.replication.local_partition": {"diverging": self.diverging},
            "hot_tier.replication.followed_partition": {"decide": self.decide},
            "hot_tier.replication.isr": {
                "resign": self.resign,
                "swap_states": self.write,
                "steady_ms": _steady_ms,
                "SILENT_MS": SILENT_MS,
            },
            "offloader.offloader": {"_MAX_PAUSE_MS": 600, "_AWAY_PAUSE_MS": 400},
            "offloader.partition_archive": {"producers_at": _producers_at, "LOOK_MS": 1_000},
            "offloader.follower_archive": {"AGAIN_MS": 500},
            "cold_tier.objects.bucket": {"os": SimpleNamespace(path=SimpleNamespace(getsize=lambda _: 0))},
            "offloader.failpoints": {"reach": _reach},
        }


def _steady_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _producers_at(log: Log, segments: object, offset: int, now_ms: int) -> bytes:
    return log.snapshots.get(offset, b"")


def _reach(place: str) -> None:
    """A step of archiving is a moment for a fault."""
    process: Process = asyncio.get_running_loop().process  # type: ignore[attr-defined]
    process.world.listener(place, process.name)


class _TellsBeforeSync(FollowedPartition):
    @property
    def is_durable(self) -> bool:
        return True


class _CutsAtHighWatermark(FollowedPartition):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.log.truncate_to(max(self.high_watermark, self.log.local_log_start_offset), 0)


async def _write_without_guards(
    store: MetadataStore, swaps: Sequence[PartitionWrite], guards: Sequence[Compare]
) -> list[PartitionWrite]:
    return await swap_states(store, swaps)


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
        "a follower counts before it has synced": replace(RULES, followed=_TellsBeforeSync),
        "a follower cuts at its high watermark": replace(RULES, followed=_CutsAtHighWatermark),
        "fetches of another epoch count": replace(RULES, checks_leader_epoch=False),
        "what a dead process told counts": replace(
            RULES, leadership=_JoinsByOldProgress, checks_broker_epoch=False, write=_write_without_guards
        ),
    }
)
