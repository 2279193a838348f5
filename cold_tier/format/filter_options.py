"""How large the key filters of a file are made (`cold_tier.format.key_filter` reads them)."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.compute as pc

from hot_tier.record.columns import RecordColumns

FALSE_POSITIVES: Final = 0.01
MOST_KEYS: Final = 100_000
"""A filter is made for at most so many keys: 128 KiB for a row group of 3 to 4 MiB. With more keys in it, it lets more
pass that are not there. docs/decisions/key-filters.md has the measurements."""


def filter_options(first: RecordColumns) -> Mapping[str, Any] | None:
    """Returns what the Parquet writer is to make, judging by the first row group; None if there are no keys."""
    keys = pc.count_distinct(first.keys, mode="only_valid").as_py()
    return {"key": {"ndv": min(max(keys, 1), MOST_KEYS), "fpp": FALSE_POSITIVES}} if keys else None
