"""The checker finds what it is there to find: each anomaly, made by hand, is named, and a clean history passes."""

from collections.abc import Callable

import pytest

from tests.chaos.values import Identity

from . import checker
from .history import Ending, Ends, History, Place, Row, Seen, Transaction, Write

IN, OTHER, OUT = Place("in", 0), Place("in", 1), Place("out", 0)
GROUP = "g"
MS = 1_000_000


def identity(producer: str, sequence: int) -> Identity:
    return Identity(producer, sequence, "n")


class Maker:
    """A history as a sound service makes it: each transaction has a record in both partitions of `in`."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 0
        self.sequence = 0
        self.ends = {IN: 0, OTHER: 0, OUT: 0}
        for view in (self.history.committed, self.history.everything):
            view.update({place: [] for place in self.ends})

    def write(self, transaction: Transaction, place: Place, source: tuple[Place, Row] | None = None) -> None:
        self.now += MS
        write = Write(identity(transaction.producer, self.sequence), place, source, self.now, self.now + 1)
        self.sequence += 1
        write.offset, self.ends[place] = self.ends[place], self.ends[place] + 1
        transaction.writes.append(write)
        self.history.everything[place].append(Row(write.offset, write.identity))

    def end(self, transaction: Transaction, ending: Ending, there: bool) -> None:
        self.now += MS
        transaction.ending = ending
        if ending in (Ending.COMMITTED, Ending.UNKNOWN):
            transaction.commit_asked_ns = self.now
        self.now += MS
        transaction.ended_ns = self.now
        for write in transaction.writes:
            self.ends[write.place] += 1  # the marker
            if there:
                row = Row(write.offset, write.identity)
                self.history.committed[write.place].append(row)
                self.history.seen.append(Seen("reader", write.place, row, self.now))

    def transaction(self, producer: str, ending: Ending, there: bool) -> Transaction:
        made = Transaction(producer, self.now)
        self.history.transactions.append(made)
        self.write(made, IN)
        self.write(made, OTHER)
        self.end(made, ending, there)
        return made

    def stream(self) -> None:
        """All that is committed of IN so far goes to OUT."""
        made = Transaction("s", self.now, group=GROUP)
        self.history.transactions.append(made)
        begin = self.history.positions.get((GROUP, IN), 0)
        rows = [row for row in self.history.committed[IN] if row.offset >= begin]
        for row in rows:
            made.taken.append((IN, row))
            self.write(made, OUT, (IN, row))
        made.positions[IN] = self.ends[IN]
        self.end(made, Ending.COMMITTED, True)
        self.history.positions[GROUP, IN] = self.ends[IN]


def good_history() -> History:
    """Transactions by number: 0 committed, 1 aborted, 2 committed in fact, 3 not, 4 never ended, 5 a stream, 6, 7."""
    made = Maker()
    made.transaction("a", Ending.COMMITTED, True)
    made.transaction("a", Ending.ABORTED, False)
    made.transaction("b", Ending.UNKNOWN, True)
    made.transaction("b", Ending.UNKNOWN, False)
    made.transaction("c", Ending.OPEN, False)
    made.stream()
    made.transaction("a", Ending.COMMITTED, True)
    made.stream()
    history = made.history
    for name in ("glob", "manifest"):
        history.tables[name] = {place: list(rows[:2]) for place, rows in history.committed.items()}
    history.archived = {place: rows[1].offset + 1 for place, rows in history.committed.items()}
    history.ends += [Ends(IN, n, n + n % 2) for n in range(5)]
    return history


def row_of(history: History, number: int, place: Place = IN) -> Row:
    return next(Row(w.offset, w.identity) for w in history.transactions[number].writes if w.place == place)


# Anomalies


def show_an_aborted_row(history: History) -> None:
    history.committed[IN].insert(1, row_of(history, 1))


def show_an_open_row(history: History) -> None:
    history.committed[IN].insert(2, row_of(history, 4))


def show_an_aborted_row_once(history: History) -> None:
    history.seen.append(Seen("other", IN, row_of(history, 1), 10**12))


def archive_an_aborted_row(history: History) -> None:
    history.tables["glob"][IN].insert(1, row_of(history, 1))


def lose_a_transaction(history: History) -> None:
    for place in (IN, OTHER):
        history.committed[place].remove(row_of(history, 0, place))


def lose_a_record(history: History) -> None:
    history.committed[OTHER].remove(row_of(history, 0, OTHER))


def move_a_record(history: History) -> None:
    history.committed[OTHER][-1] = history.committed[OTHER][-1]._replace(offset=99)


def tear_an_unknown_transaction(history: History) -> None:
    history.committed[OTHER].remove(row_of(history, 2, OTHER))


def tear_the_other_unknown_transaction(history: History) -> None:
    history.committed[IN].insert(2, row_of(history, 3))


def read_before_the_commit(history: History) -> None:
    asked_ns = history.transactions[0].commit_asked_ns
    history.seen.insert(0, Seen("early", IN, row_of(history, 0), asked_ns - 1))


def read_amid_the_transaction(history: History) -> None:
    second = history.transactions[0].writes[1].invoked_ns
    history.seen.insert(0, Seen("early", IN, row_of(history, 0), second - 1))


def store_a_record_twice(history: History) -> None:
    for view in (history.committed, history.everything):
        view[OUT].append(Row(90, view[OUT][0].identity))


def store_an_aborted_record_twice(history: History) -> None:
    history.everything[IN].append(Row(90, row_of(history, 1).identity))


def archive_a_record_twice(history: History) -> None:
    history.tables["manifest"][IN].append(history.tables["manifest"][IN][0])


def invent_a_record(history: History) -> None:
    for view in (history.committed, history.everything):
        view[OUT].append(Row(90, identity("stranger", 1)))


def replace_a_record(history: History) -> None:
    history.seen.append(Seen("other", IN, Row(0, row_of(history, 6).identity), 10**12))


def hide_a_committed_record_from_all(history: History) -> None:
    history.everything[IN].remove(row_of(history, 0))


def go_back_in_the_log(history: History) -> None:
    history.everything[IN].append(history.everything[IN].pop(0))


def swap_a_producers_records(history: History) -> None:
    rows = history.committed[IN]
    first, last = rows.index(row_of(history, 0)), rows.index(row_of(history, 6))
    rows[first], rows[last] = Row(rows[first].offset, rows[last].identity), Row(rows[last].offset, rows[first].identity)


def write_before_what_was_over(history: History) -> None:
    """A transaction of b that begins after the end of a's lies before it."""
    ended_ns = history.transactions[6].ended_ns
    for write in history.transactions[2].writes:
        write.invoked_ns = ended_ns + 1


def read_in_a_circle(history: History) -> None:
    """0 has read from the stream that has read from it."""
    history.transactions[0].taken.append((OUT, history.committed[OUT][0]))


def read_from_the_next(history: History) -> None:
    """A producer's transaction has read from its own next one."""
    history.transactions[0].taken.append((IN, row_of(history, 6)))


def skip_a_record(history: History) -> None:
    history.seen.remove(next(seen for seen in history.seen if seen.row == row_of(history, 2)))


def return_to_a_record(history: History) -> None:
    history.seen.append(next(seen for seen in history.seen if seen.row == row_of(history, 0)))


def archive_less(history: History) -> None:
    history.tables["glob"][OTHER].pop(0)


def archive_nothing(history: History) -> None:
    del history.tables["manifest"][OUT]


def commit_offsets_alone(history: History) -> None:
    """The output of the last stream transaction is gone, the offset has stayed."""
    gone = {write.identity for write in history.transactions[7].writes}
    history.committed[OUT] = [row for row in history.committed[OUT] if row.identity not in gone]


def commit_output_alone(history: History) -> None:
    history.positions[GROUP, IN] = history.transactions[5].positions[IN]


def process_twice(history: History) -> None:
    again = Write(identity("s", 500), OUT, (IN, row_of(history, 0)), 10**12, 10**12)
    history.transactions[7].writes.append(again)
    for view in (history.committed, history.everything):
        view[OUT].append(Row(90, again.identity))


def forget_a_position(history: History) -> None:
    history.positions.clear()


def be_stable_beyond_the_end(history: History) -> None:
    history.ends.append(Ends(IN, 9, 8))


def take_back_the_stable_end(history: History) -> None:
    history.ends.append(Ends(IN, 2, 8))


def complain(history: History) -> None:
    history.complaints.append("a fatal error that nobody has a reason for")


FOUND_BY = {
    show_an_aborted_row: checker.aborted_is_never_read,
    show_an_open_row: checker.aborted_is_never_read,
    show_an_aborted_row_once: checker.aborted_is_never_read,
    archive_an_aborted_row: checker.aborted_is_never_read,
    lose_a_transaction: checker.committed_is_readable,
    lose_a_record: checker.committed_is_readable,
    move_a_record: checker.committed_is_readable,
    tear_an_unknown_transaction: checker.transactions_are_whole,
    tear_the_other_unknown_transaction: checker.transactions_are_whole,
    read_before_the_commit: checker.nothing_is_read_before_its_commit,
    read_amid_the_transaction: checker.nothing_is_read_before_its_commit,
    store_a_record_twice: checker.each_write_at_most_once,
    store_an_aborted_record_twice: checker.each_write_at_most_once,
    archive_a_record_twice: checker.each_write_at_most_once,
    invent_a_record: checker.only_what_was_written,
    replace_a_record: checker.one_offset_one_value,
    hide_a_committed_record_from_all: checker.all_records_have_the_committed_ones,
    go_back_in_the_log: checker.offsets_rise,
    swap_a_producers_records: checker.a_producer_keeps_its_order,
    write_before_what_was_over: checker.writes_form_no_cycle,
    read_in_a_circle: checker.reads_form_no_cycle,
    read_from_the_next: checker.reads_form_no_cycle,
    skip_a_record: checker.readers_skip_nothing,
    return_to_a_record: checker.readers_skip_nothing,
    archive_less: checker.tables_are_what_consumers_read,
    archive_nothing: checker.tables_are_what_consumers_read,
    commit_offsets_alone: checker.offsets_go_with_their_output,
    commit_output_alone: checker.offsets_go_with_their_output,
    process_twice: checker.offsets_go_with_their_output,
    forget_a_position: checker.committed_positions_stay,
    be_stable_beyond_the_end: checker.stable_ends_are_committed_ends,
    take_back_the_stable_end: checker.stable_ends_never_go_back,
    complain: checker.violations,
}


def test_a_good_history_passes():
    assert checker.violations(good_history()) == []


def test_every_check_has_an_anomaly_that_it_alone_is_there_for():
    assert set(FOUND_BY.values()) - {checker.violations} == set(checker.EVERY)


@pytest.mark.parametrize("damage", FOUND_BY, ids=lambda function: function.__name__)
def test_an_anomaly_is_found(damage: Callable[[History], None]):
    history = good_history()
    damage(history)
    assert list(FOUND_BY[damage](history)) != []
    assert checker.violations(history) != []


def test_an_unknown_commit_may_be_there_or_not():
    for there in (True, False):
        made = Maker()
        made.transaction("a", Ending.UNKNOWN, there)
        assert checker.violations(made.history) == []


def test_transactions_that_overlap_may_interleave():
    """In one partition the one comes first, in the other the other: Kafka orders nothing between them."""
    made = Maker()
    one, other = Transaction("a", 0), Transaction("b", 0)
    made.history.transactions += [one, other]
    made.write(one, IN)
    made.write(other, IN)
    made.write(other, OTHER)
    made.write(one, OTHER)
    made.end(one, Ending.COMMITTED, True)
    made.end(other, Ending.COMMITTED, True)
    for rows in made.history.committed.values():
        rows.sort()
    made.history.seen.clear()
    assert checker.violations(made.history) == []


def test_a_history_can_be_written_down(tmp_path):
    lines = good_history().write(tmp_path / "history.txt").read_text().splitlines()
    assert len(lines) > 40
