"""The loop does not wait for what the interpreter does by itself."""

import asyncio
import gc

import pytest

from tierlog import interpreter


@pytest.fixture
def full_collections(monkeypatch):
    """Of this process, which is left as it was, but that what is here now is looked at by no collection any more."""
    monkeypatch.setattr(interpreter, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(interpreter, "SHARE", 1)
    counted: list[int] = []

    def count(phase, info):
        if phase == "stop" and info["generation"] == 2:
            counted.append(info["collected"])

    before = gc.get_threshold()
    interpreter.freeze()
    gc.callbacks.append(count)
    yield counted
    gc.callbacks.remove(count)
    gc.set_threshold(*before)


def young_collections() -> None:
    for _ in range(interpreter.DUE + 1):
        gc.collect(1)


async def test_a_full_collection_waits_until_a_large_request_is_gone(full_collections):
    task = asyncio.create_task(interpreter.collect_garbage())
    await asyncio.sleep(0)
    large = [[number] for number in range(2 * interpreter.MORE_BLOCKS)]
    loop: list = []
    loop.append(loop)
    del loop
    young_collections()
    await asyncio.sleep(0.2)
    assert not full_collections, "one began in the middle of it"
    large.clear()
    async with asyncio.timeout(10):
        while not full_collections:
            young_collections()
            await asyncio.sleep(0.02)
    task.cancel()


async def test_it_does_not_wait_for_ever(full_collections, monkeypatch):
    monkeypatch.setattr(interpreter, "MOST_S", 0.3)
    task = asyncio.create_task(interpreter.collect_garbage())
    await asyncio.sleep(0)
    large = [[number] for number in range(2 * interpreter.MORE_BLOCKS)]
    async with asyncio.timeout(10):
        while not full_collections:
            young_collections()
            await asyncio.sleep(0.02)
    assert len(large) == 2 * interpreter.MORE_BLOCKS
    task.cancel()
