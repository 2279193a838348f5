"""Which brokers hold a new partition: a pure decision over the brokers that are alive.

Leaders are dealt round all brokers. The other replicas of a partition follow in the same round, shifted by one more
after every full round. So the partitions that one broker leads do not all have the same follower, which would get all
of its work when it is lost. Racks come first: no rack holds two replicas while another rack holds none.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from hot_tier.errors import InvalidAssignment, InvalidReplication
from hot_tier.ids import NodeId

Racks = Mapping[NodeId, str | None]
"""A broker that is not in it, or without a rack, stands alone."""


def rack_order(brokers: Sequence[NodeId], racks: Racks) -> list[NodeId]:
    """Returns the brokers in the order in which `place` deals them: one of every rack, then the second of every rack,
    and so on."""
    by_rack: dict[object, list[NodeId]] = {}
    for broker in brokers:
        by_rack.setdefault(_rack(broker, racks), []).append(broker)
    rounds = zip_longest(*by_rack.values())
    return [broker for row in rounds for broker in row if broker is not None]


def place(
    first_partition: int,
    count: int,
    replication_factor: int,
    brokers: Sequence[NodeId],
    start: int,
    racks: Racks | None = None,
) -> list[tuple[NodeId, ...]]:
    """Returns the replicas of the partitions from `first_partition` on. The first replica is the preferred leader.

    `brokers` are in `rack_order`. `start` shifts the whole, so that many small topics do not all have their leader on
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
        spread(_deal(brokers, start + partition), replication_factor, racks or {})
        for partition in range(first_partition, first_partition + count)
    ]


def _deal(brokers: Sequence[NodeId], turn: int) -> Iterator[NodeId]:
    """Returns all brokers in the order in which a partition at this turn takes them."""
    around = len(brokers)
    yield brokers[turn % around]
    for step in range(around - 1):
        shifted = (turn // around + step) % (around - 1)
        yield brokers[(turn + 1 + shifted) % around]


def spread(candidates: Iterator[NodeId] | Sequence[NodeId], count: int, racks: Racks) -> tuple[NodeId, ...]:
    """Returns the first `count` brokers. A rack that already has a replica is passed over until every rack has one."""
    chosen: list[NodeId] = []
    waiting = list(candidates)
    while waiting and len(chosen) < count:
        used: set[object] = set()
        passed_over = []
        for broker in waiting:
            rack = _rack(broker, racks)
            if len(chosen) < count and rack not in used:
                used.add(rack)
                chosen.append(broker)
            else:
                passed_over.append(broker)
        waiting = passed_over
    return tuple(chosen)


def _rack(broker: NodeId, racks: Racks) -> object:
    return racks.get(broker) or broker


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
