import shutil
from pathlib import Path

import pytest

from tests.spark.conftest import TOPIC, Archive


@pytest.fixture
def copy(archive: Archive, tmp_path: Path) -> Path:
    """A bucket of the test's own, to be changed: of all that others have in the shared one, only the topic."""
    shared, bucket = Path(archive.path), tmp_path / "bucket"
    for folder in [shared / f"topic={TOPIC}", *shared.glob(f"_tierlog/{TOPIC}.*")]:
        shutil.copytree(folder, bucket / folder.relative_to(shared))
    return bucket
