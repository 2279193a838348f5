"""What is fired at a broker: every Kafka API in every version with hostile sizes, and record batches that are bombs.

Further doors of the service (HTTP routes, say) are added by putting a function into `SOURCES`: it takes a random number
generator and yields `Shot`s. `Shot.door` says which port the bytes go to; what comes back is read and thrown away until
the answer is whole (Kafka) or the connection is closed (anything else), at most for `ANSWER_S`.
"""

import gzip
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import cramjam
import lz4.frame
import zstandard

from gateway.kafka.apis import Apis, load_handlers
from gateway.kafka.protocol.api_keys import ApiKey, request_class
from gateway.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gateway.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.readers import MAX_REQUEST_ELEMENTS as MAX_ELEMENTS
from gateway.kafka.protocol.schema import message_info
from hot_tier.record.batch import write_batch
from tests.fuzz.hostile import Hostile, Path, Writer, array_paths
from tests.fuzz.http_shots import http_requests
from tests.gateway.kafka.batches import TIME_MS, batch
from tests.gateway.kafka.wire import request_frame

WIDE = "wide"
"""A topic of many partitions; `SMALL` ones are there beside it."""
SMALL = ("small-a", "small-b")
MOST_BYTES = 900_000
"""Of a request: one that a first-time client could send."""
NOT_FIRED = (ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS)
"""Done to the topics above they would end the fuzzing; they are fired at names that do not exist."""

WORDS: dict[str, tuple[str, ...]] = {
    "*": (WIDE, *SMALL),
    "group_id": ("group",),
    "groups": ("group",),
    "groups_names": ("group",),
    "key": ("group",),
    "coordinator_keys": ("group",),
    "member_id": ("",),
    "protocol_type": ("consumer",),
    "configuration_keys": ("retention.ms",),
    "value": ("1",),
    "entity_type": ("client-id",),
}


class Shot(NamedTuple):
    name: str
    door: Literal["kafka", "http"]
    data: bytes


Source = Callable[[random.Random], Iterator[Shot]]


def kafka_requests(rng: random.Random) -> Iterator[Shot]:
    """Each API once for each of its arrays, in a version and a way of being bad that are drawn."""
    apis = Apis(load_handlers())
    for key, handler in sorted(apis.handlers.items()):
        cls = request_class(key)
        served = message_info(cls).versions
        versions = range(max(handler.min_version, served.start), min(handler.max_version + 1, served.stop))
        for path in sorted({path for version in versions for path in array_paths(cls, version)}) or [()]:
            version = rng.choice([v for v in versions if not path or path in set(array_paths(cls, v))])
            yield from _bad(key, version, path, rng)


def _bad(key: ApiKey, version: int, path: Path, rng: random.Random) -> Iterator[Shot]:
    cls = request_class(key)
    words = {"*": ("absent",)} if key in NOT_FIRED else WORDS
    one = len(Writer(cls, version, rng, Hostile(path, 2), words).frame())
    one -= len(Writer(cls, version, rng, Hostile(path, 1), words).frame())
    fits = max(1, MOST_BYTES // max(one, 1))
    bound = max(1, min(MAX_ELEMENTS - 64, fits))
    hostile = rng.choice(
        [
            Hostile(path, bound),
            Hostile(path, bound // 2),
            Hostile(path, min(bound, 20_000), distinct=True),
            Hostile(path, min(262_000, fits)),
            Hostile(path, min(bound, 30), string_bytes=30_000),
            Hostile(path, 1, string_bytes=rng.choice([32_767, 600_000])),
            Hostile(path, 1, tagged=rng.choice([MAX_ELEMENTS - 64, 200_000])),
        ]
    )
    try:
        data = Writer(cls, version, rng, hostile, words).frame()
    except struct.error:  # a name longer than this version can say
        return
    yield Shot(f"{key.name} v{version} {'.'.join(path)} {hostile}", "kafka", data)


def tiny_batches(rng: random.Random) -> Iterator[Shot]:
    """Thousands of batches in one Produce: to one partition, to many, and to none."""
    small = bytes(batch(b""))
    count = min(MAX_ELEMENTS - 64, MOST_BYTES // (len(small) + 12))
    for name, records, step in (("one partition", small, 0), ("many", small, 1), ("no batch", b"", 0)):
        data = [PartitionProduceData(number * step, records) for number in range(count)]
        topics = [TopicProduceData(name=WIDE if step else SMALL[0], partition_data=data)]
        request = ProduceRequest(acks=rng.choice([1, -1]), timeout_ms=5000, topic_data=topics)
        yield Shot(f"{count} tiny batches to {name}", "kafka", request_frame(request, 9))


def bombs(rng: random.Random) -> Iterator[Shot]:
    """Small batches that are a lot of work to decompress: by size, and by the number of their parts."""
    body = bytes(batch(b"v"))[61:]
    zeros = bytes(rng.choice([7, 60, 200]) << 20)
    empty_zstd = zstandard.ZstdCompressor().compress(b"")
    empty_block = struct.pack(">i", 1) + b"\0"
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    zlib_empty = gzip.compress(b"", mtime=0)
    for name, codec, data in (
        ("gzip of zeros", 1, zlib.compress(zeros, 1, 31)),
        ("gzip of empty members", 1, zlib_empty * (MOST_BYTES // len(zlib_empty))),
        ("empty gzip members before a record", 1, zlib_empty * 20_000 + gzip.compress(body)),
        ("snappy of zeros", 2, bytes(cramjam.snappy.compress_raw(zeros[: 20 << 20]))),
        ("empty xerial blocks", 2, xerial + empty_block * (MOST_BYTES // len(empty_block))),
        ("lz4 of zeros", 3, lz4.frame.compress(zeros)),
        ("empty lz4 frames", 3, lz4.frame.compress(b"") * 40_000),
        ("zstd of zeros", 4, bytes(cramjam.zstd.compress(zeros, 1))),
        ("empty zstd frames", 4, empty_zstd * (MOST_BYTES // len(empty_zstd))),
        ("empty zstd frames before a record", 4, empty_zstd * 20_000 + zstandard.ZstdCompressor().compress(body)),
        ("skippable zstd frames", 4, struct.pack("<II", 0x184D2A50, 0) * (MOST_BYTES // 8)),
    ):
        records = write_batch(
            data, codec=codec, record_count=1, last_offset_delta=0, base_timestamp=TIME_MS, max_timestamp=TIME_MS
        )
        topics = [TopicProduceData(name=SMALL[1], partition_data=[PartitionProduceData(0, bytes(records))])]
        yield Shot(name, "kafka", request_frame(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), 9))


def repeated_names(rng: random.Random) -> Iterator[Shot]:
    """Small requests whose answers would be huge if what is named twice were answered twice."""
    for count in (100, 30_000, 262_000):
        configs = [DescribeConfigsResource(2, rng.choice(SMALL))] * count
        describe = DescribeConfigsRequest(configs, include_synonyms=True, include_documentation=True)
        metadata = MetadataRequest([MetadataRequestTopic(name=WIDE)] * count, allow_auto_topic_creation=False)
        create = CreateTopicsRequest([CreatableTopic(f"n{n}", 1, 1) for n in range(count // 3)], validate_only=True)
        for name, request, version in (("configs", describe, 4), ("metadata", metadata, 9), ("creation", create, 7)):
            yield Shot(f"{name} of {count} names", "kafka", request_frame(request, version))


def http(rng: random.Random) -> Iterator[Shot]:
    for name, data in http_requests(rng, (WIDE, *SMALL)):
        yield Shot(name, "http", data)


SOURCES: list[Source] = [kafka_requests, tiny_batches, bombs, repeated_names, http]


def all_shots(seed: int) -> list[Shot]:
    rng = random.Random(seed)
    shots = [shot for source in SOURCES for shot in source(rng)]
    rng.shuffle(shots)
    return shots
