"""The decision which manifest a leader goes on from, row by row, and which segments a repair takes up."""

import dataclasses
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cold_tier.errors import ForeignManifest, ManifestWentBack
from cold_tier.layout import PartitionLayout, SegmentName, Version
from cold_tier.manifest.model import Owner, SegmentEntry, Snapshot
from gateway.http.problems import as_problem
from gateway.kafka.errors import ErrorCode, error_code
from hot_tier.cluster.model import Archived, ManifestMark, Stopped, Writer, decode_archived, encode
from offloader.chain import Candidate, Hole, best_chain, needed
from offloader.trust import Local, Verdict, judge, stopped_error

TOPIC_ID = UUID("0b0e9d6c-6a5f-4d9c-9f70-2c8f6f0a1b2c")
OURS = Owner("cluster", "directory", "t5")
RECORDED = Archived(100, 0, 5, None, ManifestMark(5, 3, "n3"), (Writer(5, "t5"),))
LOCAL = Local(0, 80)


def segment(base: int, end: int, rows: int | None = None, uuid: str = "a") -> SegmentEntry:
    size = end - base if rows is None else rows
    return SegmentEntry(SegmentName(base, 0, uuid * 32), end, size, 0, 1, 10, 0, 10, 0, 10, 0, ())


def manifest(epoch: int, sequence: int, nonce: str, end: int = 100, owner: Owner | None = OURS) -> Snapshot:
    tail = (segment(0, end),) if end else ()
    return Snapshot("orders", TOPIC_ID, 0, Version(epoch, sequence), nonce, 1, 0, (), tail, (), owner)


NOBODY = Archived(100, 0, 5)
"""As version 0.1 recorded it."""


@pytest.mark.parametrize(
    ("found", "recorded", "local", "verdict"),
    [
        (None, None, Local(0, 0), Verdict.NEW),
        (None, Archived(0, 0, 5), Local(7, 7), Verdict.NEW),
        (None, RECORDED, Local(0, 0), Verdict.WENT_BACK),
        (None, None, LOCAL, Verdict.WENT_BACK),
        (manifest(5, 3, "n3"), RECORDED, LOCAL, Verdict.TRUSTED),
        (manifest(5, 2, "n2"), RECORDED, LOCAL, Verdict.WENT_BACK),
        (manifest(4, 9, "n9"), RECORDED, LOCAL, Verdict.WENT_BACK),
        (manifest(5, 3, "other"), RECORDED, LOCAL, Verdict.WENT_BACK),
        (manifest(5, 4, "n4"), RECORDED, LOCAL, Verdict.TRUSTED),
        (manifest(5, 4, "n4", end=90), RECORDED, LOCAL, Verdict.WENT_BACK),
        (manifest(5, 3, "n3", end=70), RECORDED._replace(end_offset=70), LOCAL, Verdict.WENT_BACK),
        (manifest(6, 0, "n", owner=dataclasses.replace(OURS, writer="t6")), RECORDED, LOCAL, Verdict.OTHER_COPY),
        (manifest(6, 0, "n", owner=Owner("else", "", "t6")), RECORDED, LOCAL, Verdict.OTHER_OWNER),
        (manifest(6, 0, "n", owner=Owner("cluster", "else", "t6")), RECORDED, LOCAL, Verdict.OTHER_OWNER),
        (manifest(5, 4, "n4", owner=None), RECORDED, LOCAL, Verdict.OTHER_COPY),
        (manifest(5, 9, "any", owner=None), NOBODY, LOCAL, Verdict.TRUSTED),
        (manifest(5, 9, "any", end=90, owner=None), NOBODY, LOCAL, Verdict.WENT_BACK),
        (manifest(6, 0, "n", owner=OURS), NOBODY, LOCAL, Verdict.OTHER_COPY),
        (
            manifest(7, 0, "n", owner=dataclasses.replace(OURS, writer="t7")),
            RECORDED._replace(writers=(Writer(5, "t5"), Writer(7, "t7"))),
            LOCAL,
            Verdict.DEPOSED,
        ),
    ],
)
def test_the_table(found: Snapshot | None, recorded: Archived | None, local: Local, verdict: Verdict) -> None:
    judgement = judge(found, recorded, local, OURS, 5)
    assert judgement.verdict is verdict
    assert judgement.stops == bool(judgement.what)


def test_what_is_recorded_is_read_back() -> None:
    stopped = RECORDED._replace(stopped=Stopped("went-back", "what"), uploading="rows")
    assert decode_archived("key", encode(stopped)) == stopped
    assert decode_archived("key", b'{"end_offset":100,"log_start":0,"leader_epoch":5,"uploading":null}') == NOBODY


@pytest.mark.parametrize(
    ("why", "kind", "command"),
    [("went-back", ManifestWentBack, "recover"), ("other-copy", ForeignManifest, "take-over")],
)
def test_who_is_refused_is_told_what_to_do(why: str, kind: type[Exception], command: str) -> None:
    error = stopped_error(Stopped(why, "what was found"), PartitionLayout("orders", TOPIC_ID, 2), "s3://bucket/")
    assert isinstance(error, kind) and f"tierlog archive {command} orders 2" in str(error)
    assert error_code(error) == ErrorCode.KAFKA_STORAGE_ERROR
    problem = as_problem(error)
    assert (problem.kind.status, problem.kind.name) == (503, "archive-stopped")


# Which segments a repair takes up


def chain(candidates: list[Candidate], goal: int, start: int = 0) -> list[tuple[int, int] | str]:
    def shown(step: Candidate | Hole) -> tuple[int, int] | str:
        if isinstance(step, Hole):
            return step.start_offset, step.end_offset
        return f"{step.segment.name.uuid[0]}{step.segment.base_offset}"

    return [shown(step) for step in best_chain(candidates, start, goal)]


def test_a_chain_loses_as_little_as_it_can() -> None:
    old = [Candidate(segment(0, 10), named=True), Candidate(segment(10, 20), named=True, there=False)]
    merged = Candidate(segment(0, 20, rows=15, uuid="m"), named=False)
    assert chain(old, 20) == ["a0", "a10"], "what is named and gone stays named: it may be put back"
    assert chain([*old, merged], 20) == ["m0"], "a compacted one takes the place of what is gone"
    again = Candidate(segment(10, 20, uuid="b"), named=False)
    assert chain([*old, merged, again], 20) == ["a0", "b10"], "and what the manifest names goes first"
    assert chain([again, merged], 30) == ["m0", (20, 30)]
    assert chain([again], 20) == [(0, 10), "b10"]
    full = [Candidate(segment(0, 10), named=False), Candidate(segment(10, 20), named=False)]
    assert chain([*full, merged], 20) == ["a0", "a10"], "of what nobody names, those with the most rows"
    assert chain([], 0) == [] and chain([], 5) == [(0, 5)]


def test_holes_that_are_on_the_local_disk_end_a_chain() -> None:
    one, two = Candidate(segment(0, 10), named=True), Candidate(segment(30, 40, uuid="b"), named=False)
    steps = best_chain([one, two], 0, 40)
    assert needed(steps, 40) == [one, Hole(10, 30), two]
    assert needed(steps, 20) == [one, Hole(10, 20)]
    assert needed(steps, 10) == [one]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20), st.booleans(), st.booleans()), max_size=25))
def test_a_chain_has_no_overlap_and_ends_at_the_goal(drawn: list[tuple[int, int, bool, bool]]) -> None:
    candidates = [
        Candidate(segment(base, base + size), named=named, there=there or not named)
        for base, size, named, there in drawn
    ]
    at = 0
    for step in best_chain(candidates, 0, 60):
        start, end = (
            (step.start_offset, step.end_offset)
            if isinstance(step, Hole)
            else (step.segment.base_offset, step.segment.end_offset)
        )
        assert start == at < end
        at = end
    assert at >= 60
