"""The build backend (PEP 517): setuptools, but for a wheel all packages lie under `tierlog`.

An editable install and the source distribution have the repository as it is. A wheel is built from a copy in which the
packages have moved and their imports follow (`imports`). docs/decisions/packaging.md says why.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from imports import MOVED, TARGET, module_names, moved
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    target = os.path.abspath(wheel_directory)
    with _moved_tree():
        return build_meta.build_wheel(target, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    target = os.path.abspath(metadata_directory)
    with _moved_tree():
        return build_meta.prepare_metadata_for_build_wheel(target, config_settings)


@contextmanager
def _moved_tree() -> Iterator[None]:
    """The working directory is a copy of the repository as the wheel has it; frontends start in the repository."""
    repository = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="tierlog-wheel-") as directory:
        write_moved(repository, Path(directory))
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(repository)


def write_moved(repository: Path, copy: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, copy / name)
    (copy / TARGET).mkdir()
    shutil.copy(repository / "constraints.txt", copy / TARGET)  # for who installs the wheel and has no clone
    files = [
        PurePosixPath(path.relative_to(repository).as_posix())
        for package in (TARGET, *MOVED)
        for path in sorted((repository / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    modules = module_names(files)
    for file in files:
        if file == PurePosixPath(TARGET, "spark.py"):
            continue  # the name in a checkout; here is the package itself
        target = copy / (file if file.parts[0] == TARGET else PurePosixPath(TARGET) / file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / file, target)
        if file.suffix == ".py":
            target.write_text(moved((repository / file).read_text("utf-8"), str(file), modules), "utf-8")
