"""Transactions in the archive: committed records are rows, the rest is aside, and together they are the log."""

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cold_tier.format import aside
from cold_tier.format.index import read_index
from hot_tier.errors import CorruptLog
from hot_tier.log.transactions import Aborted
from hot_tier.record.batch import iter_headers, read_header
from offloader import archive
from offloader.archive import archive_segment
from tests.offloader.transactional_log import LAYOUT, START_MS, End, Log, Write, bucketed, job_of, steps

anything = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def named(entry) -> list[str]:
    return list(entry.objects(LAYOUT))


@anything
@given(
    steps, st.lists(st.integers(0, 30), max_size=4), st.integers(1, 40), st.sampled_from([1, 300, 1 << 20]), st.data()
)
async def test_committed_reads_equal_the_model_and_all_others_the_log(
    tmp_path: Path, taken: list, cuts: list[int], start: int, portion_bytes: int, data: st.DataObject
) -> None:
    log = Log.of(taken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aside, "PORTION_BYTES", portion_bytes)
        patch.setattr(archive, "ROW_GROUP_BYTES", portion_bytes)
        made = await bucketed(tmp_path, log, cuts)
    assert await made.records(committed=True) == log.committed
    assert await made.records(committed=False) == log.everything
    found = await made.batches(committed=False)
    assert [batch for batch in found if read_header(batch).is_transactional] == log.aside
    ends = [(read_header(batch).base_offset, read_header(batch).end_offset) for batch in found]
    assert all(end <= base for (_, end), (base, _) in pairwise(ends))
    start = min(start, log.end - 1)
    for committed, expected in ((True, log.committed), (False, log.everything)):
        few = await made.records(committed=committed, start=start, max_bytes=1)
        assert [r for r in few if r.offset >= start] == [r for r in expected if r.offset >= start]


@anything
@given(steps, st.lists(st.integers(0, 30), max_size=4), st.integers(-5, 900), st.integers(0, 60), st.integers(0, 60))
async def test_times_count_by_isolation(
    tmp_path: Path, taken: list, cuts: list[int], since: int, start: int, length: int
) -> None:
    from cold_tier.cache import ColdReadSettings
    from cold_tier.reader import ColdReader

    log = Log.of(taken)
    made = await bucketed(tmp_path, log, cuts)
    reader = ColdReader(made.store, ColdReadSettings())
    markers = {header.base_offset for batch in log.aside for _, header in iter_headers(batch) if header.is_control}
    end = min(start + length, log.end)
    for committed in (True, False):
        records = log.committed if committed else [r for r in log.everything if r.offset not in markers]
        records = [r for r in records if start <= r.offset < end]
        found = await reader.first_at_or_after(made.manifest, START_MS + since, start, end, committed=committed)
        late = [r.offset for r in records if r.timestamp >= START_MS + since]
        assert (None if found is None else found.offset) == min(late, default=None)
        greatest = await reader.greatest_timestamp(made.manifest, start, end, committed=committed)
        assert greatest == max((r.timestamp for r in records), default=None)
    await reader.close()


async def test_aborted_records_are_in_no_parquet_file_and_no_plain_glob_finds_them(tmp_path: Path) -> None:
    log = Log.of([Write(0, 3), Write(1, 2), End(0, False), End(1, True), Write(-1, 2)])
    made = await bucketed(tmp_path, log)
    keys = [info.key async for info in made.store.list("")]
    [rows] = [key for key in keys if key.endswith(".parquet")]
    (tmp_path / "rows.parquet").write_bytes(await made.store.get(rows))
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table["offset"].to_pylist() == [3, 4, 7, 8]
    [side] = [key for key in keys if key.endswith(".aside")]
    assert side.startswith("_tierlog/orders.")
    found = aside.read_aside(await made.store.get(side), side)
    index = read_index(await made.store.get(LAYOUT.index(made.segments[0].name)), "index")
    assert index.aside == found and found.entry == made.segments[0].aside
    assert (found.directory.batches, found.entry.max_timestamp_ms) == (3, START_MS + 20)


async def test_a_topic_without_transactions_has_the_same_objects_as_before(tmp_path: Path) -> None:
    made = await bucketed(tmp_path, Log.of([Write(-1, 5), Write(-1, 5)]))
    [segment] = made.segments
    assert segment.aside is None and len(named(segment)) == 2
    keys = {info.key async for info in made.store.list("")}
    assert not [key for key in keys if "aside" in key]
    assert (await made.store.get(LAYOUT.index(segment.name)))[4:6] == b"\0\1"


async def test_a_segment_with_nothing_but_aborted_data_is_a_segment(tmp_path: Path) -> None:
    log = Log.of([Write(-1, 2), Write(0, 3), Write(0, 4), End(0, False), Write(-1, 1)])
    made = await bucketed(tmp_path, log, [1, 3])
    assert [(each.rows, each.base_offset, each.end_offset) for each in made.segments] == [
        (2, 0, 2),
        (0, 2, 9),
        (1, 9, 11),
    ]
    assert [r.offset for r in await made.records(committed=True)] == [0, 1, 10]
    assert await made.records(committed=False) == log.everything
    assert [r.offset for r in await made.records(committed=True, start=4)] == [10]


async def test_a_marker_in_a_later_segment_than_its_data(tmp_path: Path) -> None:
    log = Log.of([Write(0, 2), Write(1, 2), Write(0, 1), End(1, True), End(0, False)])
    made = await bucketed(tmp_path, log, [1, 2, 3, 4])
    assert [each.rows for each in made.segments] == [0, 2, 0, 0, 0]
    assert [r.offset for r in await made.records(committed=True)] == [2, 3]
    assert await made.records(committed=False) == log.everything


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [Aborted(0, 2, 6, 6)],
        [Aborted(0, 0, 6, 6), Aborted(1, 3, 7, 7)],
        [Aborted(1, 0, 6, 6)],
    ],
    ids=["none is known", "its first batch is missing", "a committed one is listed", "of another producer"],
)
async def test_a_list_that_the_markers_contradict_archives_nothing(tmp_path: Path, wrong: list[Aborted]) -> None:
    log = Log.of([Write(0, 2), Write(0, 1), Write(1, 3), End(0, False), End(1, True)])
    assert log.aborted == [Aborted(0, 0, 6, 6)]
    made = await bucketed(tmp_path, Log.of([Write(-1, 1)]))
    with pytest.raises(CorruptLog, match=r"says otherwise|were not"):
        await archive_segment(made.store, job_of(tmp_path, log.batches, wrong), str(tmp_path))
    assert not list(tmp_path.glob("*.aside")) and not list(tmp_path.glob("*.parquet"))


async def test_what_was_archived_before_is_neither_row_nor_aside_again(tmp_path: Path) -> None:
    log = Log.of([Write(0, 2), Write(1, 2), End(0, False), End(1, True), Write(-1, 2)])
    made = await bucketed(tmp_path, log, base_offset=4)
    [segment] = made.segments
    assert (segment.base_offset, segment.rows, segment.aside.batches) == (0, 2, 2)
    with pytest.raises(CorruptLog, match="in the middle of the batch"):
        await bucketed(tmp_path, log, base_offset=1)


async def test_a_damaged_batch_aside_is_an_error_that_names_the_object(tmp_path: Path) -> None:
    from cold_tier.errors import CorruptObject

    log = Log.of([Write(-1, 2), Write(0, 3), End(0, False)])
    made = await bucketed(tmp_path, log)
    key = LAYOUT.aside(made.segments[0].name)
    data = bytearray(await made.store.get(key))
    data[80] ^= 1
    await made.store.put(key, bytes(data))
    with pytest.raises(CorruptObject) as raised:
        await made.batches(committed=False)
    assert raised.value.where.endswith(key)
    assert await made.records(committed=True) == log.committed, "readers of rows need nothing of it"
    await made.store.delete([key])
    with pytest.raises(CorruptObject, match="not there"):
        await made.batches(committed=False)


async def test_a_damaged_copy_in_the_disk_cache_is_fetched_again(tmp_path: Path) -> None:
    log = Log.of([Write(-1, 2), Write(0, 3), End(0, False), Write(-1, 2)])
    made = await bucketed(tmp_path, log)
    cache = tmp_path / "cache"
    assert await made.records(committed=False, disk=str(cache)) == log.everything
    [kept] = [path for path in cache.iterdir() if ".a" in path.name]
    kept.write_bytes(b"x" * kept.stat().st_size)
    assert await made.records(committed=False, disk=str(cache)) == log.everything
