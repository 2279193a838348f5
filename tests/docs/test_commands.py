"""Every command that README.md and the pages of docs name works as written, in the order of the page."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page_commands import blocks

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if any(block.why_not is None for block in blocks(page.read_text()))
]
LONG = ("CLI.md", "SPARK_JOBS.md")
"""Many starts of brokers, and of Spark."""
UNSHARE = ("unshare", "--net", "--map-root-user")


def can_isolate() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], check=False).returncode == 0


@pytest.mark.skipif(
    not can_isolate(), reason="a page needs a network of its own, with Kafka's and HTTP's default ports"
)
@pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd on PATH")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else []) for page in PAGES]
)
def test_a_page_works_as_written(page: Path, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIERLOG_", "AWS_"))}
    environment.update(PATH=programs, PYTHONPATH=str(ROOT))
    ran = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "tests.docs.page_commands", page],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=880,
        check=False,
    )
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
