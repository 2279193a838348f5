"""The compiled codec against two independent ones, and against bytes that nobody should send."""

import datetime
import importlib
import io
import random
import struct
from dataclasses import fields, is_dataclass
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.kafka.errors import DecodeError, TooManyElements
from gateway.kafka.protocol import generate
from gateway.kafka.protocol.api_keys import ApiKey, request_class, response_class
from gateway.kafka.protocol.frames import skip_tagged
from gateway.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from gateway.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.readers import MAX_ELEMENTS, MAX_REQUEST_ELEMENTS, reader, sliced_reader
from gateway.kafka.protocol.schema import message_info
from gateway.kafka.protocol.writers import TakesLong, sliced_writer, write_uvarint, writer
from tests.gateway.kafka.samples import sample

MESSAGES = [
    pytest.param(cls, version, id=f"{cls.__name__}-{version}")
    for key in ApiKey
    for cls in (request_class(key), response_class(key))
    for version in message_info(cls).versions
]


def encode(value, version):
    parts = []
    writer(type(value), version)(value, parts.append)
    return b"".join(parts)


def to_kio(value, kio_class):
    """The same message as kio's class of that version, which has times as timedelta and no id as None."""
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field

    made = {}
    for f in fields(kio_class):
        kafka_type = f.metadata.get("kafka_type")
        ours = getattr(value, generate.field_name(f.name, kafka_type))
        kind = classify_field(f)
        if ours is None:
            if isinstance(kind, EntityField) and "tag" in f.metadata:
                continue
            made[f.name] = None
        elif isinstance(kind, EntityTupleField):
            made[f.name] = tuple(to_kio(item, kind.type_) for item in ours)
        elif isinstance(kind, EntityField):
            made[f.name] = to_kio(ours, kind.type_)
        elif kind.is_array:
            made[f.name] = tuple(none_for_no_id(item) for item in ours)
        elif kafka_type in ("timedelta_i32", "timedelta_i64"):
            made[f.name] = datetime.timedelta(milliseconds=ours)
        elif kafka_type == "error_code":
            made[f.name] = kio_error(ours)
        elif kafka_type == "datetime_i64":
            made[f.name] = None if ours == -1 else datetime.datetime.fromtimestamp(ours // 1000, datetime.UTC)
        else:
            made[f.name] = none_for_no_id(ours)
    return kio_class(**made)


def kio_error(code):
    from kio.schema.errors import ErrorCode

    return ErrorCode(code)


def none_for_no_id(value):
    return None if value == UUID(int=0) else value


def tame(value):
    """Times that Python's datetime can hold and errors that exist: kio writes through those types."""
    for f in fields(value):
        inner = getattr(value, f.name)
        if f.name in ("log_append_time_ms", "transaction_start_time_ms"):
            setattr(value, f.name, max(-1, inner % 2_000_000_000 // 1000 * 1000))
        elif f.name in ("retention_time_ms", "session_lifetime_ms") and inner != -1:
            setattr(value, f.name, inner % 2**40)
        elif f.name.endswith("error_code"):
            setattr(value, f.name, inner % 130)
        elif is_dataclass(inner):
            tame(inner)
        elif isinstance(inner, list):
            for item in inner:
                if is_dataclass(item):
                    tame(item)


@pytest.mark.parametrize(("cls", "version"), MESSAGES)
def test_bytes_equal_kio_and_kafka_python(cls, version):
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_writer

    info = message_info(cls)
    load = load_request_schema if cls.__name__.endswith("Request") else load_response_schema
    kio_class = load(info.api_key, version)
    theirs = kafka_python_class(cls.__name__)
    for seed in range(5):
        value = sample(cls, version, random.Random(f"{cls.__name__}{version}{seed}"))
        tame(value)
        if cls.__name__ == "ApiVersionsResponse":
            value.error_code = 0  # with an error, clients take the body for version 0
        ours = encode(value, version)

        with io.BytesIO() as buffer:
            entity_writer(kio_class)(buffer, to_kio(value, kio_class))
            assert ours == buffer.getvalue()

        if theirs is not None and version <= theirs.max_version:
            decoded = theirs.decode(ours, version=version)
            decoded._header = None  # a decoded message lacks it, and `encode` looks for it
            assert bytes(decoded.encode(version=version)) == ours

        again = reader(cls, version)(memoryview(ours))
        assert again == value
        assert encode(again, version) == ours


def kafka_python_class(name):
    for module in ("metadata", "producer", "consumer", "admin"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    return None


def test_the_message_modules_are_what_the_generator_writes():
    folder = Path(generate.__file__).parent / "messages"
    assert {f.stem for f in folder.glob("*.py")} == {"__init__"} | {key.name.lower() for key in ApiKey}
    for key in ApiKey:
        name = key.name.lower()
        assert (folder / f"{name}.py").read_text() == generate.render(key, name)


@pytest.mark.parametrize(("cls", "version"), MESSAGES)
def test_every_cut_is_a_decode_error_or_a_value(cls, version):
    whole = encode(sample(cls, version, random.Random(version), longest=2), version)
    read = reader(cls, version)
    for end in range(0, len(whole), max(1, len(whole) // 200)):
        try:
            read(memoryview(whole)[:end])
        except DecodeError:
            pass


@settings(max_examples=300, deadline=None)
@given(which=st.sampled_from([param.values for param in MESSAGES]), frame=st.binary(max_size=300))
def test_any_bytes_are_a_decode_error_or_a_value(which, frame):
    try:
        reader(*which)(memoryview(frame))
    except DecodeError:
        pass


@settings(max_examples=300, deadline=None)
@given(
    which=st.sampled_from([param.values for param in MESSAGES]),
    seed=st.integers(0, 1000),
    at=st.floats(0, 1, exclude_max=True),
    bytes_=st.binary(min_size=1, max_size=5),
)
def test_a_damaged_message_is_a_decode_error_or_a_value(which, seed, at, bytes_):
    cls, version = which
    whole = bytearray(encode(sample(cls, version, random.Random(seed), longest=2), version))
    place = int(at * len(whole))
    whole[place : place + len(bytes_)] = bytes_
    try:
        reader(cls, version)(memoryview(whole))
    except DecodeError:
        pass


@pytest.mark.parametrize(("version", "frame"), [(8, struct.pack(">i", 2**31 - 1)), (12, b"\xff\xff\xff\xff\x7f")])
def test_a_giant_array_is_refused_before_anything_is_made(version, frame):
    with pytest.raises(DecodeError):
        reader(MetadataRequest, version)(memoryview(frame + bytes(20)))


def test_elements_are_counted_over_the_whole_message():
    """Half a million topics fit into a small frame as bytes, but not as objects."""
    n = MAX_ELEMENTS + 1
    with pytest.raises(DecodeError, match="more elements"):
        reader(MetadataRequest, 8)(memoryview(struct.pack(">i", n) + bytes(2 * n + 3)))
    topic = struct.pack(">h1si", 1, b"t", 600) + bytes(600 * 8)
    frame = struct.pack(">hhii", -1, 1, 1000, 500) + topic * 500
    with pytest.raises(DecodeError, match="more elements"):
        reader(ProduceRequest, 3)(memoryview(frame))


def run(steps):
    """How often it stopped, and what it returned."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return stops, end.value
        stops += 1


@pytest.mark.parametrize(("cls", "version"), MESSAGES)
def test_in_slices_the_same_is_read_and_written(cls, version):
    value = sample(cls, version, random.Random(version))
    whole, parts = encode(value, version), []
    run(sliced_writer(cls, version)(value, parts.append))
    assert b"".join(parts) == whole
    assert run(sliced_reader(cls, version)(memoryview(whole)))[1] == reader(cls, version)(memoryview(whole))


def test_a_long_message_is_read_and_written_with_many_stops():
    request = MetadataRequest([MetadataRequestTopic(name=f"t{n}") for n in range(20_000)])
    frame = memoryview(encode(request, 9))
    with pytest.raises(TooManyElements):
        reader(MetadataRequest, 9, 1000)(frame)
    stops, read = run(sliced_reader(MetadataRequest, 9)(frame))
    assert read == request
    assert stops > 50

    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(0, n) for n in range(20_000)])
    response = MetadataResponse(topics=[topic])
    with pytest.raises(TakesLong):
        writer(MetadataResponse, 9, quick=True)(response, [].append)
    parts = []
    stops, _ = run(sliced_writer(MetadataResponse, 9)(response, parts.append))
    assert b"".join(parts) == encode(response, 9)
    assert stops > 50


def test_in_slices_too_there_is_a_bound():
    request = MetadataRequest([MetadataRequestTopic(name="t")] * (MAX_REQUEST_ELEMENTS + 1))
    with pytest.raises(DecodeError, match="more elements"):
        run(sliced_reader(MetadataRequest, 9)(memoryview(encode(request, 9))))


def test_unknown_tagged_fields_are_skipped():
    plain = encode(MetadataRequest(topics=None), 12)
    assert plain[-1] == 0
    tagged = plain[:-1] + b"\x02" + b"\x05\x03abc" + b"\x80\x01\x00"
    assert reader(MetadataRequest, 12)(memoryview(tagged)) == MetadataRequest(topics=None)
    with pytest.raises(DecodeError):
        reader(MetadataRequest, 12)(memoryview(plain[:-1] + b"\x01\x05\x7fabc"))


def test_tagged_fields_are_counted_too():
    """Skipping fifty million of them, two bytes each, would take a minute."""
    tags = write_uvarint(MAX_ELEMENTS + 1) + bytes(2 * (MAX_ELEMENTS + 1))
    plain = encode(MetadataRequest(topics=None), 12)
    with pytest.raises(DecodeError, match="more elements"):
        reader(MetadataRequest, 12)(memoryview(plain[:-1] + tags))
    with pytest.raises(DecodeError, match="tagged fields"):
        skip_tagged(memoryview(tags), 0)


def test_text_that_is_not_utf8():
    with pytest.raises(DecodeError, match="UTF-8"):
        reader(MetadataRequest, 0)(memoryview(struct.pack(">ih2s", 1, 2, b"\xff\xfe")))


def test_records_are_neither_copied_in_nor_out():
    batch = bytes(range(256)) * 10
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch)])])
    frame = encode(request, 9)
    read = reader(ProduceRequest, 9)(memoryview(frame))
    view = read.topic_data[0].partition_data[0].records
    assert view.obj is frame
    assert view == batch

    parts = []
    data = PartitionData(partition_index=1, records=view)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    writer(FetchResponse, 11)(response, parts.append)
    assert any(part is view for part in parts)
