"""A damaged file that is replaced by a whole copy, or mended. What can become of a file is tried in `tests/damage`."""

import asyncio
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog
from hot_tier.log.mending import proved_again
from tests.damage.harms import flip, flip_head
from tests.damage.one_log import Written, everything
from tests.damage.table import DENSE, SHAPES
from tests.hot_tier.log.support import NOW


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_copy_in_the_place_of_a_damaged_file_is_served(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hot_tier.log.damage._LOOK_AGAIN_SECONDS", 0.0)

    async def scenario() -> None:
        written = Written(tmp_path / "data", shape)
        manager = await written.write()
        log = written.log(manager)
        for info in log.segments():
            path = Path(info.path)
            content = path.read_bytes()
            flip_head(path, 0, 60)
            with pytest.raises(CorruptLog):
                await everything(log, info.base_offset)
            assert [each.base_offset for each in log.segments() if each.damage] == [info.base_offset]
            path.write_bytes(content)
            assert await written.check(log) == 0
            assert not any(each.damage for each in log.segments())
        await manager.close()

    asyncio.run(scenario())


async def test_what_was_found_before_a_segment_was_mended_says_nothing(tmp_path: Path) -> None:
    written = Written(tmp_path / "data", DENSE)
    manager = await written.write()
    log = written.log(manager)
    info = log.sealed_segments()[0]
    path, content = Path(info.path), Path(info.path).read_bytes()
    flip_head(path, 0, 60)
    log.note_damage(info, "wrong")
    assert [each.base_offset for each in log.damaged_segments()] == [info.base_offset]
    path.write_bytes(content)
    assert await proved_again(log, log.sealed_segments()[0])
    log.note_damage(info, "wrong, said somebody who had read the old file")
    assert not log.damaged_segments()
    log.note_damage(log.sealed_segments()[0], "wrong again")
    assert log.damaged_segments()
    await manager.close()


async def test_a_damaged_active_segment_is_closed(tmp_path: Path) -> None:
    """Only closed segments are mended, and by age this one would be closed in a week."""
    written = Written(tmp_path / "data", DENSE)
    manager = await written.write()
    log = written.log(manager)
    active = log.segments()[-1]
    assert not log.maybe_roll(NOW)
    flip(Path(active.path), 8 * 80)
    with pytest.raises(CorruptLog):
        await everything(log, active.base_offset)
    assert log.maybe_roll(NOW) and not log.maybe_roll(NOW)
    log.flush()
    assert [each.base_offset for each in log.damaged_segments()] == [active.base_offset]
    await manager.close()
