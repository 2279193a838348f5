"""The campaign of `tests.damage`: a seeded sample, and with the slow tests all of it."""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.damage import bucket, cluster, metadata, one_log, source
from tests.damage.table import (
    ARCHIVE,
    COLD,
    COMPACTION,
    HOT,
    METADATA,
    MOMENTS,
    REPLICATION,
    SHAPES,
    Case,
    cases,
    spread,
)

SEED = 20_261_116
SAMPLE = {HOT: 100, COMPACTION: 20, ARCHIVE: 8, REPLICATION: 6, COLD: 8, METADATA: 24}
PLACES = {
    HOT: one_log.run,
    COMPACTION: one_log.run,
    ARCHIVE: source.run,
    REPLICATION: cluster.run,
    COLD: bucket.run,
    METADATA: metadata.run,
}
NOTICED = {"errors", "mended", "refused", "failed"}


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine runs on in all of these cases, and syncing is most of their time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


def run_all(chosen: Sequence[Case], directory: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for number, case in enumerate(chosen):
        folder = directory / str(number)
        folder.mkdir()
        try:
            outcomes[asyncio.run(PLACES[case.path](case, folder / "data"))] += 1
        except Exception as error:
            # One that is deceived, and one that fails in any other way: all are told, each with its case.
            wrong.append(f"{case}: {type(error).__name__}: {error}")
        finally:
            shutil.rmtree(folder)
    assert not wrong, "\n".join([f"{len(wrong)} of {len(chosen)} cases went wrong", *wrong[:40]])
    return outcomes


@pytest.mark.parametrize("path", PLACES)
def test_some_of_it(path: str, tmp_path: Path) -> None:
    of_path = [case for case in cases(SEED) if case.path == path]
    outcomes = run_all(spread(of_path, SAMPLE[path], SEED), tmp_path)
    assert sum(outcomes[each] for each in NOTICED) > SAMPLE[path] // 6, outcomes


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", PLACES)
def test_all_of_it(path: str, shape: str, moment: str, tmp_path: Path) -> None:
    chosen = [case for case in cases(SEED) if (case.path, case.shape, case.moment) == (path, shape, moment)]
    if not chosen:
        pytest.skip("the table has no such case")
    outcomes = run_all(chosen, tmp_path)
    assert sum(outcomes[each] for each in NOTICED) > len(chosen) // 6, outcomes
