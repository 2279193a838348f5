"""`tierlog.spark` in a checkout: the public name of the folder `spark`. Each module is loaded once for both names.

In the wheel `spark` itself lies here, and this file does not (docs/decisions/packaging.md).
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark import read as read
    from spark import register as register


class _SameModules(MetaPathFinder, Loader):
    """Finds `tierlog.spark.plan` as the module `spark.plan`, and so for all others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(f"{__name__}.") and find_spec(_short(name)) else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(_short(module.__name__))

    def get_code(self, name: str) -> CodeType | None:
        """`python -m` needs this."""
        spec = find_spec(_short(name))
        assert spec and isinstance(spec.loader, InspectLoader)
        return spec.loader.get_code(_short(name))


def _short(name: str) -> str:
    return name.removeprefix("tierlog.")


sys.meta_path.insert(0, _SameModules())
sys.modules[__name__] = import_module(_short(__name__))
