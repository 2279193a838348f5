"""How the kernels are compiled: once, cached, without the GIL, and on machines where nothing can be cached."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import types
from numba.core import caching

from hot_tier.record import kernels
from hot_tier.record.columns import decode_batches, encode_batches
from hot_tier.record.compiled import kernel
from hot_tier.record.records import encode_records
from hot_tier.record.validate import validate_produced
from tests.hot_tier.record.samples import LIMITS, NOW_MS, ODD_RECORDS

KERNELS = ("walk_records", "decode_records", "decode_headers", "encode_records")


def test_one_signature_serves_every_kind_of_buffer() -> None:
    batch = encode_records(ODD_RECORDS)
    for buffer in (bytes(batch), bytearray(batch), memoryview(batch), memoryview(bytes(batch))):
        validate_produced(memoryview(buffer), LIMITS, NOW_MS)
        encode_batches(decode_batches(buffer))
    assert [len(getattr(kernels, name).signatures) for name in KERNELS] == [1] * len(KERNELS)


def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    code = (
        "from hot_tier.record import kernels\n"
        f"print([sum(getattr(kernels, name).stats.cache_hits.values()) for name in {KERNELS}])"
    )
    command = [sys.executable, "-c", code]
    outputs = [subprocess.check_output(command, env=environment, text=True).strip() for _ in range(2)]
    assert outputs == ["[0, 0, 0, 0]", "[1, 1, 1, 1]"]
    assert list(tmp_path.rglob("*.nbc")), "the directory named in the environment is used"


def test_a_machine_without_any_cache_directory_compiles_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    double = kernel(types.int64(types.int64))(lambda number: number * 2)
    assert double(21) == 42


def test_kernels_release_the_gil() -> None:
    assert all(getattr(kernels, name).targetoptions["nogil"] for name in KERNELS)
