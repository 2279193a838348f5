"""What a leader does for encryption: it names the master key, and records what the topic demands from then on.

The demand is in the cluster's metadata before the first encrypted object is in the bucket. So a plain object, or one of
a foreign key, that somebody puts into the bucket later is refused by every broker.
"""

import asyncio
from collections.abc import Callable

from cold_tier.format.encryption import Demand
from cold_tier.keys.master import MasterKeys, name_of
from cold_tier.layout import PartitionLayout
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Archived
from hot_tier.ids import Offset
from hot_tier.log.config import TopicConfig
from offloader.archive_record import ArchiveRecord


async def demand_encryption(record: ArchiveRecord, keys: MasterKeys, config: TopicConfig, base_offset: Offset) -> str:
    """Returns the master key for a new object that begins at `base_offset`, or an empty text for a plain one.

    Raises KeyMissing, before anything is uploaded, if the key is not here.
    """
    name = config.archive_encryption_key
    if not name:
        return ""
    master = await asyncio.to_thread(keys.newest, name)
    await record.encrypted_from(base_offset, name_of(master))
    return master


def demands(image: ClusterImage) -> Callable[[PartitionLayout], Demand | None]:
    """Returns a function that says what metadata demands of a partition's objects."""
    return lambda layout: demand_of(image.archive_record(layout.topic_id, layout.partition))


def demand_of(recorded: Archived | None) -> Demand | None:
    return None if recorded is None or recorded.encrypted is None else Demand(*recorded.encrypted)
