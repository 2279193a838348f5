"""A short run of the measurement of small requests: each batch is fetched, and both cost something."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import small
from benchmarks.service import TierlogServer
from benchmarks.workloads import Target


@pytest.mark.process
@pytest.mark.slow
def test_each_batch_is_fetched_when_it_comes(tmp_path: Path) -> None:
    with TierlogServer(tmp_path) as broker:
        target = Target(broker, {})
        target.partitions = small.PARTITIONS
        load = small.Load(broker, target.make_topic("default"))
        assert asyncio.run(load.run(3, consumers=small.PARTITIONS)) > 0
    assert load.batches > 300
    # Consumers that fall behind on a busy machine get several at once.
    assert load.batches / 4 < load.fetches <= load.batches + small.PARTITIONS
