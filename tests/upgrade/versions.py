"""Version 0.1.0 beside the present one: its own source, run with the packages of the present environment.

Nothing is downloaded or installed: `git archive` of its commit, put first on the path of a process.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.support.forks import ROOT
from tierlog.process import ServeProcess

COMMIT: Final = "b5836e350b596d5b8f0de27375e8531a890c5842"
TREE: Final = ROOT / ".cache" / "versions" / "0.1.0"
"""Kept, because its kernels are compiled into it."""
PACKAGES: Final = ("tierlog", "gateway", "offloader", "spark", "cold_tier", "hot_tier")


def environment_of_old() -> dict[str, str]:
    """For a process that is to run 0.1.0. Skips the test where the history does not have it."""
    if not TREE.exists():
        known = subprocess.run(["git", "cat-file", "-e", COMMIT], cwd=ROOT, capture_output=True, check=False)
        if known.returncode != 0:
            pytest.skip(f"the source of 0.1.0, commit {COMMIT[:7]}, is not in this checkout's history")
        TREE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TREE.parent) as name:
            source = Path(name) / "source.tar"
            subprocess.run(["git", "archive", "-o", str(source), COMMIT, "--", *PACKAGES], cwd=ROOT, check=True)
            with tarfile.open(source) as tar:
                tar.extractall(Path(name) / "tree", filter="data")
            try:
                (Path(name) / "tree").rename(TREE)
            except OSError:  # another test was faster
                assert TREE.exists()
    # Safe path: else a process looks for modules in its working directory first, which is the present version's.
    environment = {"PYTHONPATH": str(TREE), "PYTHONSAFEPATH": "1"}
    show = "import hot_tier, tierlog; print(hot_tier.__file__, tierlog.__file__)"
    found = subprocess.check_output([sys.executable, "-c", show], env={**os.environ, **environment}, text=True)
    assert all(name.startswith(f"{TREE}/") for name in found.split()), found
    return environment


def run_as(process: ServeProcess, environment: dict[str, str]) -> None:
    """Stopped if it runs, and started on the same directory and ports as another version; {} is the present one."""
    if process.process is not None:
        process.stop()
    process.environment = {**os.environ, **environment}
    process.start()
