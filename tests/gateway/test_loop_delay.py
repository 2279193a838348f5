"""How late the loop is, as it is counted, shown and logged."""

import asyncio
import time

from structlog.testing import capture_logs

from gateway.loop_delay import BUCKETS_S, LOG_EVERY_S, WINDOW_S, LoopDelay


async def test_a_held_loop_is_seen():
    delay = LoopDelay()
    delay.start()
    await asyncio.sleep(0.05)
    time.sleep(0.3)  # noqa: ASYNC251
    await asyncio.sleep(0.05)
    delay.stop()
    assert delay.longest_s > 0.25
    counts = dict(delay.cumulative())
    assert counts["+Inf"] > counts["0.25"] >= 1
    assert delay.total_s >= delay.longest_s


def test_the_longest_is_forgotten_after_two_minutes():
    delay = LoopDelay()
    delay.observe(2.0, 0.0)
    delay.observe(0.1, WINDOW_S + 1)
    assert delay.longest_s == 2.0
    delay.observe(0.2, 2 * WINDOW_S + 2)
    assert delay.longest_s == 0.2


def test_the_log_tells_of_long_delays_now_and_then():
    delay = LoopDelay()
    with capture_logs() as logs:
        for number in range(100):
            delay.observe(0.3 + number / 1000, number / 100)
        assert [line["times"] for line in logs] == [1]
        delay.observe(0.0, LOG_EVERY_S)
    assert [line["times"] for line in logs] == [1, 99]
    assert logs[1]["longest_ms"] == 399


def test_buckets_count_everything_up_to_their_bound():
    delay = LoopDelay()
    for bound in BUCKETS_S:
        delay.observe(bound, 0.0)
    assert [count for _, count in delay.cumulative()] == [*range(1, len(BUCKETS_S) + 1), len(BUCKETS_S)]
