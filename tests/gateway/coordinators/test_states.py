"""The table of states: complete, and true to its drawing."""

import pytest

from gateway.coordinators.groups import states
from gateway.coordinators.groups.states import TRANSITIONS, State, Trigger

DRAWN = {
    (State.EMPTY, Trigger.REBALANCE, State.PREPARING_REBALANCE),
    (State.PREPARING_REBALANCE, Trigger.FORMED, State.COMPLETING_REBALANCE),
    (State.PREPARING_REBALANCE, Trigger.EMPTIED, State.EMPTY),
    (State.COMPLETING_REBALANCE, Trigger.REBALANCE, State.PREPARING_REBALANCE),
    (State.COMPLETING_REBALANCE, Trigger.ASSIGNED, State.STABLE),
    (State.STABLE, Trigger.REBALANCE, State.PREPARING_REBALANCE),
    *((state, Trigger.ENDED, State.DEAD) for state in State if state is not State.DEAD),
}


def test_transitions_are_those_drawn():
    assert {(a, trigger, b) for a, row in TRANSITIONS.items() for trigger, b in row.items()} == DRAWN


def test_no_state_follows_itself_and_dead_is_final():
    assert all(a is not b for a, _, b in DRAWN)
    assert not TRANSITIONS[State.DEAD]


@pytest.mark.parametrize("table", ["HEARTBEAT_ANSWERS", "SYNC_ANSWERS", "COMMIT_ANSWERS"])
def test_every_state_has_an_answer(table):
    assert set(getattr(states, table)) == set(State)


def test_states_are_named_as_kafka_tools_show_them():
    assert [state.value for state in State] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
