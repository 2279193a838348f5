"""How a broker loads packages. Modules import at their top what they use; this one decides what a start waits for.

- `DEFERRED` packages are loaded when a name in them is first used. A broker that never uses one never loads it.
  Write `import pyarrow as pa` and `import joserfc.jws as jws`: `from joserfc import jws` uses a name at once. So does a
  module that uses a name at its top; what is made of these packages is therefore made by cached functions.
- `UNUSED` packages are imported by libraries where they are installed, for what nobody needs here.
- The garbage collector rests during the imports. They leave no garbage, and it took a sixth of a start.

`tests/tierlog/test_loading.py` says what the command line and an idle broker do without.
"""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock, get_ident
from types import ModuleType
from typing import Any, Final

from cold_tier import format as cold_format

DEFERRED: Final = (f"{cold_format.__name__}.key_client", "cryptography", "joserfc", "pyarrow")
UNUSED: Final = ("cffi", "pandas", "rich", "yaml")
"""numba imports cffi and yaml, structlog rich, and pyarrow pandas when it makes its first array."""
ERRORS: Final = "rich"
"""Shows the error that ends a start, so it is only hidden from the imports of a broker."""

_turn: Final = RLock()
"""Held while a deferred package is loaded."""
_at_work: Final[set[int]] = set()
"""The thread that loads one. What it imports meanwhile is not deferred."""


@contextmanager
def quickly() -> Iterator[None]:
    """Goes around the imports of a broker. What they make is left out of later collections."""
    hidden = _Hidden(UNUSED)
    sys.meta_path[:0] = [hidden, _Later]
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        hidden.names.discard(ERRORS)


def is_loaded(name: str) -> bool:
    """Returns whether a module is here, and not only something that stands for it."""
    module = sys.modules.get(name)
    return module is not None and not isinstance(getattr(getattr(module, "__spec__", None), "loader", None), _Later)


class _Hidden:
    """An import hook that hides packages, even if they are installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = set(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self.names:
            raise ModuleNotFoundError("the broker does without it", name=name)


class _Later(Loader):
    """An import hook and loader: a deferred module stands for its package until a name in it is used."""

    def __init__(self, loader: SourceFileLoader) -> None:
        self.loader = loader

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if not _is_deferred(name) or get_ident() in _at_work:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = cls(spec.loader)
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Takes Python's usual module."""

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Deferred


def _is_deferred(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in DEFERRED)


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> Any:
        """Is asked for names that are not there yet."""
        with _turn:
            assert self.__spec__ is not None
            if isinstance(later := self.__spec__.loader, _Later):
                self._load(self.__spec__, later)
        return object.__getattribute__(self, name)

    def _load(self, spec: ModuleSpec, later: _Later) -> None:
        outermost = get_ident() not in _at_work
        _at_work.add(get_ident())
        self.__loader__ = spec.loader = later.loader
        try:
            later.loader.exec_module(self)
        except BaseException:
            spec.loader = later
            raise
        finally:
            if outermost:
                _at_work.discard(get_ident())
