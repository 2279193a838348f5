"""The soak's arithmetic, and a short run of it against a real broker and a real S3 server."""

import json
from pathlib import Path

import pytest

from benchmarks.soak.__main__ import run
from benchmarks.soak.pace import Pace
from benchmarks.soak.report import COLUMNS, Soak, markdown
from benchmarks.soak.slopes import Slope, theil_sen

HOURS = [number / 60 for number in range(60)]


def test_a_slope_is_found_under_noise_and_outliers() -> None:
    noise = [(number * 7919 % 13) - 6 for number in range(60)]
    values = [300 + 50 * hour + each for hour, each in zip(HOURS, noise, strict=True)]
    values[10] += 1000
    slope = theil_sen(HOURS, values)
    assert slope.low < 50 < slope.high
    assert slope.per_hour == pytest.approx(50, abs=5)
    assert slope.verdict == "grows"


def test_noise_alone_is_flat() -> None:
    slope = theil_sen(HOURS, [300 + (number * 7919 % 13) for number in range(60)])
    assert slope.low < 0 < slope.high
    assert slope.verdict == "flat"


def test_growth_that_is_sure_but_little_is_flat() -> None:
    assert Slope(per_hour=1, low=0.9, high=1.1, median=300).verdict == "flat"
    assert Slope(per_hour=4, low=3.9, high=4.1, median=300).verdict == "grows"


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_short_soak_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    for minutes in (0.1, 0.4, 1.2):
        soak = run(Pace(minutes, rate=400))
        assert soak.errors == {}
        assert soak.checked["kept"] > 0
        # A busy machine does not get that far in a few seconds.
        if soak.checked["removed by retention"] > 0:
            break
    else:
        pytest.fail("retention removed nothing")
    assert soak.rebalances > 3, "members came and went"
    again = Soak.of(json.loads(json.dumps(soak.document())))
    assert again.slopes().keys() == COLUMNS.keys()
    assert markdown(again) == markdown(soak)
