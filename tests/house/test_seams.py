"""Where rooms meet: the gateway reaches into no partition's log, and the handlers of Kafka's APIs are in one place."""

import ast
from collections.abc import Iterator

from tests.house.test_sizes import sources


def logs_reached_into(path: str, text: str) -> Iterator[str]:
    """Yields each place where an attribute `log` is read, of whatever variable."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == "log":
            yield f"{path}:{node.lineno}"


def test_the_gateway_reaches_into_no_log() -> None:
    gateway = [(path, text) for path, text in sources() if path.startswith("gateway/")]
    assert gateway, "modules are found at all"
    assert [place for path, text in gateway for place in logs_reached_into(path, text)] == []


def test_a_log_that_is_reached_into_is_found() -> None:
    text = "def end(partition):\n    return partition.log.log_end_offset\n"
    assert list(logs_reached_into("gateway/any.py", text)) == ["gateway/any.py:2"]


def test_what_handles_no_api_is_elsewhere() -> None:
    """`api_versions` needs the table of all handlers, and `fetch` calls `replica_fetch`."""
    folder = "gateway/kafka/handlers/"
    modules = {path: text for path, text in sources() if path.startswith(folder) and not path.endswith("__init__.py")}
    assert modules, "modules are found at all"
    without = {path.removeprefix(folder) for path, text in modules.items() if "\nHANDLERS" not in text}
    assert without == {"api_versions.py", "replica_fetch.py"}
