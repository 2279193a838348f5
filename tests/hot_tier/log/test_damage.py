"""A damaged file that somebody replaced by a whole copy. What can become of a file is tried in `tests/damage`."""

import asyncio
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog
from tests.damage.harms import flip_head
from tests.damage.one_log import Written, everything
from tests.damage.table import SHAPES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_copy_in_the_place_of_a_damaged_file_is_served(
    tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hot_tier.log.damage._LOOK_AGAIN_SECONDS", 0.0)

    async def scenario() -> None:
        written = Written(tmp_path / "data", shape)
        log = written.log(await written.write())
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

    asyncio.run(scenario())
