"""How loops are compiled: at import, for one signature, cached on disk wherever numba finds a writable directory."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            # Neither the package, nor NUMBA_CACHE_DIR, nor the user's cache can be written: compile each time.
            return numba.njit(signature, nogil=True)(function)

    return decorate


def inlined(function: Callable[..., Any]) -> Any:
    """Compiles a part of kernels that is always inlined. If LLVM decides, it makes a call, and a walk over records
    takes twice as long."""
    return numba.njit(forceinline=True)(function)
