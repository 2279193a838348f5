"""What has to be in the audit of a closed cluster: the judge finds what is missing, and nothing in a good one."""

from .closed import STRANGER, USER, Act, Ended, Event, wrong_in_audit
from .faults import Kind

ACTS = [Act(1, "made-1", "success", 10), Act(1, "never-1", "refused", 20), Act(1, "made-2", "success", 30)]


def event(number: int, name: str, outcome: str, who: str = STRANGER) -> Event:
    return {
        "metadata": {"uid": f"1-19a-{number}"},
        "actor": {"user": {"name": who}},
        "resources": [{"type": "user", "name": name}],
        "unmapped": {"outcome": outcome},
    }


EVENTS = [event(n, act.name, act.outcome) for n, act in enumerate(ACTS)]


def test_everything_is_there():
    assert not wrong_in_audit([*EVENTS, EVENTS[1]], ACTS, [])


def test_only_a_kill_excuses_what_is_missing_and_only_at_the_end():
    assert "made-2" in wrong_in_audit(EVENTS[:2], ACTS, [])[0]
    assert not wrong_in_audit(EVENTS[:2], ACTS, [Ended(1, Kind.KILL, 40)])
    for other in (Ended(1, Kind.STOP, 40), Ended(2, Kind.KILL, 40), Ended(1, Kind.KILL, 25)):
        assert wrong_in_audit(EVENTS[:2], ACTS, [other])
    assert not wrong_in_audit(EVENTS[:2], ACTS, [Ended(1, Kind.STOP, 40)], said={1})
    in_the_middle = wrong_in_audit([EVENTS[0], EVENTS[2]], ACTS, [Ended(1, Kind.KILL, 40)])
    assert "without [1]" in in_the_middle[0]


def test_a_wrong_outcome_is_not_what_was_told():
    assert wrong_in_audit([event(0, "made-1", "refused")], ACTS[:1], [])


def test_the_load_is_never_refused():
    assert wrong_in_audit([event(0, "chaos-1", "refused", USER)], [], [])
