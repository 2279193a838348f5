"""The table of the steps of archiving."""

import pytest

from offloader import archive_steps
from offloader.archive_steps import MOVES, MUST_OPEN, Event, Step, after
from tests.house.drawings import changes, drawn

OPENED = [step for step in Step if step is not Step.CLOSED]


def test_the_drawing_is_the_table() -> None:
    assert drawn(archive_steps.__doc__) == changes(MOVES)


@pytest.mark.parametrize("step", OPENED)
@pytest.mark.parametrize("event", Event)
def test_every_event_may_come_at_every_step_of_an_archive_that_was_opened(step: Step, event: Event) -> None:
    assert after(step, event) in OPENED


@pytest.mark.parametrize("step", sorted(MUST_OPEN, key=lambda step: step.name))
@pytest.mark.parametrize("event", [event for event in Event if event is not Event.OPENED])
def test_only_opening_ends_a_doubt(step: Step, event: Event) -> None:
    if step is Step.CLOSED and event in (Event.NAMED, Event.SETTLED):
        with pytest.raises(AssertionError, match=f"Step CLOSED cannot become .*{event.name}"):
            after(step, event)
    else:
        assert after(step, event) in MUST_OPEN


@pytest.mark.parametrize("step", Step)
def test_a_doubt_or_a_stop_has_the_bucket_asked_first(step: Step) -> None:
    assert after(step, Event.DOUBTED) in MUST_OPEN
    assert after(step, Event.STOPPED) is Step.STOPPED
    assert after(step, Event.OPENED) is Step.OPEN


def test_a_stopped_archive_stays_stopped_until_it_is_opened() -> None:
    for event in (Event.NAMED, Event.SETTLED, Event.DOUBTED):
        assert after(Step.STOPPED, event) is Step.STOPPED
