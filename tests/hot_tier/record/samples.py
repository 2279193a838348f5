"""Records and batches to test with: as Hypothesis strategies, and one plain sample with every oddity in it."""

from hypothesis import strategies as st

from hot_tier.record.batch import HEADER_BYTES, ReadBuffer, write_batch
from hot_tier.record.columns import RecordColumns
from hot_tier.record.compression import Codec, compress, decompress
from hot_tier.record.records import NewRecord, Record, encode_records
from hot_tier.record.validate import MAX_TIMESTAMP_MS, BatchLimits

NOW_MS = 1_750_000_000_000
LIMITS = BatchLimits(max_bytes=1 << 20, max_decompressed_bytes=8 << 20)

codecs = st.sampled_from(list(Codec))
# The edges of varints are where codecs go wrong: 1, 2 and 3 bytes of length.
texts = st.binary(max_size=40) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192])
timestamps = st.integers(-1, MAX_TIMESTAMP_MS)


def headers(keys: st.SearchStrategy[str | None] | None = None) -> st.SearchStrategy[tuple]:
    names = st.text(max_size=8) if keys is None else keys
    return st.lists(st.tuples(names, st.none() | texts), max_size=4).map(tuple)


def new_records(header_keys: st.SearchStrategy[str | None] | None = None) -> st.SearchStrategy[list[NewRecord]]:
    record = st.builds(NewRecord, timestamps, st.none() | texts, st.none() | texts, headers(header_keys))
    return st.lists(record, min_size=1, max_size=12)


ODD_RECORDS = [
    NewRecord(NOW_MS, b"key", b"value", (("a", b"1"), ("a", b"2"), ("a", None))),
    NewRecord(NOW_MS - 5, None, b"", ()),
    NewRecord(NOW_MS + 7, b"", None, (("", b""),)),
    NewRecord(-1, None, None, (("größe", "42 µm".encode()),)),
    NewRecord(NOW_MS, b"\x00\xff" * 40, b"v" * 9000, ()),
]


def contents(record: NewRecord | Record) -> tuple:
    return (record.timestamp, record.key, record.value, tuple(record.headers))


def rows(columns: RecordColumns) -> list[Record]:
    """Columns as `decode_records` would give them, after Arrow has checked every buffer."""
    for array in (columns.keys, columns.values, columns.headers):
        array.validate(full=True)
    fields = zip(
        columns.offsets.tolist(),
        columns.timestamps.tolist(),
        columns.timestamp_types.tolist(),
        columns.keys.to_pylist(),
        columns.values.to_pylist(),
        columns.headers.to_pylist(),
        strict=True,
    )
    return [
        Record(offset, timestamp, kind, key, value, tuple((h["key"], h["value"]) for h in entries or ()))
        for offset, timestamp, kind, key, value, entries in fields
    ]


def plain_body(batch: ReadBuffer, codec: int) -> bytes:
    return bytes(decompress(codec, memoryview(batch)[HEADER_BYTES:], 1 << 30))


def batch_of_body(body: bytes, codec: int = 0, **fields: int) -> bytearray:
    """A batch with a true CRC around a body that may be anything."""
    said = {"record_count": 1, "last_offset_delta": fields.get("record_count", 1) - 1} | fields
    return write_batch(compress(codec, body), codec=codec, **{"base_timestamp": NOW_MS, "max_timestamp": NOW_MS} | said)


def sample_batch(codec: int = 0, count: int = 3) -> bytearray:
    return encode_records([NewRecord(NOW_MS + i, b"k%d" % i, b"value %d" % i) for i in range(count)], codec=codec)
