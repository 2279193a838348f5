"""No producer id is handed out twice, whoever asks and whoever restarts."""

import asyncio

from hot_tier.cluster.producer_ids import BLOCK, ProducerIds
from tests.hot_tier.cluster.conftest import Metadata


async def test_ids_count_up_from_zero(metadata: Metadata) -> None:
    ids = ProducerIds(metadata.store)
    assert [await ids.next_id() for _ in range(3)] == [0, 1, 2]
    assert await ids.new_producer() == (3, 0)


async def test_two_brokers_never_share_an_id(metadata: Metadata) -> None:
    brokers = [ProducerIds(metadata.store), ProducerIds(metadata.store)]
    given = await asyncio.gather(*(brokers[n % 2].next_id() for n in range(3 * BLOCK)))
    assert len(set(given)) == 3 * BLOCK


async def test_a_restart_goes_on_after_the_last_block(metadata: Metadata) -> None:
    before = [await ProducerIds(metadata.store).next_id() for _ in range(3)]
    assert before == [0, BLOCK, 2 * BLOCK]


async def test_a_block_is_one_write(metadata: Metadata) -> None:
    ids = ProducerIds(metadata.store)
    await asyncio.gather(*(ids.next_id() for _ in range(BLOCK)))
    written = (await metadata.store.range("")).revision
    await ids.next_id()
    assert (await metadata.store.range("")).revision == written + 1
