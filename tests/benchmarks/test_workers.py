"""The load and the arithmetic of the benchmark of workers."""

import struct
from typing import Any

import pytest

from benchmarks.workers import BATCH_BYTES, COUNTS, RECORD_BYTES, produce_request, record_batch, table_rows
from hot_tier.record.validate import BatchLimits, validate_produced

LIMITS = BatchLimits(max_bytes=1 << 20, max_decompressed_bytes=1 << 20)


@pytest.mark.parametrize("record_bytes", RECORD_BYTES)
def test_the_batch_is_one_that_a_broker_takes(record_bytes: int) -> None:
    batch = record_batch(record_bytes)
    header = validate_produced(memoryview(bytearray(batch)), LIMITS, 1_800_000_000_000)
    assert header.record_count == BATCH_BYTES // record_bytes
    assert len(batch) > header.record_count * record_bytes


def test_a_request_has_its_batch_at_the_end() -> None:
    request = produce_request("topic", 3, b"batch")
    (length,) = struct.unpack_from(">i", request)
    assert length == len(request) - 4
    assert request.endswith(struct.pack(">ii", 3, 5) + b"batch")


def figures(count: int, size: int, mb_per_s: float, cpu: float) -> dict[str, Any]:
    return {
        "workers": count,
        "record_bytes": size,
        "mb_per_s": mb_per_s,
        "cpu_s_per_gb": cpu,
        "worker_cores": 0.3 * count,
        "client_cores": 0.1,
    }


def test_ratios_are_to_one_worker_by_medians() -> None:
    rows = []
    for size in RECORD_BYTES:
        rows += [figures(1, size, mb_per_s, 2.0) for mb_per_s in (90.0, 100.0, 500.0)]
        rows += [figures(2, size, mb_per_s, 2.2) for mb_per_s in (150.0, 190.0, 200.0)]
    shown = list(table_rows({"rows": rows, "share": 0.3}))
    assert len(shown) == len(RECORD_BYTES) * len(COUNTS)
    assert [row[1:6] for row in shown[:2]] == [
        ("1", "100", "1.00", "2.00", "1.00"),
        ("2", "190", "1.90", "2.20", "1.10"),
    ]
    assert {row[3] for row in table_rows({"rows": rows, "share": None})} == {"not measured"}
    assert {row[3] for row in table_rows({"rows": rows, "share": 0.5})} == {"not measured"}, "others had the cores"
