"""The machine of a transactional id: every row of the table of EndTxn, fencing, and the end of epochs."""

import pytest

from gateway.coordinators.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFencedByNewer,
    TransactionAbortable,
    TransactionTooLarge,
    WrongTransactionState,
)
from gateway.coordinators.transactions.states import FOLLOWING, IDLE, State
from gateway.coordinators.transactions.transaction import (
    LAST_EPOCH,
    MARKER_EPOCH,
    MAX_PARTITIONS,
    NONE,
    Accepted,
    Change,
    NeedsId,
    Producer,
    Refused,
    Transaction,
    abort,
    add,
    begin,
    completed,
    end,
    fence,
    is_expired,
    is_timed_out,
    time_out,
    verify,
)
from hot_tier.ids import PartitionId, TopicPartition

T0, T1 = TopicPartition("t", PartitionId(0)), TopicPartition("t", PartitionId(1))
ID, NEW_ID, EPOCH = 7, 8, 5
FENCED, WRONG, BUSY = Refused(ProducerFencedByNewer), Refused(WrongTransactionState), Refused(ConcurrentTransactions)
UNKNOWN = Refused(InvalidProducerIdMapping)


def stored(state: State, epoch: int = EPOCH, *, tv2: bool = True, **more) -> Transaction:
    partitions = frozenset() if state in IDLE else frozenset({T0})
    return Transaction(ID, epoch, 60_000, state, 1_000, partitions, 1_000, previous_id=ID, tv2=tv2, **more)


def ended(known, epoch, *, commit, tv2=True, new_id=None, producer_id=ID):
    return end(known, Producer(producer_id, epoch), commit, tv2, new_id, 2_000)


# EndTxn with TV2, row by row: a retry names the epoch before the stored one


@pytest.mark.parametrize(
    ("state", "abort_retry", "abort_current", "commit_retry", "commit_current"),
    [
        (State.EMPTY, FENCED, "bump", FENCED, WRONG),
        (State.ONGOING, FENCED, "bump", FENCED, "bump"),
        (State.COMPLETE_ABORT, "ok", "bump", FENCED, WRONG),
        (State.COMPLETE_COMMIT, WRONG, "bump", "ok", WRONG),
        (State.PREPARE_ABORT, BUSY, BUSY, FENCED, BUSY),
        (State.PREPARE_COMMIT, WRONG, BUSY, BUSY, BUSY),
    ],
)
def test_the_table_of_tv2(state, abort_retry, abort_current, commit_retry, commit_current):
    known = stored(state)
    cases = [
        (EPOCH - 1, False, abort_retry),
        (EPOCH, False, abort_current),
        (EPOCH - 1, True, commit_retry),
        (EPOCH, True, commit_current),
    ]
    for epoch, commit, expected in cases:
        decision = ended(known, epoch, commit=commit)
        if expected == "ok":
            assert decision == Accepted(known.producer)
        elif expected == "bump":
            assert isinstance(decision, Change)
            assert decision.to.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
            assert decision.to.epoch == EPOCH + 1
            assert decision.answer == Producer(ID, EPOCH + 1)
        else:
            assert decision == expected, (state, epoch, commit)


@pytest.mark.parametrize("state", [each for each in State if each not in (State.DEAD, State.PREPARE_EPOCH_FENCE)])
@pytest.mark.parametrize("epoch", [0, EPOCH - 2, EPOCH + 1, LAST_EPOCH])
@pytest.mark.parametrize("tv2", [True, False])
def test_no_other_epoch_ends_a_transaction(state, epoch, tv2):
    for commit in (True, False):
        assert ended(stored(state, tv2=tv2), epoch, commit=commit, tv2=tv2) == FENCED


@pytest.mark.parametrize("tv2", [True, False])
def test_an_unknown_producer_ends_nothing(tv2):
    assert ended(None, 0, commit=True, tv2=tv2) == UNKNOWN
    assert ended(stored(State.ONGOING), EPOCH, commit=True, producer_id=99, tv2=tv2) == UNKNOWN


@pytest.mark.parametrize(
    ("state", "on_commit", "on_abort"),
    [
        (State.EMPTY, WRONG, WRONG),
        (State.PREPARE_COMMIT, BUSY, WRONG),
        (State.PREPARE_ABORT, WRONG, BUSY),
        (State.COMPLETE_COMMIT, Accepted(Producer(ID, EPOCH)), WRONG),
        (State.COMPLETE_ABORT, WRONG, Accepted(Producer(ID, EPOCH))),
    ],
)
def test_the_table_of_tv1(state, on_commit, on_abort):
    known = stored(state, tv2=False)
    assert ended(known, EPOCH, commit=True, tv2=False) == on_commit
    assert ended(known, EPOCH, commit=False, tv2=False) == on_abort


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
@pytest.mark.parametrize("commit", [True, False])
def test_an_older_client_is_not_told_of_an_end_in_another_epoch(state, commit):
    assert ended(stored(state), EPOCH, commit=commit, tv2=False) == WRONG


def test_tv1_keeps_the_epoch():
    for commit, state in ((True, State.PREPARE_COMMIT), (False, State.PREPARE_ABORT)):
        decision = ended(stored(State.ONGOING, tv2=False), EPOCH, commit=commit, tv2=False)
        assert isinstance(decision, Change)
        assert (decision.to.state, decision.to.epoch, decision.to.partitions) == (state, EPOCH, {T0})
        assert decision.answer == Producer(ID, EPOCH)
        assert completed(decision.to, 3_000).producer == Producer(ID, EPOCH)


def test_a_commit_that_races_the_time_out_is_fenced_and_not_told_of_a_wrong_state():
    """KAFKA-20785: the producer did no wrong, and must know that it may begin anew."""
    aborted = time_out(stored(State.ONGOING), None, 100_000)
    assert isinstance(aborted, Change)
    assert ended(aborted.to, EPOCH, commit=True) == FENCED
    assert ended(completed(aborted.to, 1), EPOCH, commit=True) == FENCED


# InitProducerId


def test_the_first_producer_needs_an_id():
    assert begin(None, None, 1_000, None, 5) == NeedsId()
    decision = begin(None, None, 1_000, NEW_ID, 5)
    assert decision == Change(Transaction(NEW_ID, 0, 1_000, State.EMPTY, 5), Producer(NEW_ID, 0))


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_new_producer_raises_the_epoch_once(state):
    decision = begin(stored(state), None, 9_000, None, 5)
    assert isinstance(decision, Change)
    assert decision.answer == decision.to.producer == Producer(ID, EPOCH + 1)
    assert (decision.to.state, decision.to.timeout_ms, decision.to.partitions) == (State.EMPTY, 9_000, frozenset())


@pytest.mark.parametrize("state", [State.PREPARE_ABORT, State.PREPARE_COMMIT])
def test_a_new_producer_waits_for_what_is_decided(state):
    assert begin(stored(state), None, 1, None, 5) == BUSY


@pytest.mark.parametrize("tv2", [True, False])
def test_a_new_producer_aborts_what_is_open_and_raises_the_epoch_once(tv2):
    """KAFKA-19367: the abort and the fence are one step, and cost one epoch."""
    fenced = begin(stored(State.ONGOING, tv2=tv2), None, 1, None, 5)
    assert isinstance(fenced, Change)
    assert (fenced.to.state, fenced.to.epoch, fenced.answer) == (State.PREPARE_ABORT, EPOCH + 1, None)
    begun = begin(completed(fenced.to, 6), None, 1, None, 7)
    assert isinstance(begun, Change)
    assert begun.answer == Producer(ID, EPOCH + 2)


def test_a_producer_that_continues_gets_the_epoch_of_the_abort():
    mine = Producer(ID, EPOCH)
    fenced = begin(stored(State.ONGOING), mine, 1, None, 5)
    assert isinstance(fenced, Change)
    begun = begin(completed(fenced.to, 6), mine, 1, None, 7)
    assert isinstance(begun, Change)
    assert begun.answer == Producer(ID, EPOCH + 1)


def test_a_zombie_that_wants_to_continue_does_not_abort_the_newer_producers_transaction():
    assert begin(stored(State.ONGOING), Producer(ID, EPOCH - 1), 1, None, 5) == FENCED
    assert begin(stored(State.ONGOING), Producer(99, EPOCH), 1, None, 5) == FENCED


@pytest.mark.parametrize("state", sorted(IDLE))
def test_a_retry_gets_what_the_first_try_got(state):
    mine = Producer(ID, EPOCH)
    first = begin(stored(state), mine, 1, None, 5)
    assert isinstance(first, Change)
    again = begin(first.to, mine, 1, None, 6)
    assert isinstance(again, Change)
    assert again.answer == first.answer == Producer(ID, EPOCH + 1)
    other = begin(first.to, None, 1, None, 6)
    assert isinstance(other, Change)
    assert begin(other.to, mine, 1, None, 7) == FENCED


# Partitions


@pytest.mark.parametrize("state", sorted(IDLE))
def test_the_first_partition_begins_the_transaction(state):
    decision = add(stored(state), Producer(ID, EPOCH), [T0], True, 50)
    assert isinstance(decision, Change)
    assert (decision.to.state, decision.to.partitions, decision.to.started_ms) == (State.ONGOING, {T0}, 50)


def test_another_partition_joins_and_the_same_one_changes_nothing():
    known = stored(State.ONGOING)
    assert add(known, Producer(ID, EPOCH), [T0], True, 50) == Accepted(Producer(ID, EPOCH))
    decision = add(known, Producer(ID, EPOCH), [T1], True, 50)
    assert isinstance(decision, Change)
    assert (decision.to.partitions, decision.to.started_ms) == ({T0, T1}, known.started_ms)


@pytest.mark.parametrize("state", [State.PREPARE_ABORT, State.PREPARE_COMMIT])
def test_a_partition_waits_for_what_is_decided(state):
    assert add(stored(state), Producer(ID, EPOCH), [T0], True, 50) == BUSY
    renewed = stored(state, MARKER_EPOCH, next_id=NEW_ID)
    assert add(renewed, Producer(NEW_ID, 0), [T0], True, 50) == BUSY


def test_partitions_of_strangers_are_refused():
    known = stored(State.ONGOING)
    for asked, refused in (
        (Producer(ID, EPOCH - 1), FENCED),
        (Producer(ID, EPOCH + 1), FENCED),
        (Producer(99, EPOCH), UNKNOWN),
    ):
        assert add(known, asked, [T0], True, 50) == refused
        assert verify(known, asked, [T0]) == {T0: refused.error}
    assert add(None, Producer(ID, EPOCH), [T0], True, 50) == UNKNOWN


def test_a_transaction_has_a_bounded_number_of_partitions():
    many = [TopicPartition("t", PartitionId(n)) for n in range(1, MAX_PARTITIONS + 1)]
    assert add(stored(State.ONGOING), Producer(ID, EPOCH), many, True, 50) == Refused(TransactionTooLarge)


def test_only_partitions_of_the_open_transaction_are_verified():
    assert verify(stored(State.ONGOING), Producer(ID, EPOCH), [T0, T1]) == {T0: None, T1: TransactionAbortable}
    for state in IDLE:
        assert verify(stored(state), Producer(ID, EPOCH), [T0]) == {T0: TransactionAbortable}
    assert verify(stored(State.PREPARE_COMMIT), Producer(ID, EPOCH), [T0]) == {T0: ConcurrentTransactions}


# Time


def test_time_out_and_expiry():
    known = stored(State.ONGOING)
    assert not is_timed_out(known, 61_000)
    assert is_timed_out(known, 61_001)
    assert time_out(known, None, 61_000) == WRONG
    assert not any(is_timed_out(stored(state), 10**9) for state in State if state is not State.ONGOING)
    assert {state for state in State if is_expired(stored(state), 500, 1_500)} == IDLE
    assert not is_expired(stored(State.EMPTY), 500, 1_499)
    assert abort(stored(State.EMPTY), None, 1) == abort(None, None, 1) == WRONG


# The end of the epochs


@pytest.mark.parametrize("commit", [True, False])
def test_the_last_transaction_of_a_producer_id_ends_with_a_new_id(commit):
    """KAFKA-18660: the right id is returned, and a retry is known by the id before."""
    known = stored(State.ONGOING, LAST_EPOCH)
    assert ended(known, LAST_EPOCH, commit=commit) == NeedsId()
    decision = ended(known, LAST_EPOCH, commit=commit, new_id=NEW_ID)
    assert isinstance(decision, Change)
    assert (decision.to.producer_id, decision.to.epoch) == (ID, MARKER_EPOCH)
    assert decision.answer == Producer(NEW_ID, 0)
    assert ended(decision.to, LAST_EPOCH, commit=commit) == BUSY
    done = completed(decision.to, 9)
    assert (done.producer, done.previous_id, done.next_id) == (Producer(NEW_ID, 0), ID, NONE)
    assert ended(done, LAST_EPOCH, commit=commit) == Accepted(Producer(NEW_ID, 0))
    assert isinstance(add(done, Producer(NEW_ID, 0), [T0], True, 10), Change)


def test_a_producer_that_used_up_its_epochs_gets_a_new_id():
    for state in IDLE:
        known = stored(state, LAST_EPOCH)
        for expected in (None, Producer(ID, LAST_EPOCH)):
            assert begin(known, expected, 1, None, 5) == NeedsId()
            decision = begin(known, expected, 1, NEW_ID, 5)
            assert isinstance(decision, Change)
            assert decision.answer == Producer(NEW_ID, 0)
        again = begin(decision.to, Producer(ID, LAST_EPOCH), 1, None, 6)
        assert isinstance(again, Change)
        assert again.answer == Producer(NEW_ID, 0)
        assert begin(known, Producer(ID, LAST_EPOCH - 1), 1, None, 5) == FENCED


@pytest.mark.parametrize("tv2", [True, False])
def test_the_last_epoch_is_fenced_without_an_overflow(tv2):
    known = stored(State.ONGOING, LAST_EPOCH, tv2=tv2)
    decision = fence(known, NEW_ID, 5)
    assert isinstance(decision, Change)
    assert decision.to.epoch == MARKER_EPOCH
    begun = begin(completed(decision.to, 6), None, 1, NEW_ID + 1, 7)
    assert isinstance(begun, Change)
    assert begun.answer == (Producer(NEW_ID, 1) if tv2 else Producer(NEW_ID + 1, 0))


def test_the_table_of_states_has_every_state():
    assert FOLLOWING.keys() == set(State)
    assert [state.title for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
