"""What only a directory can do wrong."""

import asyncio
import os
from pathlib import Path

import pytest

from cold_tier.errors import StoreMisconfigured
from cold_tier.objects.directory import DirectoryStore


async def test_reading_changes_nothing_in_the_directory(tmp_path: Path) -> None:
    (tmp_path / "topic=a").mkdir()
    (tmp_path / "topic=a" / "x").write_bytes(b"rows")
    store = DirectoryStore(str(tmp_path))
    assert [info.key async for info in store.list("")] == ["topic=a/x"]
    assert os.listdir(tmp_path) == ["topic=a"]


async def test_only_a_writer_makes_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "some" / "bucket"
    with pytest.raises(StoreMisconfigured, match=f"file://{root}/: no such bucket"):
        DirectoryStore(str(root))
    assert not root.parent.exists()
    await DirectoryStore(str(root), create=True).put("k", b"v")
    assert (await DirectoryStore(str(root)).head("k")) is not None


async def test_a_second_opening_does_not_disturb_a_writer(tmp_path: Path) -> None:
    """Temporary files come and go while another process opens the same bucket and sweeps."""
    store = DirectoryStore(str(tmp_path))

    async def write() -> None:
        for number in range(200):
            await store.put(f"f/{number}", b"x")

    writing = asyncio.create_task(write())
    while not writing.done():
        DirectoryStore(str(tmp_path))
        await asyncio.sleep(0)
    await writing
    assert len([info async for info in store.list("f/")]) == 200


async def test_a_folder_that_a_delete_takes_away_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker deletes the last object of the parent folder between two steps of a put."""
    store = DirectoryStore(str(tmp_path), create=True)
    make, gone = os.mkdir, []

    def removed_once(path: str, mode: int = 0o777) -> None:
        if path.endswith("/probe") and not gone:
            gone.append(path)
            os.rmdir(os.path.dirname(path))
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", removed_once)
    await store.put("_tierlog/probe/one", b"data")
    assert gone and (tmp_path / "_tierlog/probe/one").read_bytes() == b"data"
