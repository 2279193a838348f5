"""A small run of the measurement of large clusters: its fake brokers and groups are what a broker takes for real."""

from pathlib import Path

import pytest

from benchmarks.client import load
from benchmarks.scale import connections, metadata
from benchmarks.scale.report import markdown


@pytest.mark.process
@pytest.mark.slow
def test_a_small_cluster_is_measured(tmp_path: Path) -> None:
    try:
        load.build()
    except load.LoadFailed as error:
        pytest.skip(str(error))
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    idle = connections.measure(tmp_path / "a", connections=50, groups=10)
    cluster = metadata.measure(tmp_path / "b", partitions=1000)
    assert cluster["leaders that a lost broker had"] > 0
    assert idle["open files"] > 60
    shown = markdown(
        {"machine": {"cores": 2, "cpu": "some"}, "commit": "x", "busy_cores": 1.0}
        | {"metadata": [cluster], "connections": idle}
    )
    assert "with 50 idle connections and 10 groups with a member each" in shown
