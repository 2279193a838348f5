"""Many records as Arrow columns, both ways."""

from hot_tier.record.records import NewRecord, Record, RecordLike, decode_records, encode_records

__all__ = ["NewRecord", "Record", "RecordLike", "decode_records", "encode_records"]
