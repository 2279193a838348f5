"""What must hold of leader epochs and replicas, over a history. Pure, as `checker.py` beside the package."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker import ONE_COPY, REPLICATED, Check
from tests.chaos.history import History, Outcome, StoredBatch


def one_leader_per_epoch(history: History) -> Iterator[str]:
    """Whoever answers in an epoch, or acknowledged what is stored in it, is always the same broker."""
    leaders: dict[tuple[int, int], set[int]] = defaultdict(set)
    for end in history.epoch_ends:
        leaders[end.partition, end.leader_epoch].add(end.node)
    epochs = _epoch_of_offsets(history)
    for send in history.sends:
        if send.outcome is Outcome.OK and send.node and (send.partition, send.offset) in epochs:
            leaders[send.partition, epochs[send.partition, send.offset]].add(send.node)
    for (partition, epoch), nodes in leaders.items():
        if len(nodes) > 1:
            yield f"partition {partition} had the leaders {sorted(nodes)} in epoch {epoch}"


def ends_never_go_back_within_an_epoch(history: History) -> Iterator[str]:
    newest: dict[tuple[int, int], int] = {}
    for end in history.epoch_ends:
        key = end.partition, end.leader_epoch
        if end.high < newest.get(key, 0):
            yield f"partition {key[0]} ended at {newest[key]} and then at {end.high}, both in epoch {key[1]}"
        newest[key] = max(end.high, newest.get(key, 0))


def a_later_epoch_keeps_what_an_earlier_one_had(history: History) -> Iterator[str]:
    """No epoch's first word on the end is below the last word of an earlier one: that was committed."""
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for end in history.epoch_ends:
        first.setdefault((end.partition, end.leader_epoch), end.high)
        last[end.partition, end.leader_epoch] = end.high
    for (partition, before), (other, after) in pairwise(sorted(first)):
        if partition == other and first[other, after] < last[partition, before]:
            told = f"{last[partition, before]} in epoch {before}, then at {first[other, after]} in {after}"
            yield f"partition {partition} ended at {told}"


def epochs_grow_along_the_log(history: History) -> Iterator[str]:
    for node, partitions in history.stored.items():
        for partition, batches in partitions.items():
            for before, after in pairwise(batches):
                if after.leader_epoch < before.leader_epoch or after.first_offset != before.last_offset + 1:
                    yield f"node {node}, partition {partition}: {after} follows {before}"


def replicas_are_equal(history: History) -> Iterator[str]:
    """Byte for byte, from where all of them begin up to the end that clients were told."""
    ends = {partition: entries[-1][0] + 1 for partition, entries in history.log.items() if entries}
    for partition, end in ends.items():
        copies = {node: partitions.get(partition, []) for node, partitions in history.stored.items()}
        begin = max((batches[0].first_offset if batches else 0 for batches in copies.values()), default=0)
        wanted = {node: [b for b in batches if begin <= b.first_offset < end] for node, batches in copies.items()}
        for (one, first), (other, second) in pairwise(wanted.items()):
            if first != second:
                yield f"partition {partition}: node {one} and node {other} differ: {_first_difference(first, second)}"
            elif not first or first[-1].last_offset + 1 < end:
                yield f"partition {partition}: node {one} has nothing up to {end}: {first[-1:]}"


def _first_difference(one: list[StoredBatch], other: list[StoredBatch]) -> str:
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return f"{mine} and {theirs}"
    return f"they end with {one[-1:]} and {other[-1:]}"


def _epoch_of_offsets(history: History) -> dict[tuple[int, int], int]:
    return {
        (partition, offset): batch.leader_epoch
        for partitions in history.stored.values()
        for partition, batches in partitions.items()
        for batch in batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


OF_A_CLUSTER: tuple[Check, ...] = (
    one_leader_per_epoch,
    ends_never_go_back_within_an_epoch,
    a_later_epoch_keeps_what_an_earlier_one_had,
    epochs_grow_along_the_log,
    replicas_are_equal,
)
WITH_ALL_ACKS: tuple[Check, ...] = (*REPLICATED, *OF_A_CLUSTER)
WITH_ONE_ACK: tuple[Check, ...] = (*ONE_COPY, *OF_A_CLUSTER)
