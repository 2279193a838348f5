"""Which tests run one after another in the same worker, and in which order they begin."""

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

SHARING = ("tests/spark/", "tests/terraform/", "tests/console/")
"""A folder has one Spark session and one archive, one browser and one broker, or one Terraform, which is run once at a
time on a machine."""
ALONE = ("tests/chaos/", "tests/docs/test_commands.py")
"""A test has brokers of its own, and runs for long."""


def scope(nodeid: str) -> str:
    """Tests of one scope share a worker, and so what their fixtures start."""
    file = nodeid.split("::", 1)[0]
    if file.startswith(SHARING):
        return str(Path(file).parent)
    return nodeid if file.startswith(ALONE) else file


class Turns(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """Workers that begin together end together if the short files are left for the end."""
    long_files = {item.path for item in items if item.get_closest_marker("process")}
    first = (*SHARING, *ALONE)
    items.sort(key=lambda item: (not item.nodeid.startswith(first), item.path not in long_files))
