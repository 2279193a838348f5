"""Decodes Protobuf values with Google's library: a message to Spark's types, and bytes to what Spark accepts for them.

A field with presence that is not set is null; other fields have their default. An enum is the name of its value, or its
number if the schema has no name for it. Protobuf skips fields that it does not know, so only bytes that are not a
message at all are refused.
"""

from functools import cache
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from hot_tier.errors import SettingsError

_BY_CPP_TYPE: Final[dict[int, DataType]] = {
    1: IntegerType(),
    2: LongType(),
    3: LongType(),  # uint32
    4: DecimalType(20, 0),  # uint64
    5: DoubleType(),
    6: FloatType(),
    7: BooleanType(),
    8: StringType(),  # enum
}
_STRING: Final = 9
_MESSAGE: Final = 10
_BYTES: Final = 12
"""A `FieldDescriptor.type`, in which strings and bytes differ."""


class ProtobufDecoder:
    def __init__(self, descriptors: bytes, message: str) -> None:
        self._descriptors = descriptors
        self._message = message

    def __call__(self, value: bytes) -> Any:
        from google.protobuf.message import DecodeError

        message = _message_class(self._descriptors, self._message)()
        try:
            message.ParseFromString(value)
        except DecodeError as error:
            raise ValueError(f"not a {self._message}: {error}") from error
        return _plain(message)


def protobuf_decoder(descriptors: bytes, message: str) -> tuple[ProtobufDecoder, DataType]:
    try:
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError:
        raise SettingsError("protobuf is not installed", hint="pip install 'tierlog[spark]'") from None
    if not message:
        raise SettingsError("values in protobuf need the name of a message", hint="give its full name with --message")
    try:
        found = _message_class(descriptors, message)
    except (DecodeError, TypeError) as error:
        hint = "write it with protoc --include_imports --descriptor_set_out=FILE"
        raise SettingsError(f"not a descriptor set: {error}", hint=hint) from error
    except KeyError:
        raise SettingsError(
            f"there is no message {message!r} in the descriptor set", hint="give its full name"
        ) from None
    return ProtobufDecoder(descriptors, message), spark_type(found.DESCRIPTOR, ())


@cache
def _message_class(descriptors: bytes, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def spark_type(descriptor: Any, within: tuple[str, ...]) -> StructType:
    if descriptor.full_name in within:
        raise SettingsError(f"the message {descriptor.full_name} contains itself", hint="Spark has no such type")
    inside = (*within, descriptor.full_name)
    return StructType([StructField(field.name, _field_type(field, inside)) for field in descriptor.fields])


def _field_type(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single_type(entry["key"], within), _single_type(entry["value"], within))
    kind = _single_type(field, within)
    return ArrayType(kind) if field.is_repeated else kind


def _single_type(field: Any, within: tuple[str, ...]) -> DataType:
    if field.cpp_type == _MESSAGE:
        return spark_type(field.message_type, within)
    if field.cpp_type == _STRING:
        return BinaryType() if field.type == _BYTES else StringType()
    return _BY_CPP_TYPE[field.cpp_type]


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _plain(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _single(entry, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_single(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _single(field, value)
    return found


def _single(field: Any, value: Any) -> Any:
    from decimal import Decimal

    if field.cpp_type == _MESSAGE:
        return _plain(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return Decimal(value) if field.cpp_type == 4 else value
