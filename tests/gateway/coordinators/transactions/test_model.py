"""The machine against a model: producers that come, go, repeat themselves and lose answers, writes that fail,
fail-overs, and epochs that end. The model knows only what was promised to whom."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.coordinators.transactions.states import FOLLOWING, PREPARED, State
from gateway.coordinators.transactions.transaction import (
    LAST_EPOCH,
    MARKER_EPOCH,
    NONE,
    Accepted,
    Change,
    Decision,
    NeedsId,
    Producer,
    Transaction,
    abort,
    add,
    begin,
    completed,
    end,
)
from gateway.coordinators.transactions.values import read_transaction, write_transaction
from hot_tier.ids import PartitionId, TopicPartition

PARTITIONS = [TopicPartition("t", PartitionId(number)) for number in range(3)]
INSTANCES = 3


class Coordinated(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stored: Transaction | None = None
        self.now_ms = 0
        self.next_id = 100
        self.has: list[Producer | None] = [None] * INSTANCES
        """What each instance of the application was told last."""
        self.told: set[Producer] = set()
        """Whom a newcomer was told to be."""
        self.outcomes: dict[Producer, bool] = {}
        """How the transaction of each producer and epoch was decided; the epoch is that of the producer in it."""
        self.open_by: Producer | None = None
        self.over: set[Producer] = set()
        """Whose epoch ended with its transaction: with TV2, and by an abort that the producer did not ask for."""

    @initialize(epoch=st.sampled_from([0, 7, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH]), tv2=st.booleans())
    def starts(self, epoch: int, tv2: bool) -> None:
        if epoch:
            self.stored = Transaction(1, epoch, 1_000, State.COMPLETE_COMMIT, 0, previous_id=1, tv2=tv2)

    # What happens

    @rule(who=st.integers(0, INSTANCES - 1), continues=st.booleans(), stored=st.booleans(), answered=st.booleans())
    def begins(self, who: int, continues: bool, stored: bool, answered: bool) -> None:
        expected = self.has[who] if continues else None
        decision = self.decide(lambda new_id: begin(self.stored, expected, 1_000, new_id, self.now_ms))
        answer = self.settle(decision, stored)
        if answer is None:
            return
        assert 0 <= answer.epoch <= LAST_EPOCH
        if expected is None:
            assert answer not in self.told, "two producers are the same"
            self.told.add(answer)
        if answered:
            self.has[who] = answer

    @rule(
        who=st.integers(0, INSTANCES - 1),
        partition=st.sampled_from(PARTITIONS),
        tv2=st.booleans(),
        stored=st.booleans(),
    )
    def adds(self, who: int, partition: TopicPartition, tv2: bool, stored: bool) -> None:
        me = self.has[who]
        if me is None:
            return
        decision = self.decide(lambda _: add(self.stored, me, [partition], tv2, self.now_ms))
        if self.settle(decision, stored) is not None:
            assert self.stored is not None and partition in self.stored.partitions
            assert me == self.stored.producer
            assert me not in self.over, "a decided transaction got another partition"
            self.open_by = me
            self.outcomes.pop(me, None)

    @rule(
        who=st.integers(0, INSTANCES - 1),
        commit=st.booleans(),
        tv2=st.booleans(),
        stored=st.booleans(),
        answered=st.booleans(),
    )
    def ends(self, who: int, commit: bool, tv2: bool, stored: bool, answered: bool) -> None:
        me = self.has[who]
        if me is None:
            return
        decision = self.decide(lambda new_id: end(self.stored, me, commit, tv2, new_id, self.now_ms))
        if isinstance(decision, Change) and stored:
            self.outcomes[me] = commit
            self.open_by = None
            if tv2:
                self.over.add(me)
        answer = self.settle(decision, stored)
        if answer is None:
            return
        assert self.outcomes.get(me) == commit, "told of an end that did not happen"
        assert 0 <= answer.epoch <= LAST_EPOCH
        assert not tv2 or answer != me, "TV2 goes on with another epoch"
        if answered and tv2:
            self.has[who] = answer

    @rule(stored=st.booleans())
    def is_aborted(self, stored: bool) -> None:
        decision = self.decide(lambda new_id: abort(self.stored, new_id, self.now_ms))
        self.settle(decision, stored)

    @rule()
    def markers_are_written(self) -> None:
        if self.stored is not None and self.stored.state in PREPARED:
            self.store(completed(self.stored, self.now_ms))

    @rule()
    def fails_over(self) -> None:
        """The next coordinator knows what the journal holds."""
        if self.stored is not None:
            read = read_transaction(write_transaction(self.stored))
            assert read == replace(self.stored, last_epoch=NONE)
            self.stored = read

    # How

    def decide(self, decide) -> Decision:
        self.now_ms += 1
        decision = decide(None)
        if isinstance(decision, NeedsId):
            self.next_id += 1
            decision = decide(self.next_id)
            assert not isinstance(decision, NeedsId)
        return decision

    def settle(self, decision: Decision, stored: bool) -> Producer | None:
        """Returns what the client is told. A change that could not be stored is as if it never was."""
        if isinstance(decision, Accepted):
            return decision.answer
        if not isinstance(decision, Change) or not stored:
            return None
        if decision.to.state is State.PREPARE_ABORT and self.open_by is not None:
            self.outcomes[self.open_by] = False
            self.over.add(self.open_by)
            self.open_by = None
        self.store(decision.to)
        return decision.answer

    def store(self, value: Transaction) -> None:
        before = self.stored
        if before is not None:
            assert value.state in FOLLOWING[before.state], f"{before.state.title} to {value.state.title}"
            if value.producer_id == before.producer_id:
                assert before.epoch <= value.epoch <= before.epoch + 1
            else:
                assert value.producer_id > before.producer_id and value.epoch == 0
                assert before.epoch >= LAST_EPOCH, "an id is given up before its epochs are used"
        self.stored = value

    @invariant()
    def the_stored_value_is_possible(self) -> None:
        known = self.stored
        if known is None:
            return
        assert 0 <= known.epoch <= MARKER_EPOCH
        assert known.epoch <= LAST_EPOCH or known.state not in (State.EMPTY, State.ONGOING)
        assert bool(known.partitions) <= (known.state in PREPARED or known.state is State.ONGOING)
        assert known.state is not State.ONGOING or known.partitions
        assert known.next_id == NONE or known.state in PREPARED


TestModel = Coordinated.TestCase
TestModel.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
