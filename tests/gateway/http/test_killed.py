"""kill -9 while messages are posted and dead-lettered: what was answered is there, and nothing is there twice."""

import asyncio
import random
from base64 import b64decode
from typing import Any

import aiohttp
import pytest

from tests.support.service import MakeService

COUNT = 150
LOST = (aiohttp.ClientError, ConnectionError, TimeoutError)


async def attempt(client: aiohttp.ClientSession, url: str, **options: Any) -> tuple[int, Any] | None:
    """Status and document, or None when the node went away before it answered."""
    try:
        async with client.post(url, timeout=aiohttp.ClientTimeout(20), **options) as response:
            return response.status, await response.json(content_type=None)
    except LOST:
        return None


async def all_messages(client: aiohttp.ClientSession, url: str) -> list[dict[str, Any]]:
    async with client.get(f"{url}?offset=earliest&limit=10000") as response:
        assert response.status == 200, await response.text()
        return (await response.json())["messages"]


@pytest.mark.timeout(300)
async def test_answered_is_stored_and_dead_letters_stay_single(make_service: MakeService) -> None:
    service = await asyncio.to_thread(make_service)
    async with aiohttp.ClientSession() as client:
        made = await attempt(client, f"{service.url}/api/v1/topics", json={"name": "orders", "partitions": 1})
        assert made is not None and made[0] == 201
        topic = f"{service.url}/api/v1/topics/orders"
        posts = [asyncio.create_task(attempt(client, f"{topic}/messages", data=b"%d" % n)) for n in range(COUNT)]
        done, _ = await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
        assert done
        await asyncio.to_thread(service.kill)
        answers = await asyncio.gather(*posts)
    await asyncio.to_thread(service.start)

    async with aiohttp.ClientSession() as client:
        stored = await all_messages(client, f"{topic}/partitions/0/messages")
        values = {message["offset"]: b64decode(message["value"]) for message in stored}
        assert len(set(values.values())) == len(values)
        for number, answer in enumerate(answers):
            if answer is not None:
                assert answer[0] == 200
                assert values[answer[1]["offset"]] == b"%d" % number

        letters = f"{service.url}/api/v1/consumer-groups/billing/dead-letters"
        asked = [{"topic": "orders", "partition": 0, "offset": offset, "reason": "no"} for offset in values]
        random.Random(1).shuffle(asked)
        rejections = [asyncio.create_task(attempt(client, letters, json=each)) for each in asked]
        await asyncio.wait(rejections, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(service.kill)
        await asyncio.gather(*rejections)
    await asyncio.to_thread(service.start)

    async with aiohttp.ClientSession() as client:
        for each in asked:
            while (answer := await attempt(client, letters, json=each)) is None or answer[0] == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert answer[0] in (200, 201), answer
        dlq = f"{service.url}/api/v1/topics/orders.billing.dlq/partitions/0/messages"
        copied = [
            next(int(header["value"]) for header in letter["headers"] if header["key"] == "tierlog.dlq.offset")
            for letter in await all_messages(client, dlq)
        ]
        assert sorted(copied) == sorted(values)
        async with client.get(f"{service.url}/api/v1/consumer-groups/billing/offsets") as response:
            assert (await response.json())["lag"] == 0
