"""The checker of epochs and replicas finds what it is there for, and nothing in a good history."""

import pytest

from tests.chaos.cluster import epochs
from tests.chaos.history import EpochEnd, History, Outcome, Send, StoredBatch
from tests.chaos.values import Identity


def batch(first: int, last: int, epoch: int, data: bytes = b"") -> StoredBatch:
    return StoredBatch(first, last, epoch, data or b"%d-%d" % (first, last))


def good() -> History:
    """Node 1 leads in epoch 1, node 2 in epoch 2; both have acknowledged one of the records."""
    history = History()
    for offset, node in ((0, 1), (4, 2)):
        send = Send(Identity("p", offset, "n"), 0, ended_ns=offset, outcome=Outcome.OK, offset=offset, node=node)
        history.sends.append(send)
    history.log[0] = [(offset, Identity("p", offset, "n")) for offset in range(5)]
    history.epoch_ends += [EpochEnd(1, 0, 1, 2), EpochEnd(1, 0, 1, 3), EpochEnd(2, 0, 2, 3), EpochEnd(2, 0, 2, 5)]
    for node in (1, 2, 3):
        history.stored[node] = {0: [batch(0, 2, 1), batch(3, 4, 2)]}
    return history


def test_a_good_history_has_nothing_wrong():
    assert not [sentence for check in epochs.OF_A_CLUSTER for sentence in check(good())]


def test_what_lies_beyond_the_committed_end_may_differ():
    history = good()
    history.stored[3][0].append(batch(5, 5, 2))
    assert not [sentence for check in epochs.OF_A_CLUSTER for sentence in check(history)]


def two_answer_in_an_epoch(history: History) -> None:
    history.epoch_ends.append(EpochEnd(3, 0, 2, 5))


def another_acknowledges_in_an_epoch(history: History) -> None:
    history.sends[-1].node = 3


def go_back_within_an_epoch(history: History) -> None:
    history.epoch_ends.append(EpochEnd(2, 0, 2, 4))


def begin_below_the_epoch_before(history: History) -> None:
    history.epoch_ends.append(EpochEnd(3, 0, 3, 4))


def an_older_epoch_after_a_newer(history: History) -> None:
    history.stored[1][0].append(batch(5, 5, 1))


def a_hole_in_the_files(history: History) -> None:
    for node in history.stored:
        history.stored[node][0][1] = batch(4, 4, 2)


def a_replica_with_other_bytes(history: History) -> None:
    history.stored[2][0][0] = batch(0, 2, 1, b"other")


def a_replica_with_another_epoch(history: History) -> None:
    history.stored[2][0][1] = batch(3, 4, 3)


def a_replica_without_the_end(history: History) -> None:
    history.stored[2][0].pop()


def all_replicas_without_the_end(history: History) -> None:
    for node in history.stored:
        history.stored[node][0].pop()


FOUND_BY = {
    two_answer_in_an_epoch: epochs.one_leader_per_epoch,
    another_acknowledges_in_an_epoch: epochs.one_leader_per_epoch,
    go_back_within_an_epoch: epochs.ends_never_go_back_within_an_epoch,
    begin_below_the_epoch_before: epochs.a_later_epoch_keeps_what_an_earlier_one_had,
    an_older_epoch_after_a_newer: epochs.epochs_grow_along_the_log,
    a_hole_in_the_files: epochs.epochs_grow_along_the_log,
    a_replica_with_other_bytes: epochs.replicas_are_equal,
    a_replica_with_another_epoch: epochs.replicas_are_equal,
    a_replica_without_the_end: epochs.replicas_are_equal,
    all_replicas_without_the_end: epochs.replicas_are_equal,
}


@pytest.mark.parametrize("harm", FOUND_BY, ids=lambda harm: harm.__name__)
def test_a_violation_is_found(harm):
    history = good()
    harm(history)
    assert list(FOUND_BY[harm](history))
