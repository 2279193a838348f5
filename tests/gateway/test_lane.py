"""Large work goes in slices: others go on meanwhile, and only a few of its kind are under way."""

import asyncio
import time

import pytest

from gateway import lane
from gateway.lane import AT_ONCE, GATHERED, SLICE_S, Lane


def spin(seconds):
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


async def test_what_fits_into_a_slice_is_never_interrupted():
    turn = Lane().turn()
    others = []
    asyncio.get_running_loop().call_soon(others.append, 1)
    assert [item async for item in turn.through(range(10))] == list(range(10))
    assert not others


async def test_others_go_on_between_two_slices():
    turn = Lane().turn()
    rounds = 0
    done = False

    async def others():
        nonlocal rounds
        while not done:
            rounds += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    async for _ in turn.through(range(20)):
        spin(SLICE_S)
    done = True
    await task
    assert rounds >= 19


async def test_in_a_round_of_the_loop_only_one_of_many_goes_on():
    shared = Lane()
    worked = 0
    most = 0
    done = False

    async def work():
        nonlocal worked
        async for _ in shared.turn().through(range(5)):
            worked += 1
            spin(SLICE_S)

    async def watch():
        nonlocal most
        while not done:
            before = worked
            await asyncio.sleep(0)
            most = max(most, worked - before)

    tasks = [asyncio.create_task(work()) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)  # their first slices are free
    watching = asyncio.create_task(watch())
    await asyncio.gather(*tasks)
    done = True
    await watching
    assert most == 1


async def test_only_a_few_are_past_their_first_slice_and_all_come_to_an_end():
    shared = Lane()
    under_way = 0
    most = 0

    async def work():
        nonlocal under_way, most
        turn = shared.turn()
        await turn.rest()
        under_way += 1
        most = max(most, under_way)
        for _ in range(3):
            await turn.rest()
        under_way -= 1

    tasks = [asyncio.create_task(work()) for _ in range(5 * AT_ONCE)]
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert most == AT_ONCE


async def test_who_is_cancelled_or_leaves_makes_room():
    shared = Lane()
    gate = asyncio.Event()

    async def work(leave):
        await shared.turn().rest()
        if leave:
            shared.leave()
        await gate.wait()

    holding = [asyncio.create_task(work(leave=False)) for _ in range(AT_ONCE)]
    waiting = [asyncio.create_task(work(leave=True)) for _ in range(3)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    holding[0].cancel()
    later = asyncio.create_task(shared.turn().rest())
    await asyncio.wait_for(later, 10)
    gate.set()
    results = await asyncio.gather(*holding, *waiting, return_exceptions=True)
    assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 2


async def test_gathered_work_keeps_its_order_and_begins_a_few_at_a_time():
    begun = 0
    most = 0

    async def work(item):
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        await asyncio.sleep(0)
        begun -= 1
        return item * 2

    items = list(range(200))
    assert await Lane().turn().gather(work, items) == [item * 2 for item in items]
    assert most == GATHERED


async def test_of_no_items_there_is_one_part():
    turn = Lane().turn()
    assert [list(part) async for part in turn.parts([])] == [[]]
    assert [len(part) async for part in turn.parts(range(2500))] == [1000, 1000, 500]


async def test_a_generator_is_run_to_its_end():
    def steps():
        for _ in range(5):
            spin(lane.SLICE_S)
            yield
        return "done"

    assert await Lane().turn().run(steps()) == "done"


async def test_what_fails_in_a_slice_fails_for_its_caller():
    with pytest.raises(ZeroDivisionError):
        async for item in Lane().turn().through([1, 0]):
            1 / item


async def test_a_task_that_comes_and_goes_leaves_nothing_behind():
    line = Lane()
    task = asyncio.current_task()
    before = len(task._callbacks or [])
    for _ in range(10):
        await line.wait()
        line.leave()
    assert len(task._callbacks or []) == before
