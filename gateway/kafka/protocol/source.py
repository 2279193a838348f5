"""What compiled readers and writers share: the source of a function while it is being written.

For each struct and version one Python function is written as source and executed. Runs of fixed-size fields become one
`struct` call, and nothing is looked up by name or version while a message is read or written.
"""

from struct import Struct
from typing import Any, Final

FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
SIZES: Final = {kind: Struct(">" + code).size for kind, code in FORMATS.items()}


class Source:
    """The lines of a function that is being written, and the names that they use."""

    def __init__(self, version: int, flexible: bool, names: dict[str, Any]) -> None:
        self.version = version
        self.flexible = flexible
        self.names = names
        self.lines: list[str] = []
        self.indent = "    "
        self.count = 0

    def emit(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def block(self, head: str) -> "Source":
        self.emit(head)
        self.indent += "    "
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.indent = self.indent[:-4]

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def name(self, value: Any, prefix: str = "c") -> str:
        chosen = self.fresh(prefix)
        self.names[chosen] = value
        return chosen

    def function(self, head: str) -> Any:
        source = "\n".join([head, *self.lines])
        exec(compile(source, f"<{head}>", "exec"), self.names)
        return self.names[head[4 : head.index("(")]]
