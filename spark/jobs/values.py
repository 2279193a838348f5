"""Decodes record values to typed columns: JSON with Spark itself, Avro and Protobuf with their Python libraries.

`decode` adds two columns, `decoded` and `reason`. Exactly one of them is null. For a record without value both are
null: a tombstone is a record, not a mistake. Nothing is guessed or cut: a value with bytes left over after it is not
decoded.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from hot_tier.errors import SettingsError

Kind = Literal["json", "avro", "protobuf"]

Decoder = Callable[[bytes], Any]
"""Returns the value as dictionaries, lists and scalars. Raises ValueError with the reason."""


@dataclass(frozen=True, slots=True)
class Values:
    """The format of values.

    `schema`: for JSON a DDL string or Spark's JSON, or empty, and then it is inferred; for Avro its JSON; for Protobuf
    a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it.
    """

    kind: Kind = "json"
    schema: bytes = b""
    message: str = ""
    """For Protobuf: the full name of the message."""
    skip_bytes: int = 0
    """The number of bytes in front of each value, such as 5 with a schema registry."""


def read_schema(text: str | None) -> bytes:
    """Reads the flag `--schema`: the name of a file, or the schema itself."""
    if text is None:
        return b""
    if os.path.isfile(text):
        with open(text, "rb") as file:
            return file.read()
    return text.encode()


def decode(spark: SparkSession, rows: DataFrame, values: Values) -> DataFrame:
    raw = F.col("value")
    if values.skip_bytes:
        raw = F.substring("value", values.skip_bytes + 1, 0x7FFFFFFF)
    if values.kind == "json":
        return _decode_json(spark, rows.withColumn("_raw", raw), values).drop("_raw")
    decoder, kind = _decoder(values)
    call = F.udf(
        Attempt(decoder),
        StructType([StructField("decoded", kind), StructField("reason", StringType())]),
        useArrow=False,
    ).asNondeterministic()  # Otherwise it is called once for each column that is taken from its result.
    return rows.withColumn("_both", call(raw)).select("*", "_both.decoded", "_both.reason").drop("_both")


def _decoder(values: Values) -> tuple[Decoder, DataType]:
    if not values.schema:
        raise SettingsError(f"values in {values.kind} need a schema", hint="give --schema FILE")
    if values.kind == "avro":
        from spark.jobs.avro_values import avro_decoder

        return avro_decoder(values.schema)
    from spark.jobs.protobuf_values import protobuf_decoder

    return protobuf_decoder(values.schema, values.message)


class Attempt:
    """Returns what the decoder gives, or the reason why it failed. Runs on executors."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def __call__(self, value: bytearray | None) -> tuple[Any, str | None]:
        if value is None:
            return None, None
        try:
            return self._decoder(bytes(value)), None
        except ValueError as error:
            return None, str(error)[:500]


# JSON


def _decode_json(spark: SparkSession, rows: DataFrame, values: Values) -> DataFrame:
    text = F.col("_raw").cast("string")
    # Also null if a name occurs twice in an object, because one of the two values would be lost.
    is_json = F.try_parse_json(text).isNotNull()
    schema = _json_schema(values.schema) if values.schema else _inferred(spark, rows.where(is_json).select(text))
    # Spark reads `{…} rest` as `{…}`. Inside an array and inside an object, anything after the value is an error.
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
    wrapped = F.concat(F.lit('{"value":'), text, F.lit("}"))
    shape = StructType([StructField("value", schema), StructField("_corrupt", StringType())])
    parsed = rows.withColumn("_parsed", F.from_json(wrapped, shape, {"columnNameOfCorruptRecord": "_corrupt"}))
    fits = F.col("_parsed._corrupt").isNull() & F.col("_parsed.value").isNotNull()
    reason = (
        F.when(F.col("_raw").isNull(), None)
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(~(is_json & F.coalesce(alone, F.lit(False))), "not JSON, or a name occurs twice in an object")
        .when(~F.coalesce(fits, F.lit(False)), "does not fit the schema")
    )
    with_reason = parsed.withColumn("reason", reason)
    decoded: Column = F.when(F.col("reason").isNull(), F.col("_parsed.value"))
    return with_reason.withColumn("decoded", decoded).drop("_parsed")


def _json_schema(given: bytes) -> StructType:
    text = given.decode(errors="replace").strip()
    try:
        found = StructType.fromJson(json.loads(text)) if text.startswith("{") else DataType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"not a schema: {str(error).splitlines()[0]}",
            hint="write it as `id bigint, items array<struct<name: string>>`, or as Spark's JSON",
        ) from error
    if not isinstance(found, StructType):
        raise SettingsError(f"{text!r} has no fields", hint="write them as `id bigint, name string`")
    return found


def _inferred(spark: SparkSession, texts: DataFrame) -> StructType:
    found = spark.read.json(texts).schema
    fields = [field for field in found.fields if field.name != "_corrupt_record"]
    if not fields:
        raise SettingsError(
            "there is no JSON object to infer a schema from", hint="check --value, or give the schema with --schema"
        )
    return StructType(fields)
