"""Values become typed columns, or keep their bytes and get a reason; nothing in between."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import Row, SparkSession

from hot_tier.errors import SettingsError
from spark.jobs.values import Values, decode

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def decoded(spark: SparkSession, data: list[bytes | None], values: Values) -> list[tuple[Any, str | None]]:
    rows = spark.createDataFrame([(n, each) for n, each in enumerate(data)], "offset int, value binary").coalesce(1)
    found = decode(spark, rows, values).orderBy("offset").collect()
    assert [None if row["value"] is None else bytes(row["value"]) for row in found] == data
    return [(row["decoded"], row["reason"]) for row in found]


def test_json(spark: SparkSession) -> None:
    schema = Values(schema=b"a int, b struct<c: int>")
    good = [b'{"a":1,"b":{"c":2}}', b' {"a": 1} ', b"{}", b'{"a":null,"other":[1]}']
    assert [reason for _, reason in decoded(spark, good, schema)] == [None] * 4
    assert decoded(spark, good, schema)[0][0] == Row(a=1, b=Row(c=2))
    not_json = [
        b'{"a":1}} rest',
        b'{"a":1},"b":2',
        b"",
        b"nope",
        b'{"a":1',
        b'{"a":1} rest',
        b'{"a":1}{"a":2}',
        b'{"a":1},{"a":2}',
        b'{"a":1,"a":2}',
    ]
    assert {(value, str(reason)[:8]) for value, reason in decoded(spark, not_json, schema)} == {(None, "not JSON")}
    other = [b'{"a":"x"}', b'{"b":{"c":"x"}}', b'{"a":1.5}', b"[1]", b'"s"', b"1", b'{"b":3}']
    other += [b'{"a":1}] rest']
    assert set(decoded(spark, other, schema)) == {(None, "does not fit the schema")}
    assert decoded(spark, [b'\xff{"a":1}', None], schema) == [(None, "not UTF-8"), (None, None)]
    assert decoded(spark, [b"\0\0\0\0\7" + b'{"a":5}'], Values(schema=b"a int", skip_bytes=5)) == [(Row(a=5), None)]


def test_json_inferred_from_what_is_json(spark: SparkSession) -> None:
    data = [b'{"a":1}', b'{"a":2.5,"b":"x"}', b"garbage", b'{"a":1,"a":2}']
    found = decoded(spark, data, Values())
    assert [value for value, _ in found] == [Row(a=1.0, b=None), Row(a=2.5, b="x"), None, None]
    with pytest.raises(SettingsError, match="infer"):
        decoded(spark, [b"garbage", None], Values())


def test_avro(spark: SparkSession) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "Line", "fields": [{"name": "raw", "type": "bytes"}]},
                },
            },
            {"name": "was", "type": ["null", "State"]},
        ],
    }
    order = {
        "id": 5,
        "note": None,
        "state": "DONE",
        "at": datetime(2026, 3, 1, 8, tzinfo=UTC),
        "price": Decimal("12.50"),
        "tags": {"a": 1},
        "lines": [{"raw": b"\xff"}],
        "was": "NEW",
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), order)
    data = stream.getvalue()
    values = Values("avro", json.dumps(schema).encode())
    found = decoded(spark, [data, data[:-1], data + b"x", b"", None], values)
    row = found[0][0].asDict(recursive=True)
    assert row.pop("at").timestamp() == order["at"].timestamp()
    assert row == {name: each for name, each in order.items() if name != "at"}
    assert [value for value, _ in found[1:]] == [None] * 4
    assert [str(reason)[:8] for _, reason in found] == ["None", "not Avro", "not Avro", "not Avro", "None"]
    assert "left over" in str(found[2][1])
    with pytest.raises(SettingsError, match="not an Avro schema"):
        decoded(spark, [data], Values("avro", b'{"type": "strange"}'))
    with pytest.raises(SettingsError, match="union"):
        decoded(spark, [data], Values("avro", b'["int", "string"]'))


def descriptors() -> bytes:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="DONE", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="raw", number=1, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="size", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="state", number=3, type=field.TYPE_ENUM, type_name=".shop.State", label=field.LABEL_OPTIONAL)
    order.field.add(name="first", number=4, type=field.TYPE_MESSAGE, type_name=".shop.Line", label=field.LABEL_OPTIONAL)
    order.field.add(name="lines", number=5, type=field.TYPE_MESSAGE, type_name=".shop.Line", label=field.LABEL_REPEATED)
    order.field.add(name="notes", number=6, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    tags = ".shop.Order.TagsEntry"
    order.field.add(name="tags", number=7, type=field.TYPE_MESSAGE, type_name=tags, label=field.LABEL_REPEATED)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_protobuf(spark: SparkSession) -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(
        id=-5, size=2**64 - 1, state=1, notes=["a", "b"], tags={"x": 1}
    )
    order.lines.add(raw=b"\xff")
    data = order.SerializeToString()
    found = decoded(spark, [data, data[:-1], b"", None], Values("protobuf", descriptors(), "shop.Order"))
    row = found[0][0].asDict(recursive=True)
    assert (row["id"], int(row["size"]), row["state"], row["first"]) == (-5, 2**64 - 1, "DONE", None)
    assert (row["notes"], row["tags"], bytes(row["lines"][0]["raw"])) == (["a", "b"], {"x": 1}, b"\xff")
    assert found[1][0] is None and str(found[1][1]).startswith("not a shop.Order")
    assert found[2][0]["state"] == "NEW", "no bytes are a message of defaults"
    assert found[3] == (None, None)
    with pytest.raises(SettingsError, match="no message"):
        decoded(spark, [data], Values("protobuf", descriptors(), "shop.Nothing"))
    with pytest.raises(SettingsError, match="descriptor set"):
        decoded(spark, [data], Values("protobuf", b"\xff\xff", "shop.Order"))
