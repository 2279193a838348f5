"""The whole cluster in one node: what it writes into its own metadata when it starts.

With an embedded store there is nobody to elect and nobody to ask. The node names the cluster once, registers
itself, and takes every partition in a new leader epoch: what it writes from now on can be told from what an
earlier run wrote, also when an unclean stop took the end of a log. A node that comes back under another
number takes over what the old number held.
"""

import asyncio
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import (
    ABSENT,
    MAX_OPERATIONS,
    Compare,
    Delete,
    MetadataStore,
    Put,
    Revision,
)

REMEMBER_DELETED_MS: Final = 7 * 24 * 3_600_000


async def take_over(store: MetadataStore, broker: BrokerInfo, now_ms: int) -> Revision:
    """Make `broker` the only node. The revision at which all of it holds: open the image after this."""
    await store.transact(
        [Compare(model.CLUSTER_KEY, ABSENT)], [Put(model.CLUSTER_KEY, model.encode({"id": new_cluster_id()}))]
    )
    writes: list[Put | Delete] = [
        Put(model.CONTROLLER_KEY, model.encode({"node": broker.id})),
        Put(model.broker_key(broker.id), model.encode(broker)),
    ]
    brokers = await store.range(model.BROKERS_PREFIX)
    writes += [Delete(item.key) for item in brokers.items if item.key != model.broker_key(broker.id)]
    for item in (await store.range(model.PARTITIONS_PREFIX)).items:
        state = model.decode_partition(item.key, item.value, item.revision)
        writes.append(Put(item.key, model.encode(model.led_alone(state, broker.id))))
    deleted = await store.range(model.DELETED_PREFIX)
    oldest = now_ms - REMEMBER_DELETED_MS
    writes += [
        Delete(item.key) for item in deleted.items if model.decode_deleted(item.key, item.value).deleted_ms < oldest
    ]
    return await _write_all(store, writes)


async def _write_all(store: MetadataStore, writes: Sequence[Put | Delete]) -> Revision:
    steps = [writes[at : at + MAX_OPERATIONS] for at in range(0, len(writes), MAX_OPERATIONS)]
    revisions = await asyncio.gather(*(store.transact([], step) for step in steps))
    return max(revision for revision in revisions if revision is not None)


def new_cluster_id() -> str:
    """Random, in the 22 letters that Kafka's tools expect."""
    return urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
