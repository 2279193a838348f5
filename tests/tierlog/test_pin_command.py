"""`tierlog archive pin` as a shell sees it, and as retention does."""

import asyncio
import json
from pathlib import Path

from tests.offloader.harness import TOPIC, archived_node
from tests.support.command import tierlog


async def test_placed_listed_and_released(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(60)
        await node.settle()

    def pin(*flags: str, code: int = 0):
        return tierlog("archive", "pin", TOPIC, "--bucket", f"file://{tmp_path}/bucket", *flags, code=code)

    placed = await asyncio.to_thread(pin, "--name", "nightly", "--for", "2h", "--json")
    [held] = json.loads(placed.out)["pins"]
    assert held["name"] == "nightly"
    assert held["expires_ms"] - held["created_ms"] == 7_200_000
    released = await asyncio.to_thread(pin, "--name", "nightly", "--release", "--json")
    assert json.loads(released.out)["pins"] == []
    wrong = await asyncio.to_thread(pin, "--for", "soon", code=None)
    assert wrong.code != 0
    assert "soon" in wrong.err


def test_no_such_topic(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    ran = tierlog("archive", "pin", "nothing", "--bucket", f"file://{tmp_path}/bucket", code=3)
    assert "nothing" in ran.err
