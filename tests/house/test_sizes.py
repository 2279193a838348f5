"""A module has at most 450 lines and a function at most 60: who opens one holds it in the head.

Compiled kernels are exempt: a kernel is one loop, compiled as a whole.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("tierlog", "gateway", "offloader", "spark", "cold_tier", "hot_tier")
MODULE_LINES = 450
FUNCTION_LINES = 60


def sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.stem.endswith("kernels"):
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def module_lines() -> dict[str, int]:
    return {path: len(text.splitlines()) for path, text in sources()}


def function_lines() -> dict[str, int]:
    """Returns the length of each function; the longest, where a module has several of one name."""
    found: dict[str, int] = {}
    for path, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                name = f"{path}:{node.name}"
                found[name] = max(found.get(name, 0), node.end_lineno - node.lineno + 1)
    return found


def test_no_module_is_too_large() -> None:
    assert {name: lines for name, lines in module_lines().items() if lines > MODULE_LINES} == {}


def test_no_function_is_too_large() -> None:
    assert {name: lines for name, lines in function_lines().items() if lines > FUNCTION_LINES} == {}
