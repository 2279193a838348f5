"""One file of a log is harmed: readers get what was written, or an error. See `damage`."""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog
from tests.hot_tier.log.damage import MOMENTS, SHAPES, Case, Written, Wrong, cases, everything, flip_head, run

SEED = 20_261_116
FEW = 160


@pytest.fixture(autouse=True)
def nothing_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine runs on in all of these cases, and syncing is most of their time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


def run_all(chosen: list[Case], directory: Path) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for number, case in enumerate(chosen):
        try:
            outcomes[asyncio.run(run(case, directory / str(number)))] += 1
        except Wrong as error:
            wrong.append(f"{case}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(chosen)} readers were deceived", *wrong[:40]])
    return outcomes


def test_some_of_it(tmp_path: Path) -> None:
    every = cases(SEED)
    outcomes = run_all(random.Random(SEED).sample(every, FEW), tmp_path)
    assert outcomes["errors"] > FEW // 3
    assert outcomes["right"] > FEW // 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_it(tmp_path: Path, shape: str, moment: str) -> None:
    outcomes = run_all([case for case in cases(SEED) if (case.shape, case.moment) == (shape, moment)], tmp_path)
    assert outcomes["errors"] > outcomes["right"]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_copy_in_the_place_of_a_damaged_file_is_served(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hot_tier.log.segment._LOOK_AGAIN_SECONDS", 0.0)

    async def scenario() -> None:
        written = Written(tmp_path / "data", shape)
        log = written.log(await written.write())
        for info in log.segments():
            path = Path(info.path)
            content = path.read_bytes()
            flip_head(path, 0, 60)
            with pytest.raises(CorruptLog):
                await everything(log, info.base_offset)
            assert [each.base_offset for each in log.segments() if each.damage] == [info.base_offset]
            path.write_bytes(content)
            assert await written.check(log, written.records) == 0
            assert not any(each.damage for each in log.segments())

    asyncio.run(scenario())
