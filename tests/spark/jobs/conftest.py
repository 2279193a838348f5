import shutil
from pathlib import Path

import pytest

from tests.spark.conftest import Archive


@pytest.fixture
def copy(archive: Archive, tmp_path: Path) -> Path:
    """A bucket of the test's own, to be changed."""
    return Path(shutil.copytree(archive.path, tmp_path / "bucket"))
