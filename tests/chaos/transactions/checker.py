"""What must hold of transactions, checked over a history. Pure: no client, no clock, nothing of the service.

Kafka lets transactions of two producers interleave in a partition, in another order in each partition, so a cycle of
writes between transactions that overlap in time is none of its anomalies. One between transactions that do not overlap
is (`writes_form_no_cycle`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from tests.chaos.values import Identity

from .history import History, Place, Row, Transaction, Write

Check = Callable[[History], Iterator[str]]
View = Mapping[Place, Sequence[Row]]


def violations(history: History, checks: Sequence[Check] = ()) -> list[str]:
    """Every broken rule as a sentence; empty when all hold."""
    return [*history.complaints, *(sentence for check in checks or EVERY for sentence in check(history))]


# Books


def _writers(history: History) -> dict[Identity, tuple[Transaction, Write]]:
    return {write.identity: (each, write) for each in history.transactions for write in each.writes}


def _offsets(view: View) -> dict[Identity, list[tuple[Place, int]]]:
    found: dict[Identity, list[tuple[Place, int]]] = defaultdict(list)
    for place, rows in view.items():
        for row in rows:
            found[row.identity].append((place, row.offset))
    return found


def _views(history: History) -> Iterator[tuple[str, View]]:
    """What is said to have committed records only."""
    yield "readers of committed records", history.committed
    seen: dict[Place, list[Row]] = defaultdict(list)
    for each in history.seen:
        seen[each.place].append(each.row)
    yield "a reader on the way", seen
    yield from history.tables.items()


# One transaction


def aborted_is_never_read(history: History) -> Iterator[str]:
    writers = _writers(history)
    for name, view in _views(history):
        for place, rows in view.items():
            for row in rows:
                transaction, _ = writers.get(row.identity, (None, None))
                if transaction is not None and transaction.certainly_not_committed:
                    yield f"{name}: {place}@{row.offset} has {row.identity} of a {transaction}"


def committed_is_readable(history: History) -> Iterator[str]:
    """In its partition, once, at the offset that its producer was told."""
    found = _offsets(history.committed)
    for transaction in history.transactions:
        for write in transaction.writes if transaction.committed else ():
            places = found.get(write.identity, [])
            if not places:
                yield f"lost: {write.identity} for {write.place} of a {transaction}"
            elif any(place != write.place or write.offset not in (-1, offset) for place, offset in places):
                yield f"{write.identity} was acknowledged at {write.place}@{write.offset}, is at {places}"


def transactions_are_whole(history: History) -> Iterator[str]:
    """Whatever its producer was told: of a transaction all is there in the end, or nothing."""
    found = _offsets(history.committed)
    for transaction in history.transactions:
        there = sum(write.identity in found for write in transaction.writes)
        if 0 < there < len(transaction.writes):
            yield f"torn: {there} of {len(transaction.writes)} records are there of a {transaction}"


def nothing_is_read_before_its_commit(history: History) -> Iterator[str]:
    """Before its producer asked for the commit nobody can have known that there would be one."""
    writers = _writers(history)
    for seen in history.seen:
        transaction, _ = writers.get(seen.row.identity, (None, None))
        if transaction is None:
            continue
        last = max(write.invoked_ns for write in transaction.writes)
        if seen.at_ns < last:
            yield f"intermediate: {seen.row} of {seen.place} was read amid a {transaction}"
        elif seen.at_ns < transaction.commit_asked_ns:
            early_ms = (transaction.commit_asked_ns - seen.at_ns) / 1e6
            yield f"{seen.row} of {seen.place} was read {early_ms:.0f} ms before the commit of a {transaction}"


# The log


def each_write_at_most_once(history: History) -> Iterator[str]:
    for name, view in (("committed", history.committed), ("all", history.everything), *history.tables.items()):
        for identity, places in _offsets(view).items():
            if len(places) > 1:
                yield f"duplicate: {identity} is at {places} in {name}"


def only_what_was_written(history: History) -> Iterator[str]:
    writers = _writers(history)
    for name, view in (*_views(history), ("readers of all records", history.everything)):
        for place, rows in view.items():
            for row in rows:
                if row.identity not in writers:
                    yield f"{name}: nobody has written {row.identity}, it is at {place}@{row.offset}"


def one_offset_one_value(history: History) -> Iterator[str]:
    known: dict[tuple[Place, int], Identity] = {}
    for name, view in (("readers of all records", history.everything), *_views(history)):
        for place, rows in view.items():
            for row in rows:
                if known.setdefault((place, row.offset), row.identity) != row.identity:
                    yield f"{name}: {place}@{row.offset} is {row.identity}, it was {known[place, row.offset]}"


def all_records_have_the_committed_ones(history: History) -> Iterator[str]:
    for place, rows in history.committed.items():
        missing = set(rows) - set(history.everything.get(place, ()))
        if missing:
            yield f"{place}: readers of all records miss {sorted(missing)[:3]}"


def offsets_rise(history: History) -> Iterator[str]:
    for name, view in (("committed", history.committed), ("all", history.everything), *history.tables.items()):
        for place, rows in view.items():
            for before, after in pairwise(rows):
                if after.offset <= before.offset:
                    yield f"{name}: in {place} offset {after.offset} comes after {before.offset}"


def a_producer_keeps_its_order(history: History) -> Iterator[str]:
    for place, rows in history.committed.items():
        last: dict[str, int] = {}
        for row in rows:
            if row.identity.sequence <= last.get(row.identity.producer, -1):
                yield f"reordered: {place}@{row.offset}: {row.identity} comes after {last[row.identity.producer]}"
            last[row.identity.producer] = row.identity.sequence


def writes_form_no_cycle(history: History) -> Iterator[str]:
    """What was written after the end of a transaction lies behind all that it wrote (G0 in real time)."""
    writers = _writers(history)
    for place, rows in history.committed.items():
        # From the end to the begin: the earliest end of what lies behind must not be before a begin.
        earliest, ended = None, float("inf")
        for row in reversed(rows):
            transaction, write = writers.get(row.identity, (None, None))
            if transaction is None or write is None:
                continue
            if write.invoked_ns > ended:
                yield f"G0: {place}@{row.offset} of a {transaction} lies before a {earliest}, which had ended"
            if transaction.committed and transaction.ended_ns < ended:
                earliest, ended = transaction, transaction.ended_ns


def reads_form_no_cycle(history: History) -> Iterator[str]:
    """A transaction depends on those that it has read from, and on the ones before it of its producer (G1c)."""
    writers = _writers(history)
    numbers = {id(transaction): number for number, transaction in enumerate(history.transactions)}
    needs: dict[int, set[int]] = defaultdict(set)
    latest: dict[str, int] = {}
    for number, transaction in enumerate(history.transactions):
        if transaction.certainly_not_committed:
            continue
        if transaction.producer in latest:
            needs[number].add(latest[transaction.producer])
        latest[transaction.producer] = number
        for _, row in transaction.taken:
            if row.identity in writers:
                needs[number].add(numbers[id(writers[row.identity][0])])
    for cycle in _cycles(needs):
        yield "G1c: " + " reads from ".join(str(history.transactions[number]) for number in cycle)


def _cycles(needs: Mapping[int, set[int]]) -> Iterator[list[int]]:
    """One cycle for each that a search by depth comes across."""
    done: set[int] = set()
    for root in sorted(needs):
        path: list[int] = []
        on_path: set[int] = set()
        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.pop()
                on_path.discard(node)
                done.add(node)
            elif node in on_path:
                yield [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append((node, True))
                stack.extend((other, False) for other in needs.get(node, ()))


# Readers


def readers_skip_nothing(history: History) -> Iterator[str]:
    """Who reads on from an offset is given all that is committed behind it, in order."""
    sessions: dict[tuple[str, Place], list[Row]] = defaultdict(list)
    for seen in history.seen:
        sessions[seen.session, seen.place].append(seen.row)
    for (session, place), rows in sessions.items():
        for before, after in pairwise(rows):
            if after.offset <= before.offset:
                yield f"reader {session} of {place} was at {before.offset} and then at {after.offset}"
        first, last = rows[0].offset, rows[-1].offset
        missed = {row for row in history.committed.get(place, ()) if first <= row.offset <= last} - set(rows)
        if missed:
            yield f"reader {session} of {place} went from {first} to {last} and missed {sorted(missed)[:3]}"


def tables_are_what_consumers_read(history: History) -> Iterator[str]:
    """Up to where the archive is said to have all, and up to the last row of the table, it has every committed one."""
    for name, view in history.tables.items():
        for place in {*view, *history.archived}:
            rows = view.get(place, ())
            end = max(max((row.offset for row in rows), default=-1) + 1, history.archived.get(place, 0))
            wanted = {row for row in history.committed.get(place, ()) if row.offset < end}
            found = set(rows)
            if found != wanted:
                yield (
                    f"{name}: up to {place}@{end} {len(found)} rows instead of {len(wanted)}, "
                    f"without {sorted(wanted - found)[:3]}, with {sorted(found - wanted)[:3]}"
                )


def stable_ends_are_committed_ends(history: History) -> Iterator[str]:
    for ends in history.ends:
        if ends.stable > ends.high:
            yield f"{ends.place} was stable up to {ends.stable}, and then ended at {ends.high}"


def stable_ends_never_go_back(history: History) -> Iterator[str]:
    newest: dict[Place, int] = {}
    for ends in history.ends:
        if ends.stable < newest.get(ends.place, 0):
            yield f"{ends.place} was stable up to {newest[ends.place]} and then to {ends.stable}"
        newest[ends.place] = max(ends.stable, newest.get(ends.place, 0))


# Consume, transform, produce


def offsets_go_with_their_output(history: History) -> Iterator[str]:
    """Each committed input below a group's offset has its output, once; what lies behind the offset has none."""
    writers = _writers(history)
    outputs: dict[tuple[str, Place], Counter[int]] = defaultdict(Counter)
    for rows in history.committed.values():
        for row in rows:
            transaction, write = writers.get(row.identity, (None, None))
            if transaction is not None and write is not None and write.source is not None:
                place, source = write.source
                outputs[transaction.group, place][source.offset] += 1
    for (group, place), position in history.positions.items():
        inputs = {row.offset for row in history.committed.get(place, ()) if row.offset < position}
        made = outputs.get((group, place), Counter())
        without = sorted(inputs - made.keys())
        if without:
            yield f"{group} committed {place}@{position} without output for {without[:5]} ({len(without)} in all)"
        unused = sorted(offset for offset in made if offset >= position)
        if unused:
            yield f"{group} has output for {place} at {unused[:5]} and has committed {position} only"
        twice = sorted(offset for offset, count in made.items() if count > 1)
        if twice:
            yield f"duplicate: {group} has more than one output for {place} at {twice[:5]}"


def committed_positions_stay(history: History) -> Iterator[str]:
    for transaction in history.transactions:
        for place, position in transaction.positions.items() if transaction.committed else ():
            found = history.positions.get((transaction.group, place), 0)
            if found < position:
                yield f"{transaction.group} committed {place}@{position} in a {transaction}, found {found}"


SAFETY: tuple[Check, ...] = (
    aborted_is_never_read,
    committed_is_readable,
    transactions_are_whole,
    nothing_is_read_before_its_commit,
    each_write_at_most_once,
    only_what_was_written,
    one_offset_one_value,
    all_records_have_the_committed_ones,
    offsets_rise,
    a_producer_keeps_its_order,
    writes_form_no_cycle,
    reads_form_no_cycle,
    readers_skip_nothing,
    tables_are_what_consumers_read,
    offsets_go_with_their_output,
    committed_positions_stay,
)
"""What holds through every change of leader and coordinator."""

EVERY: tuple[Check, ...] = (*SAFETY, stable_ends_are_committed_ends, stable_ends_never_go_back)
"""Where one broker answers, it never takes back how far a partition is stable."""
