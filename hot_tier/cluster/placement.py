"""Which brokers hold a new partition: a pure decision over the brokers that are alive.

Leaders are dealt round all brokers. The other replicas of a partition follow in the same round, shifted by one more
after every full round. So the partitions that one broker leads do not all have the same follower, which would get all
of its work when it is lost. Racks and hosts come first: no rack holds two replicas while another rack holds none, and
no host holds two while another host holds none.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import InvalidAssignment, InvalidReplication
from hot_tier.ids import NodeId


class Place(NamedTuple):
    """Where a broker stands. A broker without a rack or host shares it with nobody."""

    rack: str | None = None
    host: str | None = None


Places = Mapping[NodeId, Place]
"""A broker that is not in this mapping stands alone."""

_ANYWHERE = Place()


def places_of(brokers: Iterable[BrokerInfo]) -> dict[NodeId, Place]:
    return {broker.id: Place(broker.rack, broker.host_name) for broker in brokers}


def count_hosts(places: Places) -> int:
    return len({_host(broker, places) for broker in places})


def deal_order(places: Places) -> list[NodeId]:
    """Returns the brokers in the order in which `place` deals them: one of every rack, then the second of every rack,
    and so on. Within a rack likewise by hosts."""
    by_host = _in_turns(places, lambda broker: _host(broker, places))
    return _in_turns(by_host, lambda broker: _rack(broker, places))


def _in_turns(brokers: Iterable[NodeId], group: Callable[[NodeId], object]) -> list[NodeId]:
    groups: dict[object, list[NodeId]] = {}
    for broker in brokers:
        groups.setdefault(group(broker), []).append(broker)
    return [broker for row in zip_longest(*groups.values()) for broker in row if broker is not None]


def place(
    first_partition: int,
    count: int,
    replication_factor: int,
    brokers: Sequence[NodeId],
    start: int,
    places: Places | None = None,
) -> list[tuple[NodeId, ...]]:
    """Returns the replicas of the partitions from `first_partition` on. The first replica is the preferred leader.

    `brokers` are in `deal_order`. `start` shifts the whole, so that many small topics do not all have their leader on
    the first broker.
    """
    if replication_factor < 1:
        raise InvalidReplication(
            f"replication factor {replication_factor}", hint="it must be 1 or more, or -1 for the default"
        )
    if replication_factor > len(brokers):
        raise InvalidReplication(
            f"replication factor {replication_factor} needs as many brokers, {len(brokers)} "
            f"{'is' if len(brokers) == 1 else 'are'} alive",
            hint="lower the replication factor or add brokers",
        )
    return [
        spread(_deal(brokers, start + partition), replication_factor, places or {})
        for partition in range(first_partition, first_partition + count)
    ]


def _deal(brokers: Sequence[NodeId], turn: int) -> Iterator[NodeId]:
    """Returns all brokers in the order in which a partition at this turn takes them."""
    around = len(brokers)
    yield brokers[turn % around]
    for step in range(around - 1):
        shifted = (turn // around + step) % (around - 1)
        yield brokers[(turn + 1 + shifted) % around]


def spread(candidates: Iterable[NodeId], count: int, places: Places) -> tuple[NodeId, ...]:
    """Returns `count` brokers, the first candidate among them: each time the first of those that share least with the
    brokers before it."""
    chosen: list[NodeId] = []
    waiting = list(candidates)
    hosts: Counter[object] = Counter()
    racks: Counter[object] = Counter()
    while waiting and len(chosen) < count:
        best, least = waiting[0], None
        for broker in waiting:
            shares = (hosts[_host(broker, places)], racks[_rack(broker, places)])
            if least is None or shares < least:
                best, least = broker, shares
            if least == (0, 0):
                break
        waiting.remove(best)
        chosen.append(best)
        hosts[_host(best, places)] += 1
        racks[_rack(best, places)] += 1
    return tuple(chosen)


def shared(broker: NodeId, others: Collection[NodeId], places: Places) -> tuple[bool, bool]:
    """Returns what a replica here would share with replicas on `others`: the host, the rack. The less the smaller.

    A broker in a rack of its own is on a host of its own, so the host may come first."""
    return (
        _host(broker, places) in {_host(other, places) for other in others},
        _rack(broker, places) in {_rack(other, places) for other in others},
    )


def _host(broker: NodeId, places: Places) -> object:
    return places.get(broker, _ANYWHERE).host or broker


def _rack(broker: NodeId, places: Places) -> object:
    return places.get(broker, _ANYWHERE).rack or _host(broker, places)


def check_assignment(
    assignment: Mapping[int, Sequence[int]], first_partition: int, brokers: Sequence[NodeId]
) -> list[tuple[NodeId, ...]]:
    """Returns a caller's assignment in partition order. Raises InvalidAssignment, which says what is wrong."""
    expected = range(first_partition, first_partition + len(assignment))
    if sorted(assignment) != list(expected):
        raise InvalidAssignment(
            f"the assignment names the partitions {sorted(assignment)}",
            hint=f"name each of {expected.start} to {expected.stop - 1} once",
        )
    placed = []
    width = len(assignment[first_partition])
    for partition in expected:
        replicas = tuple(NodeId(node) for node in assignment[partition])
        if not replicas:
            raise InvalidAssignment(f"partition {partition} is assigned to no broker")
        if len(set(replicas)) != len(replicas):
            raise InvalidAssignment(f"partition {partition} names a broker twice: {list(replicas)}")
        if len(replicas) != width:
            raise InvalidAssignment(
                f"partition {partition} has {len(replicas)} replicas, partition {first_partition} has {width}",
                hint="all partitions of a topic have the same number",
            )
        unknown = set(replicas) - set(brokers)
        if unknown:
            raise InvalidAssignment(
                f"partition {partition} is assigned to brokers that are not there: {sorted(unknown)}",
                hint=f"alive are {list(brokers)}",
            )
        placed.append(replicas)
    return placed
