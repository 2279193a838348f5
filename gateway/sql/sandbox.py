"""DuckDB as queries get it: one SELECT, in memory, over tables that the broker hands over, and nothing else.

Three walls, each of which is enough:
- DuckDB opens no file and no connection, loads no extension, and its settings are locked.
- Only a SELECT is run, its syntax tree has only known kinds of nodes, and only listed table functions.
- Names are resolved to registered topics only: not to files, not to variables of this process.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gateway.sql.errors import BadQuery, SqlNotInstalled

CONFIG: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "max_temp_directory_size": "0KB",
}
TABLE_FUNCTIONS: Final = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
QUERY_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
LISTS: Final = frozenset({"SHOW_SPECIAL", "SHOW_FROM"})
"""SHOW TABLES and its like."""
LIST_HINT: Final = "`tierlog topic list` and GET /api/v1/topics list topics; DESCRIBE names the columns of one"
SELECT_HINT: Final = "send one SELECT; the estimate (`tierlog sql --estimate`) says what it would read"
OFFSET_HINT: Final = 'offset is a word of SQL: write it in double quotes, "offset"'


class Names(NamedTuple):
    query: str
    """What to run: as it was written, or with `offset` in quotes."""
    tables: frozenset[str]
    """As they are written in the query."""
    perhaps: frozenset[str]
    """Names that the query also gives to parts of itself (WITH)."""


def connect(memory_bytes: int, threads: int, *, dry: bool = False) -> Any:
    """Returns a new database. Its cursors are connections of their own: nothing that one registers is seen by another,
    and none can change a setting. `dry`: its tables only tell what would be read of them."""
    duckdb = module()
    connection = duckdb.connect(
        ":memory:", config={**CONFIG, "memory_limit": f"{memory_bytes}B", "threads": str(threads)}
    )
    connection.execute("SET GLOBAL TimeZone = 'UTC'").fetchall()
    if dry:
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown,top_n'").fetchall()
    connection.execute("SET lock_configuration = true").fetchall()
    return connection


def module() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise SqlNotInstalled(
            "DuckDB is not installed beside this broker", hint="pip install 'tierlog[sql]', and start the broker again"
        ) from error
    return duckdb


def names(connection: Any, query: str) -> Names:
    """Returns the tables of a query that may be run. Raises BadQuery."""
    tree = _tree(connection, query)
    if tree["error"]:
        quoted = _quote_offset(query)
        again = _tree(connection, quoted) if quoted != query else tree
        if again["error"]:
            if again.get("error_type") == "not implemented":  # It is SQL, but its tree has no SELECT at the top.
                raise BadQuery("it is not a SELECT", hint=SELECT_HINT)
            hint = OFFSET_HINT if quoted != query else ""
            raise BadQuery(str(tree.get("error_message", "it is not SQL")), hint=hint)
        query, tree = quoted, again
    statements = tree["statements"]
    if len(statements) != 1:
        raise BadQuery(f"it has {len(statements)} statements", hint="send one SELECT at a time")
    tables: set[str] = set()
    own: set[str] = set()
    for node in _nodes(statements[0]):
        _check(node)
        if node.get("type") == "BASE_TABLE":
            tables.add(_name_of(node))
        if isinstance(node.get("cte_map"), dict):
            own |= {str(each["key"]) for each in node["cte_map"]["map"]}
    folded = {name.lower() for name in own}
    perhaps = frozenset(name for name in tables if name.lower() in folded)
    sure = frozenset(tables) - perhaps
    if len({name.lower() for name in tables}) != len(tables):
        raise BadQuery("two topics of the query differ only in capital letters", hint="query them one at a time")
    return Names(query, sure, perhaps)


def _name_of(table: dict[str, Any]) -> str:
    """Returns the name of a table. DuckDB's own tables, of its settings and catalog, are not for queries."""
    schema, name = str(table["schema_name"]), str(table["table_name"])
    if schema in ("information_schema", "pg_catalog"):
        raise BadQuery(f"the table {schema}.{name} is not for queries", hint=LIST_HINT)
    if schema or table["catalog_name"]:
        hint = "write the name of a topic with dots or dashes in double quotes"
        raise BadQuery(f"there is no table {schema}.{name}", hint=hint)
    return name


def _tree(connection: Any, query: str) -> dict[str, Any]:
    (text,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0]
    try:
        tree: dict[str, Any] = json.loads(text)
    except RecursionError:
        raise BadQuery("it is nested too deeply", hint="use fewer parentheses and conditions within others") from None
    return tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _check(node: dict[str, Any]) -> None:
    kind = node.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in QUERY_NODES:
        raise BadQuery("it does more than to read", hint="send one SELECT")
    if kind == "SHOW_REF" and node.get("show_type") in LISTS:
        raise BadQuery("a query lists no tables", hint=LIST_HINT)
    if kind == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", ""))
        if name not in TABLE_FUNCTIONS:
            allowed = ", ".join(sorted(TABLE_FUNCTIONS))
            raise BadQuery(f"the table function {name} is not for queries", hint=f"these are: {allowed}")


def _quote_offset(query: str) -> str:
    """Returns the query with `offset` in quotes where it is no clause (`OFFSET 10`)."""
    duckdb = module()
    data = query.encode()
    tokens = [(place, str(kind)) for place, kind in duckdb.tokenize(query)]
    for number in range(len(tokens) - 1, -1, -1):
        place, kind = tokens[number]
        following = tokens[number + 1][1] if number + 1 < len(tokens) else ""
        word = data[place : place + 6]
        if kind.endswith("keyword") and word.lower() == b"offset" and not following.endswith("numeric_const"):
            data = data[:place] + b'"' + word + b'"' + data[place + 6 :]
    return data.decode()
