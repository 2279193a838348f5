import asyncio

from structlog.testing import capture_logs

from cold_tier.damage_log import EVERY_S, DamageLog
from cold_tier.errors import CorruptObject


async def fail(where: str) -> None:
    raise CorruptObject("the checksum is wrong", where=where)


async def failed(where: str) -> asyncio.Task[None]:
    task = asyncio.ensure_future(fail(where))
    await asyncio.wait([task])
    return task


async def test_each_damaged_object_is_named_once_a_minute_with_how_often_it_was_met() -> None:
    now_s = 1000.0
    told = DamageLog(lambda: now_s)
    with capture_logs() as lines:
        for _ in range(500):
            told.tell(await failed("a"))
        told.tell(await failed("b"))
        assert [(line["object"], line["times"]) for line in lines] == [("a", 1), ("b", 1)]
        now_s += EVERY_S
        told.tell(await failed("a"))
    assert [(line["object"], line["times"]) for line in lines[2:]] == [("a", 500)]


async def test_what_is_no_damage_is_not_told() -> None:
    told = DamageLog()
    fine = asyncio.ensure_future(asyncio.sleep(0))
    cancelled = asyncio.ensure_future(asyncio.sleep(100))
    cancelled.cancel()
    await asyncio.wait([fine, cancelled])
    with capture_logs() as lines:
        told.tell(fine)
        told.tell(cancelled)
    assert not lines
