"""A first start that compiles says so before it does, and its result is kept somewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tierlog import kernel_cache

KERNEL = """
import os, sys
from tierlog.logging import configure_logging
configure_logging("info", "logfmt")
from tierlog.kernel_cache import keep_kernels
keep_kernels(sys.argv[1])
import numba
for _ in range(2):
    @numba.njit("int64(int64)", cache=os.environ.get("KEPT") != "no")
    def twice(number):
        return 2 * number
print(twice(21))
"""


def start(tmp_path: Path, **environment: str) -> str:
    """What a process says that compiles two kernels."""
    script = tmp_path / "kernel.py"
    if not script.exists():
        script.write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "data"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, **environment},
    )
    assert done.stdout == "42\n"
    return done.stderr


def test_who_waits_is_told_once(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    first = start(tmp_path, NUMBA_CACHE_DIR=cache)
    assert first.count("compiling kernels") == 1
    assert cache in first
    assert start(tmp_path, NUMBA_CACHE_DIR=cache) == "", "the second start has it"
    assert "compiles again" in start(tmp_path, NUMBA_CACHE_DIR=cache, KEPT="no")


def test_without_a_place_of_its_own_it_is_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    assert not kernel_cache.any_writable([str(home)])
    assert kernel_cache.any_writable([str(home), str(tmp_path / "new")])
    monkeypatch.delenv(kernel_cache.VARIABLE, raising=False)
    monkeypatch.setattr(kernel_cache, "register", lambda *_: None)
    try:
        kernel_cache.keep_kernels(str(tmp_path / "data"))
        assert kernel_cache.VARIABLE not in os.environ, "the package or the user's cache is taken where it can be"
        monkeypatch.setattr(kernel_cache, "any_writable", lambda _: False)
        kernel_cache.keep_kernels(str(tmp_path / "data"))
        assert kernel_cache.config.CACHE_DIR == os.environ[kernel_cache.VARIABLE] == str(tmp_path / "data" / "kernels")
        assert not (tmp_path / "data").exists(), "there was nothing to bring along"
    finally:
        os.environ.pop(kernel_cache.VARIABLE, None)
        kernel_cache.config.reload_config()  # type: ignore[no-untyped-call]


def test_kernels_of_a_read_only_image_are_taken_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, kept = tmp_path / "image", tmp_path / "data" / "kernels"
    start(tmp_path, NUMBA_CACHE_DIR=str(image))
    monkeypatch.setenv(kernel_cache.VARIABLE, str(image))
    monkeypatch.setattr(kernel_cache, "register", lambda *_: None)
    monkeypatch.setattr(kernel_cache, "any_writable", lambda asked: asked != (str(image),))
    for _ in range(2):
        monkeypatch.setenv(kernel_cache.VARIABLE, str(image))
        kernel_cache.keep_kernels(str(tmp_path / "data"))
        assert os.environ[kernel_cache.VARIABLE] == str(kept)
    assert start(tmp_path, NUMBA_CACHE_DIR=str(kept)) == "", "nothing is compiled again"
    monkeypatch.delenv(kernel_cache.VARIABLE)
    kernel_cache.config.reload_config()  # type: ignore[no-untyped-call]
