"""Writes the golden manifests beside this file: `python -m tests.golden.manifest.make`.

Written once per form and then only read: `without-owner` is what 0.1.0 published, and was made by its code.
"""

import dataclasses
from pathlib import Path
from uuid import UUID

from cold_tier.layout import SegmentName, Version
from cold_tier.manifest.codec import write_page, write_snapshot
from cold_tier.manifest.model import EpochStart, Lost, Owner, Removed, Segment, Snapshot, summarize
from hot_tier.record.crc import crc32c

HERE = Path(__file__).parent
TOPIC_ID = UUID("0b0e9d6c-6a5f-4d9c-9f70-2c8f6f0a1b2c")


def segment(base: int, end: int) -> Segment:
    name = SegmentName(base, 3, f"{base:032x}")
    epochs = (EpochStart(2, max(0, base - 5)), EpochStart(3, base + 1))
    return Segment(name, end, end - base, 1000 + base, 1000 + end, 4000, 17, 300, 19, 9000, 1_700_000_000_000, epochs)


def plain() -> tuple[Snapshot, bytes]:
    """A page of two segments, a tail of two; the fields that 0.1.0 had."""
    paged = (segment(0, 10), segment(10, 20))
    page = write_page(paged)
    snapshot = Snapshot(
        "orders", TOPIC_ID, 3, Version(3, 7), "ab" * 16, 1_700_000_000_500, 4,
        (summarize(paged, "cd" * 16, len(page), crc32c(page)),),
        (segment(20, 30), segment(30, 45)),
        (Removed("topic=orders/partition=3/gone.parquet", 1_700_000_000_100),),
    )  # fmt: skip
    return snapshot, page


def owned() -> Snapshot:
    """The same with an owner, and offsets that were given up."""
    owner = Owner("t9VSQtkKG_FgT7vE1AE7CQ", "ef" * 16, "01" * 16)
    return dataclasses.replace(plain()[0], owner=owner, lost=(Lost(20, 30, 1_700_000_000_400),))


if __name__ == "__main__":
    (HERE / "with-owner.manifest").write_bytes(write_snapshot(owned()))
