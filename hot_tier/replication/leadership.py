"""What a leader knows in one leader epoch: how far each replica is, what is committed, who should be in sync.

Pure: no clock, no store, no socket. `led_partition` tells it what was synced and fetched, `isr` writes what it wants
into the store. One object per epoch; it ends with the epoch, and nothing of it is carried into the next.

The high watermark may pass a record only when every broker that the store may count as in sync holds it durably,
because any of those may be the next leader. What the store says is not known at every moment, so the members that
count are all that it may say:
- what the store was last seen to say, and
- every member of a proposal that was sent for that version and is not known to have failed. A growth counts before it
  is written, a shrink only after. When the answer is lost the write may have happened, or may happen yet, so the
  proposal counts until a later version is seen: then it has happened and is part of that version, or never will.
Others than the leader only ever shrink the in-sync set within an epoch, so a version not yet seen counts too many at
worst.

What the callers must see to (the simulation in `tests/sim` loses records when one of these is left out):
- `fetched` is called only for a fetch in this leader epoch, with the broker epoch that the image shows for that node,
  and whose history does not part from ours (`diverging` is None): the offset of a history that parts says nothing.
- The follower has everything below the offset it fetches at on its disk (synced if `flush=commit`) before it sends
  the fetch.
- A proposal is written with comparisons on the partition's version and, for every added member, on its registration
  being the very one in `live`.
- `proposed` comes before the write is sent; then exactly one of `settled`, `refused` and `unanswered`.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.store import ABSENT, Revision
from hot_tier.ids import NO_EPOCH, LeaderEpoch, NodeId, Offset
from hot_tier.replication.watermark import high_watermark


class Silence(NamedTuple):
    """The brokers that have been registered since then and asked for nothing: they hang, or the network to them is
    cut."""

    since_ms: int
    nodes: Set[NodeId]


NOBODY_IS_SILENT: Final = Silence(0, frozenset())
NOT_ALONE: Final = 2
"""A member leaves for its silence only if so many are left. With one, a single copy would count."""


@dataclass(slots=True)
class _Follower:
    broker_epoch: int
    offset: Offset
    caught_up_ms: int
    """When it last held all that the log had at that time."""
    fetched_ms: int
    log_end: Offset
    """Of the leader, at the last fetch."""


class Leadership:
    __slots__ = (
        "_counted",
        "_ends",
        "_followers",
        "_may_be_in_sync",
        "_node",
        "_out",
        "_proposed_for",
        "_since_ms",
        "_state",
        "_unanswered",
        "epoch_start",
        "high_watermark",
        "in_sync",
    )

    def __init__(
        self, node: NodeId, state: PartitionState, epoch_start: Offset, high_watermark: Offset, now_ms: int
    ) -> None:
        """`epoch_start` is the log end when leading begins, `high_watermark` what this node knew as a follower."""
        assert state.leader == node
        self._node = node
        self._state = state
        self._since_ms = now_ms
        self._ends: dict[NodeId, Offset] = {}
        self._followers: dict[NodeId, _Follower] = {}
        self._may_be_in_sync: frozenset[NodeId] = frozenset()
        self._out = False
        self._proposed_for: Revision = ABSENT
        self._unanswered = False
        self._counted: Collection[NodeId] = state.isr
        self.epoch_start = epoch_start
        self.high_watermark = high_watermark
        self.in_sync: tuple[NodeId, ...] = state.isr
        """As the store was last seen to say: what min.insync.replicas is compared with."""

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._state.leader_epoch

    @property
    def state(self) -> PartitionState:
        """Returns the state that the next proposal compares with and changes."""
        return self._state

    # How far the replicas are

    @property
    def held(self) -> Offset:
        """Returns how far this node's own log is known to be durable."""
        return self._ends.get(self._node, Offset(0))

    def holds(self, durable_end: Offset) -> bool:
        """Notes that this node's own log is durable up to here. Returns whether the high watermark moved."""
        self._ends[self._node] = durable_end
        return self._commit()

    def fetched(self, node: NodeId, broker_epoch: int, offset: Offset, log_end: Offset, now_ms: int) -> bool:
        """Notes that a follower fetches at `offset` while our log ends at `log_end`. Returns whether the high watermark
        moved."""
        if node not in self._state.replicas or node == self._node:
            return False
        before = self._followers.get(node)
        caught_up_ms = self._since_ms if node in self._counted else -1
        if before is not None:
            caught_up_ms = before.caught_up_ms
            if before.broker_epoch == broker_epoch and offset >= before.log_end:
                caught_up_ms = max(caught_up_ms, before.fetched_ms)
        if offset >= log_end:
            caught_up_ms = now_ms
        self._followers[node] = _Follower(broker_epoch, offset, caught_up_ms, now_ms, log_end)
        self._ends[node] = offset
        return self._commit()

    def _commit(self) -> bool:
        before = self.high_watermark
        self.high_watermark = high_watermark(before, self._ends, self._counted)
        return self.high_watermark != before

    # Who should be in sync

    def isr_wanted(
        self,
        now_ms: int,
        lag_max_ms: int,
        live: Mapping[NodeId, int],
        draining: Collection[NodeId] = (),
        silence: Silence = NOBODY_IS_SILENT,
        min_in_sync: int = 1,
    ) -> tuple[NodeId, ...] | None:
        """Returns the in-sync set to propose, or None if the set is right or a proposal is out.

        `live` has the broker epoch of every registered broker. A member leaves when it is not alive or has not been
        caught up for `lag_max_ms`, and a silent one as soon as the others are enough to commit without it. A replica
        joins when it is alive, heard of, not about to stop, keeps up, and holds all that is committed: up to the high
        watermark, and up to where this epoch began, below which the old leader may have committed. After a proposal
        without an answer the right set is proposed too, even if it is the one we know: only a later version ends the
        doubt.
        """
        if self._out:
            return None
        silent = self._silent(silence)
        staying = [node for node in self.in_sync if node == self._node or self._stays(node, now_ms, lag_max_ms, live)]
        heard = [node for node in staying if node == self._node or node not in silent]
        if len(heard) >= max(min_in_sync, NOT_ALONE):
            staying = heard
        joining = [
            node
            for node in self._state.replicas
            if node not in self.in_sync and node not in draining and node not in silent
            if self._joins(node, now_ms, lag_max_ms, live)
        ]
        wanted = (*staying, *joining)
        return None if wanted == self.in_sync and not self._unanswered else wanted

    def is_stranded(self, silence: Silence, live: Collection[NodeId], min_in_sync: int) -> bool:
        """Returns whether too few replicas are heard of to commit anything, and the others are enough without us.

        Those that should be in sync count too: of several that are cut off, the first to be silent may have left the
        set while the others seemed to be there.
        """
        silent = self._silent(silence)

        def too_few(replicas: Collection[NodeId]) -> bool:
            others = [node for node in replicas if node != self._node and node in live]
            return 1 + sum(node not in silent for node in others) < min_in_sync <= len(others)

        has_successor = any(node in live for node in self.in_sync if node != self._node)
        return has_successor and (too_few(self.in_sync) or too_few(self._state.replicas))

    def _silent(self, silence: Silence) -> Set[NodeId]:
        """Returns the silent brokers. One that has never asked this leader may not have heard of it yet."""
        return frozenset() if self._since_ms > silence.since_ms else silence.nodes

    def _stays(self, node: NodeId, now_ms: int, lag_max_ms: int, live: Mapping[NodeId, int]) -> bool:
        follower = self._followers.get(node)
        caught_up_ms = self._since_ms if follower is None else follower.caught_up_ms
        return node in live and now_ms - caught_up_ms <= lag_max_ms

    def _joins(self, node: NodeId, now_ms: int, lag_max_ms: int, live: Mapping[NodeId, int]) -> bool:
        follower = self._followers.get(node)
        return (
            follower is not None
            and live.get(node) == follower.broker_epoch
            and follower.caught_up_ms >= 0
            and now_ms - follower.caught_up_ms <= lag_max_ms
            and follower.offset >= max(self.high_watermark, self.epoch_start)
        )

    # What the store says

    def proposed(self, isr: Collection[NodeId]) -> None:
        """Notes that `isr` is about to be written, compared with `state`."""
        self._out = True
        self._proposed_for = self._state.version
        self._may_be_in_sync |= frozenset(isr)
        self._count()

    def settled(self, state: PartitionState) -> bool:
        """Notes that the proposal was written and is `state` now. Returns whether the high watermark moved."""
        self._out = False
        return self.confirm(state)

    def refused(self) -> None:
        """Notes that a comparison failed: the proposal was not written. An earlier one without an answer may have
        been."""
        self._out = False
        if not self._unanswered:
            self._may_be_in_sync = frozenset()
            self._count()

    def unanswered(self) -> None:
        """Notes that nobody knows whether the proposal was written or will be. Propose again: the first one written
        wins."""
        self._out = False
        self._unanswered |= self._proposed_for == self._state.version

    def confirm(self, state: PartitionState) -> bool:
        """Takes over what the store or the image says, in this epoch. Returns whether the high watermark moved. Older
        news is ignored."""
        assert state.leader_epoch == self.leader_epoch
        if state.version <= self._state.version:
            return False
        for node in [node for node in self._followers if node not in state.isr]:
            # It may have been removed and added again, with its log deleted in between: only its next fetch counts.
            del self._followers[node]
            self._ends.pop(node, None)
        self._state = state
        self.in_sync = state.isr
        self._may_be_in_sync = frozenset()
        self._unanswered = False
        self._count()
        return self._commit()

    def _count(self) -> None:
        self._counted = self.in_sync if not self._may_be_in_sync else self._may_be_in_sync.union(self.in_sync)


class History(Protocol):
    """Which leader epoch wrote which offsets of a log; a `PartitionLog` is one."""

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Returns the epoch of the last record, or NO_EPOCH if there is none."""
        ...

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest epoch at or below `epoch` with records, and where it ends; (-1, -1) for one after the
        last."""
        ...


def end_of_epoch(history: History, leader_epoch: LeaderEpoch, epoch: int) -> tuple[LeaderEpoch, Offset]:
    """Returns, as leader, the greatest epoch at or below `epoch` and its end offset; (-1, -1) for one not begun, or
    below 0.

    The log knows only epochs in which something was written; the current one, and those between, end at the log end.
    """
    if epoch == leader_epoch:
        return leader_epoch, history.log_end_offset
    if epoch > leader_epoch or epoch < 0:
        return NO_EPOCH, Offset(-1)
    found, end_offset = history.end_of_epoch(epoch)
    if end_offset >= 0:
        return found, end_offset
    last = history.leader_epoch
    return LeaderEpoch(epoch) if last == NO_EPOCH else last, history.log_end_offset


def diverging(
    history: History, leader_epoch: LeaderEpoch, offset: Offset, last_epoch: LeaderEpoch
) -> tuple[LeaderEpoch, Offset] | None:
    """Returns, as leader, where the history of a reader parts from ours, if its records end at `offset` in
    `last_epoch`.

    Returns (-1, -1) for an epoch that has not begun. A reader that has no records, or does not tell, fits any history.
    """
    if last_epoch < 0:
        return None
    epoch, end_offset = end_of_epoch(history, leader_epoch, last_epoch)
    return None if epoch == last_epoch and end_offset >= offset else (epoch, end_offset)
