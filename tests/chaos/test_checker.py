"""The checker finds what it is there to find: each kind of damage, made by hand, is named."""

import random
from collections.abc import Callable

import pytest

from . import checker
from .history import Commit, CommittedOffset, History, Outcome, Read, Send, Watermark
from .values import Damaged, Identity, make_value, read_value


def identity(sequence: int, producer: str = "p", nonce: str = "n") -> Identity:
    return Identity(producer, sequence, nonce)


def good_history() -> History:
    """Ten sends one after the other, all acknowledged, read by a group which committed half."""
    history = History()
    for n in range(10):
        history.sends.append(Send(identity(n), 0, 100 * n, 100 * n + 50, Outcome.OK, n))
        history.reads.append(Read("s", "g", 0, n, identity(n)))
        history.watermarks.append(Watermark(0, 0, n + 1, 100 * n + 60, 100 * n + 70))
    history.log[0] = [(n, identity(n)) for n in range(10)]
    history.commits.append(Commit("g", 0, 5, 2000, 2001, Outcome.OK))
    history.committed.append(CommittedOffset("g", 0, 5, 3000))
    return history


def lose_the_tail(history: History) -> None:
    history.log[0].pop()


def lose_the_middle(history: History) -> None:
    del history.log[0][4]


def repeat_a_send(history: History) -> None:
    history.log[0].append((10, identity(3)))


def swap_two(history: History) -> None:
    history.log[0][2], history.log[0][3] = (2, identity(3)), (3, identity(2))


def replace_a_value(history: History) -> None:
    history.log[0][6] = (6, identity(6, nonce="other"))


def invent_a_record(history: History) -> None:
    history.log[0].append((10, identity(0, "stranger")))


def show_a_failed_send(history: History) -> None:
    history.sends.append(Send(identity(10), 0, 1000, 1001, Outcome.FAILED))
    history.log[0].append((10, identity(10)))


def skip_in_a_session(history: History) -> None:
    del history.reads[4]


def return_in_a_session(history: History) -> None:
    history.reads.append(history.reads[2])


def acknowledge_behind_an_acknowledged(history: History) -> None:
    history.sends[8].offset, history.sends[9].offset = 9, 8
    history.log[0][8], history.log[0][9] = (8, identity(9)), (9, identity(8))
    history.reads[8:] = []


def watermark_back(history: History) -> None:
    history.watermarks.append(Watermark(0, 0, 7, 5000, 5001))


def watermark_behind_an_acknowledged(history: History) -> None:
    history.watermarks[:] = [Watermark(0, 0, 9, 5000, 5001)]


def forget_a_commit(history: History) -> None:
    history.committed[0] = CommittedOffset("g", 0, 0, 3000)


def commit_by_itself(history: History) -> None:
    history.committed[0] = CommittedOffset("g", 0, 9, 3000)


def commit_unread(history: History) -> None:
    history.reads[:] = history.reads[5:]


def complain(history: History) -> None:
    history.complaints.append("out of order sequence")


FOUND_BY = {
    lose_the_tail: checker.acknowledged_is_readable,
    lose_the_middle: checker.offsets_have_no_gaps,
    repeat_a_send: checker.each_send_at_most_once,
    swap_two: checker.a_producer_keeps_its_order,
    replace_a_value: checker.one_offset_one_value,
    invent_a_record: checker.only_what_was_sent,
    show_a_failed_send: checker.failed_sends_are_never_read,
    skip_in_a_session: checker.sessions_neither_skip_nor_return,
    return_in_a_session: checker.sessions_neither_skip_nor_return,
    acknowledge_behind_an_acknowledged: checker.later_sends_get_higher_offsets,
    watermark_back: checker.watermarks_never_go_back,
    watermark_behind_an_acknowledged: checker.watermarks_cover_what_was_acknowledged,
    forget_a_commit: checker.commits_never_go_back,
    commit_by_itself: checker.commits_never_go_back,
    commit_unread: checker.groups_skip_nothing,
    complain: checker.violations,
}


def test_a_good_history_passes():
    assert checker.violations(good_history()) == []


def test_what_was_never_answered_may_be_there_or_not():
    history = good_history()
    history.sends.append(Send(identity(10), 0, 1000))
    history.sends.append(Send(identity(11), 0, 1000, 1001, Outcome.UNKNOWN))
    assert checker.violations(history) == []
    history.log[0].append((10, identity(11)))
    assert checker.violations(history) == []


@pytest.mark.parametrize("damage", FOUND_BY, ids=lambda function: function.__name__)
def test_damage_is_found(damage: Callable[[History], None]):
    history = good_history()
    damage(history)
    assert list(FOUND_BY[damage](history)) != []
    assert checker.violations(history) != []


def test_values_prove_themselves():
    value = make_value(identity(7), random.Random(1))
    assert read_value(value) == identity(7)
    for broken in (value[:-1], value + b".", value.replace(b"7", b"8", 1), b"", None):
        with pytest.raises(Damaged):
            read_value(broken)
