"""Who leads a partition next, and who is in sync then: every change of a partition state that its leader does not make
itself.

Each function takes values and returns the new `PartitionState`, or None when there is nothing to do. Callers write the
result by compare-and-swap on `state.version` and decide again when that fails. Nothing here waits, reads or writes.

What every result keeps:
- Another leader, or none, means leader epoch + 1. Nobody ever leads an epoch that somebody led before, also not the
  same broker in an earlier process: what a process wrote last may be gone, and an offset must not get two values in
  one epoch.
- A replica that leaves ends the epoch too, even if the leader stays. It deletes its log when it hears of it; brought
  back before that, it would still fetch where its log ended, be counted in sync for it, and then delete the log. In the
  new epoch nobody listens to what it says before it has heard.
- A leader is in the in-sync set, and the in-sync set is within the replicas.
- The in-sync set only shrinks here, to members that hold everything committed; it grows by the leader alone, which
  knows who has caught up. It is never emptied to find a leader: while nobody of it is alive there is no leader. It is
  empty only when its last member said that it has lost its data: then nobody is known to hold what was committed, and
  only an unclean election makes a leader.

A reassignment lives in the state itself, as in Kafka: `replicas` holds the old and the new, those that were not
replicas before are `adding`, those that will not be after it are `removing`. A replica that an earlier reassignment
was adding and a later one does not want is both.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto

from hot_tier.cluster.model import NO_NODE, PartitionState
from hot_tier.ids import LeaderEpoch, NodeId


class Kept(Enum):
    """What a broker that starts still has of a partition that it held when it was last registered."""

    ALL = auto()
    """A clean stop; or `flush=commit`, which counts nothing before it is synced; or the machine ran on (same boot: a
    killed process leaves its writes in the page cache)."""
    MAYBE_NOT_TAIL = auto()
    """`flush=os` after the machine stopped: the newest records may be gone."""
    NOTHING = auto()
    """Another or an emptied data directory, or a log that is damaged where it was synced."""


def elect(
    state: PartitionState,
    live: Collection[NodeId],
    draining: Collection[NodeId] = (),
    *,
    unclean: bool = False,
) -> PartitionState | None:
    """Elects a leader where it is missing or not alive: the first replica that is in sync and alive. A draining broker
    is the last resort.

    With `unclean` any live replica may lead, and records that only the in-sync replicas hold are lost.
    """
    if state.leader in live:
        return None
    candidates = [node for node in state.replicas if node in live]
    in_sync = _in_sync(state, live)
    leader = _choose(candidates, in_sync, draining)
    if leader is None and unclean:
        leader = _choose(candidates, candidates, draining)
        in_sync = () if leader is None else (leader,)
    if leader is not None:
        return _led_by(state, leader, in_sync)
    return None if state.leader == NO_NODE else _led_by(state, NO_NODE, state.isr)


def resign(
    state: PartitionState, node: NodeId, live: Collection[NodeId], draining: Collection[NodeId] = ()
) -> PartitionState | None:
    """`node` is about to stop or is cut off: another in-sync replica leads, and nobody waits for `node` any more.

    If `node` is the last live in-sync replica nothing changes: it leads until it is gone, and again when it is back.
    """
    rest = tuple(member for member in state.isr if member != node)
    if node not in state.isr or not rest:
        return None
    if state.leader != node:
        return None if state.leader == NO_NODE else replace(state, isr=rest)
    successor = _choose(state.replicas, [member for member in rest if member in live], draining)
    return None if successor is None else _led_by(state, successor, rest)


def restart(state: PartitionState, node: NodeId, live: Collection[NodeId], kept: Kept) -> PartitionState | None:
    """`node` has started and is about to register. Its old registration must be gone before `state` is read.

    Otherwise a leader could later add `node` to the in-sync set because of what the old process said about its log.
    """
    others = [member for member in state.isr if member != node]
    successor = _choose(state.replicas, [member for member in others if member in live], ())
    if node not in state.isr:
        return None
    if kept is Kept.ALL or (kept is Kept.MAYBE_NOT_TAIL and not others):
        if state.leader != node:
            return None
        return _led_by(state, node if successor is None else successor, state.isr)
    rest = tuple(others)
    if state.leader != node:
        return replace(state, isr=rest)
    return _led_by(state, NO_NODE if successor is None else successor, rest)


def prefer(state: PartitionState, live: Collection[NodeId]) -> PartitionState | None:
    """The first replica leads if it is in sync and in `live`, from which the caller leaves out draining brokers."""
    preferred = state.replicas[0]
    if state.leader == preferred or preferred not in live or preferred not in state.isr:
        return None
    return _led_by(state, preferred, state.isr)


def led_alone(state: PartitionState, node: NodeId) -> PartitionState:
    """Returns the state of a partition that the only node takes over in a new epoch."""
    return PartitionState(leader=node, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=(node,), replicas=(node,))


# Reassignment


def reassignment_target(state: PartitionState) -> tuple[NodeId, ...]:
    """Returns the replicas after the reassignment, or the present ones if there is no reassignment."""
    return _without(state.replicas, state.removing)


def begin_reassignment(state: PartitionState, target: Sequence[NodeId]) -> PartitionState | None:
    """Replicas of `target` join; the others stay until `advance_reassignment` finds the target in sync.

    Replaces a reassignment that is under way.
    """
    before = _without(state.replicas, state.adding)
    replicas = (*target, *_without(state.replicas, target))
    begun = replace(
        state,
        replicas=replicas,
        adding=_without(replicas, before),
        removing=_without(state.replicas, target),
    )
    return None if begun == state else begun


def cancel_reassignment(state: PartitionState, live: Collection[NodeId]) -> PartitionState | None:
    """Goes back to the replicas before the reassignment. Returns None also while none of those can lead."""
    if not state.adding and not state.removing:
        return None
    return _confine(state, _without(state.replicas, state.adding), live)


def advance_reassignment(state: PartitionState, live: Collection[NodeId]) -> PartitionState | None:
    """Ends the reassignment once the whole target is in sync: the other replicas leave, and one of the target leads."""
    target = reassignment_target(state)
    if not (state.adding or state.removing) or not set(target) <= set(state.isr):
        return None
    return _confine(state, target, live)


def _confine(state: PartitionState, replicas: tuple[NodeId, ...], live: Collection[NodeId]) -> PartitionState | None:
    in_sync = _in_sync(state, replicas)
    confined = replace(state, replicas=replicas, isr=in_sync, adding=(), removing=())
    if state.leader in in_sync:
        return confined if set(replicas) >= set(state.replicas) else _led_by(confined, state.leader, in_sync)
    leader = _choose(replicas, [node for node in in_sync if node in live], ())
    return None if leader is None else _led_by(confined, leader, in_sync)


def _choose(order: Iterable[NodeId], eligible: Collection[NodeId], draining: Collection[NodeId]) -> NodeId | None:
    """Returns the first eligible broker that is not draining, else the first eligible one."""
    able = [node for node in order if node in eligible]
    return next((node for node in able if node not in draining), able[0] if able else None)


def _in_sync(state: PartitionState, among: Collection[NodeId]) -> tuple[NodeId, ...]:
    return tuple(node for node in state.isr if node in among)


def _without(nodes: Iterable[NodeId], left_out: Collection[NodeId]) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node not in left_out)


def _led_by(state: PartitionState, leader: NodeId, in_sync: tuple[NodeId, ...]) -> PartitionState:
    return replace(state, leader=leader, leader_epoch=LeaderEpoch(state.leader_epoch + 1), isr=in_sync)
