"""Decodes Avro values with fastavro: a schema to Spark's types, and bytes to what Spark accepts for them.

A value is one binary-encoded datum without a file header. A union may have only `null` and one other type. `spark-avro`
is not published for this Spark.
"""

import io
import json
from functools import cache
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from hot_tier.errors import SettingsError

_PRIMITIVE: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "date": DateType(),
    "uuid": StringType(),
}


class AvroDecoder:
    def __init__(self, schema: bytes) -> None:
        self._schema = schema

    def __call__(self, value: bytes) -> Any:
        import fastavro

        stream = io.BytesIO(value)
        try:
            found = fastavro.schemaless_reader(stream, _parsed(self._schema), None)
        except Exception as error:  # fastavro lets errors of its parts through: EOFError, IndexError, struct.error, …
            raise ValueError(f"not Avro of this schema: {type(error).__name__} {error}") from error
        if stream.tell() < len(value):
            raise ValueError(f"not Avro of this schema: {len(value) - stream.tell()} bytes are left over")
        return _plain(found)


def avro_decoder(schema: bytes) -> tuple[AvroDecoder, DataType]:
    try:
        import fastavro
    except ModuleNotFoundError:
        raise SettingsError("fastavro is not installed", hint="pip install 'tierlog[spark]'") from None
    try:
        parsed = _parsed(schema)
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise SettingsError(f"not an Avro schema: {error}", hint="give the .avsc file") from error
    return AvroDecoder(schema), spark_type(parsed, {}, ())


@cache
def _parsed(schema: bytes) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def spark_type(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> DataType:
    """`named` holds the records, enums and fixed met so far; `within` holds the records around this place."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise SettingsError(
                f"the union {schema} has no type in Spark", hint="a union may have only null and one other type"
            )
        return spark_type(others[0], named, within)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema in within:
            raise SettingsError(f"the record {schema} contains itself", hint="Spark has no such type")
        return spark_type(named[schema], named, within)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return spark_type(kind, named, within)
    if "name" in schema:
        named[schema["name"]] = schema
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        inside = (*within, schema["name"])
        return StructType(
            [StructField(field["name"], spark_type(field["type"], named, inside)) for field in schema["fields"]]
        )
    if kind == "array":
        return ArrayType(spark_type(schema["items"], named, within))
    if kind == "map":
        return MapType(StringType(), spark_type(schema["values"], named, within))
    return _PRIMITIVE[kind]


def _plain(value: Any) -> Any:
    import uuid

    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else value
