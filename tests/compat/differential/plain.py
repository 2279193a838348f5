"""An answer as plain values that two brokers can share: no ids, ports, texts or sizes that each makes for itself."""

from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

from hot_tier.record.records import decode_records

LEFT_OUT = {
    "throttle_time_ms",
    "error_message",  # each broker explains in its own words
    "batch_index_error_message",
    "documentation",
    "partition_size",
    "total_bytes",
    "usable_bytes",
    "finalized_features_epoch",
}
NAMED = {
    "port": "port",
    "cluster_id": "cluster",
    "member_id": "member",
    "leader": "member",
    "log_dir": "directory",
    "rack": "rack",
    "client_host": "host",
}
COUNTED = {
    "session_id",
    "producer_id",
    "leader_epoch",
    "committed_leader_epoch",
    "epoch",
    "transaction_start_time_ms",
    "last_timestamp",
}
"""Only whether there is one is compared."""


def plain(value: Any, name: str = "") -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f.name) for f in fields(value) if f.name not in LEFT_OUT}
    if name == "aborted_transactions":
        # Null and none say the same. Kafka's order is that of its markers.
        return [plain(one) for one in sorted(value or [], key=lambda one: one.first_offset)]
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items, key=repr) if items and isinstance(items[0], dict) else items
    if isinstance(value, UUID):
        return "an id" if value.int else "no id"
    if name == "records":
        return [tuple(record) for record in decode_records(value)] if value else []
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if name in NAMED:
        return f"a {NAMED[name]}" if value else value
    if name in COUNTED:
        return min(value, 1) if name == "session_id" else min(value, 0)
    return value


def differences(theirs: Any, ours: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """(path, Kafka's value, ours) wherever two plain answers part."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for key in theirs:
            found += differences(theirs[key], ours[key], f"{path}.{key}" if path else key)
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [
            one
            for at, (a, b) in enumerate(zip(theirs, ours, strict=True))
            for one in differences(a, b, f"{path}[{at}]")
        ]
    return [] if theirs == ours else [(path, theirs, ours)]
