"""Plans where replicas should be: pure functions of partition states and brokers.

There are two aims. A broker that leaves holds nothing in the end. The others hold about the same number of replicas and
are the preferred leaders of about the same number of partitions. Every replica that moves is a copy over the network,
so a plan changes the order of replicas before it moves any.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from hot_tier.cluster.elections import reassignment_target
from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.placement import Places, shared
from hot_tier.errors import InvalidReplication
from hot_tier.ids import NodeId, TopicPartition

Plan = dict[TopicPartition, tuple[NodeId, ...]]
"""The replicas that each partition should have; only those that should change."""


def plan_leaving(
    states: Mapping[TopicPartition, PartitionState],
    leaving: Collection[NodeId],
    staying: Collection[NodeId],
    places: Places,
) -> Plan:
    """Moves each replica of a leaving broker to the least loaded broker that stays, on a host and in a rack
    without a replica if there is one.

    Raises InvalidReplication if a partition has as many replicas as there are brokers that stay.
    """
    placed = {tp: reassignment_target(state) for tp, state in states.items()}
    load = _load(placed, staying)
    plan: Plan = {}
    for tp, replicas in placed.items():
        moved = list(replicas)
        for at, node in enumerate(replicas):
            if node not in leaving:
                continue
            others = [other for other in moved if other != node]
            able = [broker for broker in staying if broker not in others]
            if not able:
                raise InvalidReplication(
                    f"{tp} has {len(replicas)} replicas, and only {len(staying)} brokers would stay",
                    hint="add a broker first, or lower the replication factor of the topic",
                )
            moved[at] = _best(able, others, load, places)
            load[moved[at]] += 1
        if tuple(moved) != replicas:
            plan[tp] = tuple(moved)
    return plan


def plan_widening(
    states: Mapping[TopicPartition, PartitionState], width: int, brokers: Collection[NodeId], places: Places
) -> Plan:
    """Gives partitions with fewer replicas than `width` more, as far as there are brokers. The old replicas stay
    first."""
    placed = {tp: reassignment_target(state) for tp, state in states.items()}
    load = _load(placed, brokers)
    plan: Plan = {}
    for tp, replicas in placed.items():
        wider = list(replicas)
        while len(wider) < width and (able := [broker for broker in brokers if broker not in wider]):
            wider.append(_best(able, wider, load, places))
            load[wider[-1]] += 1
        if len(wider) > len(replicas):
            plan[tp] = tuple(wider)
    return plan


def plan_rebalance(
    states: Mapping[TopicPartition, PartitionState], brokers: Collection[NodeId], places: Places
) -> Plan:
    """Plans replicas of a partition on different hosts and racks as far as there are some. Then the same number of
    replicas and preferred leaders on each of `brokers`, to within one where hosts and racks allow it."""
    before = {tp: reassignment_target(state) for tp, state in states.items()}
    placed = dict(before)
    load = _load(placed, brokers)
    _separate(placed, load, places)
    held: dict[NodeId, dict[TopicPartition, None]] = {node: {} for node in brokers}
    for tp, replicas in sorted(placed.items()):
        for node in replicas:
            if node in held:
                held[node][tp] = None
    while (step := _lighten(placed, held, load, places)) is not None:
        tp, full, free = step
        placed[tp] = tuple(free if node == full else node for node in placed[tp])
        del held[full][tp]
        held[free][tp] = None
        load[full] -= 1
        load[free] += 1
    _even_leaders(placed, brokers)
    return {tp: replicas for tp, replicas in placed.items() if replicas != before[tp]}


def _separate(placed: Plan, load: Counter[NodeId], places: Places) -> None:
    """Moves replicas that share a host or a rack with another one of their partition, where a broker shares less."""
    for tp in sorted(placed):
        for node in reversed(placed[tp]):
            others = [other for other in placed[tp] if other != node]
            shares = shared(node, others, places)
            able = [broker for broker in load if broker not in placed[tp]] if any(shares) else []
            if not able:
                continue
            best = _best(able, others, load, places)
            if shared(best, others, places) < shares:
                placed[tp] = tuple(best if each == node else each for each in placed[tp])
                load[best] += 1
                if node in load:
                    load[node] -= 1


def _best(able: Sequence[NodeId], others: Sequence[NodeId], load: Mapping[NodeId, int], places: Places) -> NodeId:
    """Returns the best broker for a replica beside `others`: one on another host and in another rack, then the least
    loaded."""
    return min(able, key=lambda broker: (shared(broker, others, places), load[broker], broker))


def _lighten(
    placed: Mapping[TopicPartition, Sequence[NodeId]],
    held: Mapping[NodeId, Collection[TopicPartition]],
    load: Mapping[NodeId, int],
    places: Places,
) -> tuple[TopicPartition, NodeId, NodeId] | None:
    """Moves one replica from a fuller to an emptier broker. No partition gets fewer hosts or racks than before."""
    for full in sorted(load, key=lambda node: (-load[node], node)):
        for free in sorted(load, key=lambda node: (load[node], node)):
            if load[full] - load[free] < 2:
                break
            for tp in held[full]:
                others = [node for node in placed[tp] if node != full]
                if free not in others and shared(free, others, places) <= shared(full, others, places):
                    return tp, full, free
    return None


def _even_leaders(placed: Plan, brokers: Collection[NodeId]) -> None:
    """Puts another replica first where that evens out the preferred leaders. Nothing is copied for that.

    First one broker gives a leadership directly to another. Then come chains: a broker with too many gives one to a
    broker that gives one on, until a broker with too few has one more.
    """
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in placed.values() if replicas[0] in brokers)

    def hand(tp: TopicPartition, heir: NodeId) -> None:
        leads[placed[tp][0]] -= 1
        leads[heir] += 1
        placed[tp] = (heir, *(node for node in placed[tp] if node != heir))

    for tp in sorted(placed):
        able = [node for node in placed[tp] if node in leads]
        heir = min(able, key=lambda node: leads[node], default=placed[tp][0])
        if placed[tp][0] in leads and leads[placed[tp][0]] - leads[heir] >= 2:
            hand(tp, heir)
    while (chain := _chain(placed, leads)) is not None:
        for tp, heir in chain:
            hand(tp, heir)


def _chain(
    placed: Mapping[TopicPartition, Sequence[NodeId]], leads: Mapping[NodeId, int]
) -> list[tuple[TopicPartition, NodeId]] | None:
    """Returns partitions and their new first replicas, from a broker that leads too many to one that leads at least two
    fewer."""
    heirs: dict[NodeId, dict[NodeId, TopicPartition]] = {}
    for tp in sorted(placed):
        first, *rest = placed[tp]
        if first in leads:
            for node in rest:
                if node in leads:
                    heirs.setdefault(first, {}).setdefault(node, tp)
    for full in sorted(leads, key=lambda node: (-leads[node], node)):
        found = _search(heirs, full, leads)
        if found is not None:
            return found
    return None


def _search(
    heirs: Mapping[NodeId, Mapping[NodeId, TopicPartition]], full: NodeId, leads: Mapping[NodeId, int]
) -> list[tuple[TopicPartition, NodeId]] | None:
    """Searches breadth first: the shortest chain changes the fewest leaders."""
    ways: dict[NodeId, list[tuple[TopicPartition, NodeId]]] = {full: []}
    frontier = [full]
    while frontier:
        following = []
        for node in frontier:
            for heir, tp in heirs.get(node, {}).items():
                if heir in ways:
                    continue
                ways[heir] = [*ways[node], (tp, heir)]
                if leads[full] - leads[heir] >= 2:
                    return ways[heir]
                following.append(heir)
        frontier = following
    return None


def _load(placed: Mapping[TopicPartition, Sequence[NodeId]], brokers: Collection[NodeId]) -> Counter[NodeId]:
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(node for replicas in placed.values() for node in replicas if node in brokers)
    return load
