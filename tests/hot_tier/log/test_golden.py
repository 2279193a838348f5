"""The golden data directories: what each one looks like, and what opening it gives."""

import asyncio
import shutil
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.recovery import Recovered
from hot_tier.log.state import read_clean_shutdown
from hot_tier.record.records import decode_records
from tests.golden.log.make import CASES, CONFIG, HERE, SEGMENT, VERSIONS
from tests.hot_tier.log.support import (
    NOW,
    SETTINGS,
    TOPIC_ID,
    TP,
    append,
    batch,
    read_all,
    read_bytes,
    recover,
    release,
)

DIRECTORY = f"logs/orders.{TOPIC_ID}/0"
EVERYTHING = [value for number in range(24) for value in (b"value %02d" % number, b"second of %02d" % number)]


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest) -> Path:
    directory: Path = HERE / request.param
    return directory


def opened(tmp_path: Path, golden: Path, name: str) -> tuple[PartitionLog, Recovered]:
    data_dir = tmp_path / name
    shutil.copytree(golden / name, data_dir)
    return recover(str(data_dir), str(data_dir / DIRECTORY), CONFIG)


def values(log: PartitionLog, offset: int = 3) -> list[bytes | None]:
    return [record.value for record in read_all(log, offset)]


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_today_is_what_was_written_then(tmp_path: Path, name: str) -> None:
    release(CASES[name](tmp_path))
    assert files(tmp_path) == files(HERE / VERSIONS[-1] / name)


def test_whole(tmp_path: Path, golden: Path) -> None:
    log, recovered = opened(tmp_path, golden, "whole")
    assert (recovered.damaged, recovered.cut_bytes) == ([], 0)
    assert values(log) == EVERYTHING[3:]
    assert log.epochs.entries() == [(3, 3), (4, 30)]
    assert append(log, batch(b"a", b"b", producer=4000, epoch=1, sequence=46)).duplicate
    release(log)


def test_a_clean_stop_is_read_without_opening_a_log(tmp_path: Path, golden: Path) -> None:
    data_dir = tmp_path / "stopped-cleanly"
    shutil.copytree(golden / "stopped-cleanly", data_dir)
    disk = Disk(str(data_dir), SETTINGS)
    content = (data_dir / "clean-shutdown").read_bytes()
    states = read_clean_shutdown(content, disk.logs_directory, disk.files)
    assert states is not None
    state = states[TOPIC_ID, 0]
    assert [(segment.base_offset, segment.end_offset, segment.sealed) for segment in state.segments] == [
        (0, 20, True),
        (20, 40, True),
        (40, 48, False),
    ]
    log = PartitionLog(disk, TP, TOPIC_ID, CONFIG, state)
    assert (log.log_start_offset, log.log_end_offset, len(disk.files)) == (3, 48, 0)
    assert append(log, batch(b"a", b"b", producer=4000, epoch=1, sequence=40)).duplicate
    assert read_clean_shutdown(content.replace(b"48", b"49", 1), disk.logs_directory, disk.files) is None
    release(log)


def test_a_torn_tail_is_cut_off(tmp_path: Path, golden: Path) -> None:
    log, recovered = opened(tmp_path, golden, "torn-tail")
    assert recovered.damaged == []
    assert recovered.cut_bytes > 0
    assert values(log) == EVERYTHING[3:]
    assert append(log, batch(b"goes on")).base_offset == 48
    release(log)


@pytest.mark.parametrize("name", ["damaged-index", "damaged-time-index"])
def test_a_damaged_index_is_built_anew(tmp_path: Path, golden: Path, name: str) -> None:
    log, recovered = opened(tmp_path, golden, name)
    assert recovered.damaged == []
    for offset in range(3, 48):
        data = read_bytes(log, offset)
        assert decode_records(data, from_offset=offset)[0].value == EVERYTHING[offset]
    for number in range(24):
        found = asyncio.run(log.offset_for_timestamp(NOW + 10 * number, log.log_end_offset))
        assert found is not None
        assert found.offset == max(4, 2 * number)
    release(log)


@pytest.mark.parametrize("name", ["damaged-sealed-segment", "damaged-offset"])
def test_a_sealed_segment_is_served_up_to_its_damage(tmp_path: Path, golden: Path, name: str) -> None:
    log, recovered = opened(tmp_path, golden, name)
    assert recovered.cut_bytes == 0
    assert [record.offset for record in decode_records(read_bytes(log, 3), from_offset=3)] == [3, 4, 5]
    for offset in (6, 7):
        with pytest.raises(CorruptLog, match=SEGMENT):
            read_bytes(log, offset)
    assert values(log, 8) == EVERYTHING[8:]
    with pytest.raises(CorruptLog):
        read_all(log)
    release(log)


def test_damage_in_the_synced_part_of_the_active_segment_is_not_cut_off(tmp_path: Path, golden: Path) -> None:
    log, recovered = opened(tmp_path, golden, "damaged-synced-tail")
    assert [Path(path).name for path in recovered.damaged] == ["00000000000000000040.log"]
    assert recovered.cut_bytes == 0
    assert log.log_end_offset == 48
    with pytest.raises(CorruptLog):
        read_bytes(log, 40)
    assert append(log, batch(b"goes on")).base_offset == 48
    assert values(log, 48) == [b"goes on"]
    with pytest.raises(CorruptLog):
        read_all(log)
    log.flush()
    release(log)
    again, recovered = recover(log._disk.data_dir, log.directory, CONFIG)
    assert again.log_end_offset == 49
    with pytest.raises(CorruptLog):
        read_bytes(again, 40)
    release(again)


def test_a_missing_segment_is_an_error_and_no_gap(tmp_path: Path, golden: Path) -> None:
    log, recovered = opened(tmp_path, golden, "missing-segment")
    assert len(recovered.damaged) == 1
    assert values(log, 40) == EVERYTHING[40:]
    for offset in (20, 30, 39):
        with pytest.raises(CorruptLog):
            read_bytes(log, offset)
    with pytest.raises(CorruptLog):
        read_all(log)
    assert log.log_end_offset == 48
    release(log)
