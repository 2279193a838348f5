"""Moves a module under `tierlog`: `from gateway.lane import Lane` becomes `from tierlog.gateway.lane import Lane`.

Only import statements change, and no line moves: a traceback of the wheel names the lines of the repository.
Whatever else names one of our modules would go wrong in the wheel alone, so it is refused here: `import gateway.lane`,
which binds the name `gateway`, and a text such as "offloader.worker" (say `__name__`, or import what is meant).
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

MOVED = ("gateway", "offloader", "spark", "cold_tier", "hot_tier")
TARGET = "tierlog"


class NotMovable(Exception):
    pass


def module_names(files: Collection[PurePosixPath]) -> set[str]:
    """The dotted names of Python files, relative to the repository; those of packages too."""
    names = [file.with_suffix("").parts for file in files if file.suffix == ".py"]
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in names}


def moved(source: str, path: str, modules: Collection[str]) -> str:
    """The text of a module as the wheel has it. `modules` are all names that a text must not hold."""
    tree = ast.parse(source, path)
    _refuse_module_texts(tree, path, modules)
    lines = source.splitlines(keepends=True)
    for line, column in sorted(_insertions(tree, path, lines), reverse=True):
        # The columns of `ast` count bytes.
        text = lines[line - 1].encode()
        lines[line - 1] = (text[:column] + f"{TARGET}.".encode() + text[column:]).decode()
    return "".join(lines)


def _insertions(tree: ast.Module, path: str, lines: list[str]) -> Iterator[tuple[int, int]]:
    """Line and column of every module name that gets a prefix."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and _is_moved(node.module):
            column = node.col_offset + len("from ")
            if not lines[node.lineno - 1].encode()[column:].startswith(node.module.encode()):
                raise NotMovable(f"{path}:{node.lineno}: write `from {node.module} import` with single spaces")
            yield node.lineno, column
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_moved(alias.name):
                    if alias.asname is None:
                        raise NotMovable(f"{path}:{node.lineno}: write `from … import`, not `import {alias.name}`")
                    yield alias.lineno, alias.col_offset


def _refuse_module_texts(tree: ast.Module, path: str, modules: Collection[str]) -> None:
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            name = node.value.removesuffix(".")
            if "." in name and _is_moved(name) and name in modules:
                raise NotMovable(
                    f"{path}:{node.lineno}: the text {node.value!r} names a module; in the wheel it is not"
                )


def _is_moved(name: str) -> bool:
    return name.partition(".")[0] in MOVED
