"""The wheel as `pip wheel` builds it, and an environment that has it and none of the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone as it would be committed now: setuptools leaves files behind where it builds."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    copy = tmp_path_factory.mktemp("source")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/", "docs/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


def build_wheel(source: Path, directory: Path) -> Path:
    command = [*PIP, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run([*command, str(source)], check=True, timeout=300)
    (built,) = directory.glob("tierlog-*.whl")
    return built


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and how its programs are called: from `project`, as a user would."""

    bin: Path
    project: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Nothing of ours but the wheel: no setting, no search path, no way back to the repository. Kernels are kept
        beside the programs, as in the image."""
        ours = ("TIERLOG_", "PYTHONPATH", "PYSPARK_", "SPARK_")
        others = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return others | {"NUMBA_CACHE_DIR": str(self.bin.with_name("kernels"))}

    def run(self, program: str, *arguments: str, stdin: str = "", timeout: float = 120) -> str:
        done = subprocess.run(
            [str(self.bin / program), *arguments],
            cwd=self.project,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{program} {' '.join(arguments)}:\n{done.stdout}{done.stderr[-5000:]}"
        return done.stdout


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Dependencies are those of this environment. A path in a `.pth` file is searched, but its own `.pth` files, with
    which an editable install shows the repository, are not read."""
    directory = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory / "venv"], check=True, timeout=120)
    made = Installed(directory / "venv" / "bin", directory / "project")
    made.project.mkdir()
    (packages,) = (directory / "venv" / "lib").glob("python*/site-packages")
    packages.joinpath("dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [*PIP, "--python", str(made.bin / "python"), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, timeout=120)
    return made
