"""What `pip install .` brings: all our packages, their data, the command, and nothing else."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = ("tierlog", "gateway", "offloader", "spark", "cold_tier", "hot_tier")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves a `build` behind whose stale files would get into the next wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(directory), str(source)]
    subprocess.run(command, check=True, timeout=600)
    (built,) = directory.glob("tierlog-*.whl")
    return built


def test_the_wheel_has_every_module_and_no_test(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    expected = {name for name in tracked.stdout.split() if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = archive.read(next(n for n in archive.namelist() if n.endswith("entry_points.txt"))).decode()
    assert expected <= packed, sorted(expected - packed)
    assert {name.split("/")[0] for name in packed} == set(PACKAGES)
    assert "tierlog = tierlog.__main__:main" in entry_points


def test_every_dependency_is_pinned_and_no_registry_is_named() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert sorted(needed(asked, {""}) - pinned) == [], "run `make constraints`"


def needed(requirements: Iterable[str], extras: set[str]) -> set[str]:
    """What these bring, transitive ones included, as it is installed here."""
    found: set[str] = set()
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in extras)
        if applies and name not in found:
            found |= {name} | brought_by(name, frozenset(requirement.extras or {""}))
    return found


@cache
def brought_by(name: str, extras: frozenset[str]) -> set[str]:
    return needed(metadata.requires(name) or (), set(extras))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_clean_environment_gets_a_working_command(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = tmp_path / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True, timeout=600)
    command = tmp_path / "venv" / "bin" / "tierlog"
    done = subprocess.run(
        [str(command), "demo", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
