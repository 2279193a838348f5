"""Restores topics from a bucket into a data directory that no broker uses: `tierlog archive restore --data-dir`.

It opens the directory as a broker would, but serves nothing, and closes it cleanly. The next `tierlog serve` leads
every restored partition in a higher leader epoch and continues where the archive ends.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack

from cold_tier.objects.open import open_store
from cold_tier.reports import RestoredTopic
from hot_tier.clock import wall_ms
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.open import metadata_store
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.standalone import name_cluster
from hot_tier.ids import NodeId
from hot_tier.log.manager import LogManager
from offloader.restore import Restorer, restore_all
from tierlog.settings import Settings
from tierlog.workers.layout import refuse_workers_home


async def restore_offline(
    settings: Settings, names: Sequence[str], config: Mapping[str, str]
) -> AsyncIterator[RestoredTopic]:
    data_dir = os.path.abspath(settings.log.data_dir)
    refuse_workers_home(data_dir)
    async with AsyncExitStack() as parts:
        bucket = open_store(settings.store)
        parts.push_async_callback(bucket.close)
        # The logs come first, because they hold the lock on the directory.
        logs = LogManager(data_dir, settings.log, wall_ms)
        await logs.open(background=False)
        parts.push_async_callback(logs.close)
        store = metadata_store(settings.cluster.metadata, settings.etcd, data_dir)
        await store.open()
        parts.push_async_callback(store.close)
        if settings.cluster.alone:
            await name_cluster(store)
        image = ClusterImage(store)
        await image.open()
        parts.push_async_callback(image.close)
        admin = TopicAdmin(store, image, defaults=settings.topic, settings=settings.cluster, clock=wall_ms)
        node_id = NodeId(settings.cluster.node_id)
        restorer = Restorer(image, store, admin, logs, ProducerIds(store), node_id, wall_ms())
        async for topic in restore_all(bucket, restorer, names, config):
            yield topic
