"""What a scan asks for before it reads, and what one query leaves for the next."""

from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import SegmentEntry, Snapshot, Version
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.memory import MemoryStore
from gateway.sql import sandbox
from gateway.sql.archive_files import ArchiveFiles
from gateway.sql.extents import Extent, TopicExtents
from gateway.sql.table import Context, TopicTable
from hot_tier.ids import LeaderEpoch, Offset, PartitionId

SEGMENTS = 300
ROWS = 100
LAYOUT = PartitionLayout("orders", UUID(int=1), PartitionId(0))


class Counting(ArchiveFiles):
    def __init__(self) -> None:
        super().__init__(Bucket(MemoryStore("memory://")))
        self.turns = 0

    def start(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        self.turns += 1
        return super().start(work)


def snapshot() -> Snapshot:
    tail = tuple(
        SegmentEntry(
            SegmentName(Offset(number * ROWS), LeaderEpoch(0), f"{number:032x}"),
            Offset((number + 1) * ROWS), ROWS, 0, 1, 10, 0, 10, 0, 10, 0, (),
        )
        for number in range(SEGMENTS)
    )  # fmt: skip
    return Snapshot("orders", UUID(int=1), PartitionId(0), Version(LeaderEpoch(0), 1), "n", 0, Offset(0), (), tail)


def test_a_count_costs_no_turn_of_the_loop_for_each_file() -> None:
    pytest.importorskip("duckdb")
    files, end = Counting(), SEGMENTS * ROWS
    extent = Extent(LAYOUT, 0, end, snapshot(), None, "", compacted=False, local_start_offset=end, leader_epoch=0)
    with ThreadPoolExecutor(2) as threads:
        context = Context(files, lambda *_: iter(()), threads, 4)
        connection = sandbox.connect(256 << 20, 2)
        connection.register("orders", TopicTable(TopicExtents("orders", (extent,)), context, raw=False))
        assert connection.execute("SELECT count(*) FROM orders").fetchall() == [(end,)]
        connection.close()
    assert context.scanned.files == SEGMENTS
    assert files.turns <= SEGMENTS / 20


def test_a_connection_leaves_nothing_for_the_next_one() -> None:
    duckdb = pytest.importorskip("duckdb")
    database = sandbox.connect(256 << 20, 2)
    first = database.cursor()
    first.register("orders", pa.table({"key": ["secret"]}))
    assert first.execute("SELECT key, setseed(0.25) FROM orders").fetchall() == [("secret", None)]
    first.close()
    second = database.cursor()
    orders = pa.table({"key": ["a variable of this process"]})
    with pytest.raises(duckdb.CatalogException):
        second.execute("SELECT * FROM orders")
    assert orders.num_rows == 1
    for setting in ("threads = 8", "memory_limit = '8GB'", "TimeZone = 'Asia/Tokyo'", "enable_external_access = true"):
        with pytest.raises(duckdb.InvalidInputException):
            second.execute(f"SET {setting}")
    assert second.execute("SELECT current_setting('TimeZone'), current_setting('threads')").fetchall() == [("UTC", 2)]
    database.close()
