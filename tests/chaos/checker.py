"""The invariants of a log, checked over a history. Pure: no client, no clock, nothing of the service.

Holds for topics without retention, compaction and transactions, where offsets have no gaps.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from .history import History, Outcome

Check = Callable[[History], Iterator[str]]


def violations(history: History, checks: Sequence[Check] = ()) -> list[str]:
    """Every broken invariant as a sentence; empty when all hold."""
    checks = checks or EVERY
    return [*history.complaints, *(sentence for check in checks for sentence in check(history))]


def acknowledged_is_readable(history: History) -> Iterator[str]:
    logs = {partition: dict(entries) for partition, entries in history.log.items()}
    for send in history.sends:
        if send.outcome is Outcome.OK:
            found = logs.get(send.partition, {}).get(send.offset)
            if found != send.identity:
                yield f"acknowledged {send.identity} at {send.partition}@{send.offset}, found {found}"


def one_offset_one_value(history: History) -> Iterator[str]:
    seen: dict[tuple[int, int], object] = {}
    everything = [(p, offset, identity) for p, entries in history.log.items() for offset, identity in entries]
    for partition, offset, identity in everything + [(r.partition, r.offset, r.identity) for r in history.reads]:
        if seen.setdefault((partition, offset), identity) != identity:
            yield f"{partition}@{offset} was {seen[partition, offset]} and is {identity}"
    for partition, offset in {(read.partition, read.offset) for read in history.reads} - {
        (partition, offset) for partition, offset, _ in everything
    }:
        yield f"{partition}@{offset} was read by a consumer and is gone"


def offsets_have_no_gaps(history: History) -> Iterator[str]:
    for partition, entries in history.log.items():
        for (before, _), (after, _) in pairwise(entries):
            if after != before + 1:
                yield f"partition {partition} goes from offset {before} to {after}"
        if entries and entries[0][0] != 0:
            yield f"partition {partition} begins at {entries[0][0]}"


def later_sends_get_higher_offsets(history: History) -> Iterator[str]:
    by_partition = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.OK:
            by_partition[send.partition].append(send)
    for sends in by_partition.values():
        acknowledged = sorted(sends, key=lambda send: send.ended_ns)
        highest, passed = -1, 0
        for send in sorted(sends, key=lambda send: send.invoked_ns):
            while passed < len(acknowledged) and acknowledged[passed].ended_ns < send.invoked_ns:
                highest = max(highest, acknowledged[passed].offset)
                passed += 1
            if send.offset <= highest:
                yield f"{send.identity} got {send.offset} after {highest} had been acknowledged"


def failed_sends_are_never_read(history: History) -> Iterator[str]:
    failed = {send.identity for send in history.sends if send.outcome is Outcome.FAILED}
    for partition, entries in history.log.items():
        for offset, identity in entries:
            if identity in failed:
                yield f"{identity} failed and is at {partition}@{offset}"


def only_what_was_sent(history: History) -> Iterator[str]:
    invoked = {send.identity for send in history.sends}
    for partition, entries in history.log.items():
        for offset, identity in entries:
            if identity not in invoked:
                yield f"{identity} is at {partition}@{offset} and nobody sent it"


def each_send_at_most_once(history: History) -> Iterator[str]:
    counts = Counter(identity for entries in history.log.values() for _, identity in entries)
    for identity, count in counts.items():
        if count > 1:
            yield f"{identity} is in the log {count} times"


def a_producer_keeps_its_order(history: History) -> Iterator[str]:
    for partition, entries in history.log.items():
        last: dict[str, int] = {}
        for offset, identity in entries:
            if identity.sequence <= last.get(identity.producer, -1):
                yield f"{partition}@{offset}: {identity} comes after {last[identity.producer]}"
            last[identity.producer] = identity.sequence


def sessions_neither_skip_nor_return(history: History) -> Iterator[str]:
    position: dict[str, int] = {}
    for read in history.reads:
        expected = position.get(read.session, read.offset)
        if read.offset != expected:
            yield f"session {read.session} read {read.offset} instead of {expected}"
        position[read.session] = read.offset + 1


def groups_skip_nothing(history: History) -> Iterator[str]:
    delivered = defaultdict(set)
    for read in history.reads:
        delivered[read.group, read.partition].add(read.offset)
    for found in {(entry.group, entry.partition): entry for entry in history.committed}.values():
        missing = set(range(found.offset)) - delivered[found.group, found.partition]
        if missing:
            yield f"{found.group} committed {found.partition}@{found.offset} without reading {sorted(missing)[:5]}"


def watermarks_never_go_back(history: History) -> Iterator[str]:
    newest: dict[int, int] = {}
    for mark in history.watermarks:
        if mark.high < newest.get(mark.partition, 0):
            yield f"partition {mark.partition} ended at {newest[mark.partition]} and then at {mark.high}"
        if not 0 <= mark.low <= mark.high:
            yield f"partition {mark.partition} has low {mark.low} and high {mark.high}"
        newest[mark.partition] = max(mark.high, newest.get(mark.partition, 0))


def watermarks_cover_what_was_acknowledged(history: History) -> Iterator[str]:
    by_partition = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.OK:
            by_partition[send.partition].append((send.ended_ns, send.offset))
    for partition, acknowledged in by_partition.items():
        acknowledged.sort()
        highest, passed = -1, 0
        for mark in sorted((m for m in history.watermarks if m.partition == partition), key=lambda m: m.invoked_ns):
            while passed < len(acknowledged) and acknowledged[passed][0] < mark.invoked_ns:
                highest = max(highest, acknowledged[passed][1])
                passed += 1
            if mark.high <= highest:
                yield f"partition {partition} ended at {mark.high} after {highest} had been acknowledged"


def commits_never_go_back(history: History) -> Iterator[str]:
    """What is committed is at least the last commit that was answered, at most the furthest that was asked for."""
    for found in history.committed:
        mine = [c for c in history.commits if (c.group, c.partition) == (found.group, found.partition)]
        answered = [c.offset for c in mine if c.outcome is Outcome.OK and c.ended_ns < found.invoked_ns]
        asked = [c.offset for c in mine if c.outcome is not Outcome.FAILED]
        if answered and found.offset < max(answered):
            yield f"{found.group} had committed {found.partition}@{max(answered)}, found {found.offset}"
        if found.offset > max(asked, default=0):
            yield f"{found.group} never committed {found.partition}@{found.offset}"


ONE_COPY: tuple[Check, ...] = (
    one_offset_one_value,
    offsets_have_no_gaps,
    failed_sends_are_never_read,
    only_what_was_sent,
    sessions_neither_skip_nor_return,
    groups_skip_nothing,
    commits_never_go_back,
)
"""What holds with acks=1 too, where an acknowledged record may be lost with its leader and a retry may double one."""

REPLICATED: tuple[Check, ...] = (
    *ONE_COPY,
    acknowledged_is_readable,
    later_sends_get_higher_offsets,
    each_send_at_most_once,
    a_producer_keeps_its_order,
)
"""What holds with acks=all and idempotence through every change of the leader."""

ENDS: tuple[Check, ...] = (watermarks_never_go_back, watermarks_cover_what_was_acknowledged)
"""What holds where one broker answers. A broker that leads no more and does not know it may tell an old end."""

EVERY: tuple[Check, ...] = (*REPLICATED, *ENDS)

ONE_ACK_ALONE: tuple[Check, ...] = (*ONE_COPY, acknowledged_is_readable, later_sends_get_higher_offsets, *ENDS)
"""What holds with acks=1 where one broker has the only copy: all but for what a retry may double."""
