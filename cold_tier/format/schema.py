"""The columns of an archived segment: those of Spark's Kafka source, plus the leader epoch.

`topic` and `partition` come from the Hive folders. Field ids let Iceberg use the files without a copy. Readers of the
files find the columns in docs/formats/cold-segment.md.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pyarrow as pa

FORMAT_VERSION: Final = 1


def _field(number: int, name: str, kind: pa.DataType, *, nullable: bool) -> pa.Field[pa.DataType]:
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


@cache
def row_schema() -> pa.Schema:
    header = pa.struct([_field(9, "key", pa.string(), nullable=False), _field(10, "value", pa.binary(), nullable=True)])
    return pa.schema(
        [
            _field(1, "offset", pa.int64(), nullable=False),
            _field(2, "timestamp", pa.timestamp("us", "UTC"), nullable=False),
            _field(3, "timestampType", pa.int32(), nullable=False),
            _field(4, "key", pa.binary(), nullable=True),
            _field(5, "value", pa.binary(), nullable=True),
            _field(6, "headers", pa.list_(_field(8, "element", header, nullable=False)), nullable=True),
            _field(7, "leaderEpoch", pa.int32(), nullable=False),
        ]
    )
