"""Which parts of a topic a filter excludes, by what is known of each part.

DuckDB hands a filter over as an Arrow expression. Arrow itself decides whether it can hold for a part: each part
becomes a fragment with a guarantee, such as `offset >= 100 and offset < 200`, and Arrow drops the fragments whose
guarantee contradicts the filter. So there is no second reading of the filter that could differ from the first.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from cold_tier.format.schema import row_schema

TIME: Final = pa.timestamp("us", tz="UTC")
KNOWN: Final = frozenset({"partition", "offset", "timestamp"})
BLOCK: Final = 32
"""More parts than these are judged together first."""
_FORMAT: Final = ds.ParquetFileFormat()
_NO_FILES: Final = LocalFileSystem()
"""No file is ever opened: fragments serve only as carriers of guarantees."""
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WORD: Final = re.compile(r"[A-Za-z]+")


class Known(NamedTuple):
    """What is certain of every row of a part."""

    partition: int | None
    """None: rows of several partitions."""
    base_offset: int
    end_offset: int
    min_timestamp_ms: int | None = None
    """None: nothing is known of the times."""
    max_timestamp_ms: int | None = None

    def guarantee(self, columns: set[str]) -> pc.Expression:
        """Returns what is certain of these columns."""
        sure = pc.scalar(True)
        if "partition" in columns and self.partition is not None:
            sure = pc.field("partition") == pa.scalar(self.partition, pa.int32())
        if "offset" in columns:
            sure &= (pc.field("offset") >= self.base_offset) & (pc.field("offset") < self.end_offset)
        if "timestamp" in columns and self.min_timestamp_ms is not None and self.max_timestamp_ms is not None:
            sure &= pc.field("timestamp") >= pa.scalar(self.min_timestamp_ms * 1000, TIME)
            sure &= pc.field("timestamp") <= pa.scalar(self.max_timestamp_ms * 1000, TIME)
        return sure


def table_schema(*, raw: bool) -> pa.Schema:
    """Returns the columns of a topic's table. `partition` is the first: DuckDB reads the first one for a `count(*)`,
    and it costs nothing."""
    fields: list[Any] = [pa.field("partition", pa.int32(), nullable=False)]
    for each in row_schema():
        kind = pa.string() if each.name in ("key", "value") and not raw else each.type
        fields.append(pa.field(each.name, kind, nullable=each.nullable))
    return pa.schema(fields)


def survivors(parts: Sequence[Known], condition: pc.Expression | None, schema: pa.Schema) -> list[int]:
    """Returns the positions of the parts that may hold rows for which the condition is true."""
    columns = columns_of(condition, schema) & KNOWN
    if condition is None or not columns:
        return list(range(len(parts)))
    if len(parts) > BLOCK:  # A guarantee takes 100 µs.
        starts = range(0, len(parts), BLOCK)
        blocks = survivors([_together(parts[start : start + BLOCK]) for start in starts], condition, schema)
        alive = []
        for start in (number * BLOCK for number in blocks):
            alive += [start + each for each in survivors(parts[start : start + BLOCK], condition, schema)]
        return alive
    return _alive([part.guarantee(columns) for part in parts], condition, schema)


def _together(parts: Sequence[Known]) -> Known:
    """Returns what is certain of every row of several parts."""
    partitions = {part.partition for part in parts}
    least = [part.min_timestamp_ms for part in parts if part.min_timestamp_ms is not None]
    most = [part.max_timestamp_ms for part in parts if part.max_timestamp_ms is not None]
    timed = len(least) == len(most) == len(parts)
    return Known(
        partitions.pop() if len(partitions) == 1 else None,
        min(part.base_offset for part in parts),
        max(part.end_offset for part in parts),
        min(least) if timed else None,
        max(most) if timed else None,
    )


def always_true(part: Known, condition: pc.Expression | None, schema: pa.Schema) -> bool:
    """Returns whether the condition is certainly true for each row of a part that it does not exclude. The columns of
    which something is known are never null, so it is if its opposite is excluded."""
    if condition is None:
        return True
    columns = columns_of(condition, schema)
    return columns <= KNOWN and not _alive([part.guarantee(columns)], ~condition, schema)


def key_asked_for(condition: pc.Expression | None, schema: pa.Schema) -> bytes | None:
    """Returns the key without which the condition cannot be true; None if there is no such key, or it was not found.

    The text of the condition only suggests keys. A key counts if the condition excludes every other key, and no key.
    """
    if condition is None or "key" not in columns_of(condition, schema):
        return None
    text = pa.types.is_string(schema.field("key").type)
    for found in _TEXT.findall(str(condition))[:64]:
        try:
            key: Any = re.sub(r"\\(.)", r"\1", found) if text else bytes.fromhex(found)
        except ValueError:
            continue
        field, value = pc.field("key"), pa.scalar(key, schema.field("key").type)
        if not _alive([field < value, field > value, field.is_null()], condition, schema):
            return key.encode() if isinstance(key, str) else bytes(key)
    return None


def columns_of(condition: pc.Expression | None, schema: pa.Schema) -> set[str]:
    """Returns the columns that the condition reads, and perhaps more: words of texts in it may be names as well."""
    return set() if condition is None else set(_WORD.findall(str(condition))) & set(schema.names)


def _alive(guarantees: Collection[pc.Expression], condition: pc.Expression, schema: pa.Schema) -> list[int]:
    fragments = [
        _FORMAT.make_fragment(str(number), _NO_FILES, partition_expression=each)
        for number, each in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _FORMAT, _NO_FILES)
    return [int(each.path) for each in dataset.get_fragments(filter=condition)]
