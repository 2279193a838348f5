"""Chooses where compiled kernels are kept, and tells the user before they are compiled.

The first start on a machine compiles the loops over records, for some 20 s. numba keeps the result beside the package,
or in the user's cache if the package's folder is read-only. A service user without a home has neither. Then they are
kept in the data directory, which every broker can write.

numba reads no directory that it cannot write. An image whose files are read-only brings its kernels in
`NUMBA_CACHE_DIR`; they are copied to the data directory.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any, Final

import structlog
from numba.core import config
from numba.core.event import Listener, register
from numba.misc.appdirs import AppDirs

from hot_tier import record

VARIABLE: Final = "NUMBA_CACHE_DIR"
FOLDER: Final = "kernels"

_log = structlog.get_logger()


def keep_kernels(data_dir: str) -> None:
    """Call this before kernels are loaded. Child processes inherit the choice."""
    package = os.path.join(os.path.dirname(record.__file__), "__pycache__")
    user = AppDirs(appname="numba", appauthor=False).user_cache_dir  # type: ignore[no-untyped-call]
    given = os.environ.get(VARIABLE)
    if not any_writable((given,) if given else (package, user)):
        kept = os.path.join(os.path.abspath(data_dir), FOLDER)
        if given and os.path.isdir(given):
            shutil.copytree(given, kept, copy_function=shutil.copyfile, dirs_exist_ok=True)
        os.environ[VARIABLE] = kept
        config.reload_config()  # type: ignore[no-untyped-call]
    register("numba:compile", _Teller())  # type: ignore[no-untyped-call]


def any_writable(directories: Iterable[str]) -> bool:
    for directory in directories:
        try:
            os.makedirs(directory, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory):
                return True
        except OSError:
            continue
    return False


class _Teller(Listener):
    """Logs a line before the first compilation begins."""

    def __init__(self) -> None:
        self._told = False

    def on_start(self, event: Any) -> None:
        if self._told:
            return
        self._told = True
        kept = event.data["dispatcher"].stats.cache_path
        _log.info(
            "compiling kernels for this processor, for some 20 s",
            next_start="uses what is kept" if kept else f"compiles again: no directory can be written ({VARIABLE})",
            kept_in=kept or "",
        )

    def on_end(self, event: Any) -> None:
        pass
