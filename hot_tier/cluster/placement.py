"""Which brokers hold a new partition: a pure decision over the brokers that are alive."""

from collections.abc import Mapping, Sequence

from hot_tier.errors import InvalidAssignment, InvalidReplication
from hot_tier.ids import NodeId


def place(
    first_partition: int, count: int, replication_factor: int, brokers: Sequence[NodeId], start: int
) -> list[tuple[NodeId, ...]]:
    """Replicas of partitions `first_partition` and up, dealt round; the first of each is its preferred leader.

    `start` shifts the whole, so that the leaders of many small topics do not all fall on the first broker.
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
    around = len(brokers)
    return [
        tuple(brokers[(start + partition + replica) % around] for replica in range(replication_factor))
        for partition in range(first_partition, first_partition + count)
    ]


def check_assignment(
    assignment: Mapping[int, Sequence[int]], first_partition: int, brokers: Sequence[NodeId]
) -> list[tuple[NodeId, ...]]:
    """An assignment as a caller wrote it, in partition order, or InvalidAssignment that says what is wrong."""
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
