"""The whole cluster in one node: what it writes into its own metadata when it starts.

With an embedded store there is nobody to elect and nobody to ask. The node names the cluster once, registers
itself, and takes every partition in a new leader epoch: what it writes from now on can be told from what an
earlier run wrote, also when an unclean stop took the end of a log. A node that comes back under another
number takes over what the old number held.

A start is refused, before anything is written, where the directory holds topics that metadata does not know.
"""

import asyncio
import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.elections import led_alone
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
from hot_tier.errors import CorruptMetadata, UnknownFormat
from hot_tier.ids import TopicId
from hot_tier.log import names

REMEMBER_DELETED_MS: Final = 7 * 24 * 3_600_000


def topics_on_disk(data_dir: str) -> dict[TopicId, str] | None:
    """Returns topic id → directory of every topic that was written to, or None if no broker ever ran on this
    directory."""
    try:
        found = os.listdir(os.path.join(data_dir, names.LOGS))
    except FileNotFoundError:
        return None
    topics = ((names.parse_topic_directory(name), name) for name in found)
    return {topic.topic_id: name for topic, name in topics if topic is not None}


async def check_knows(store: MetadataStore, data_dir: str, on_disk: Mapping[TopicId, str]) -> None:
    """Raises CorruptMetadata if topics are missing: then this is not the directory's metadata, or an older state of
    it."""
    topics, deleted = await store.range(model.TOPICS_PREFIX), await store.range(model.DELETED_PREFIX)
    known = {model.decode_topic(item.key, item.value, item.revision).id for item in topics.items}
    known |= {model.decode_deleted(item.key, item.value).id for item in deleted.items}
    strange = sorted(name for topic_id, name in on_disk.items() if topic_id not in known)
    logs = os.path.join(data_dir, names.LOGS)
    if strange:
        raise CorruptMetadata(
            f"the metadata of this node does not know {len(strange)} of the topics that have records in {logs}: "
            + ", ".join(strange[:5]),
            where=data_dir,
            hint="put metadata.db back from a copy of this directory; or, to go on without these records, move their "
            f"directories out of {logs}",
        )
    if topics.revision == ABSENT:
        raise CorruptMetadata(
            "the metadata of this node is gone: a broker ran here before, and metadata.db is missing or empty",
            where=data_dir,
            hint=f"put metadata.db back from a copy of this directory; or, to begin anew, move {logs} away",
        )


async def take_over(
    store: MetadataStore, broker: BrokerInfo, now_ms: int, on_disk: Collection[TopicId] = ()
) -> Revision:
    """Makes `broker` the only node. Returns the revision at which all of it holds; open the image after this.

    A deleted topic is remembered while its records are `on_disk`: the node may have stopped before it deleted them.
    """
    await name_cluster(store)
    writes: list[Put | Delete] = [
        Put(model.CONTROLLER_KEY, model.encode({"node": broker.id})),
        Put(model.broker_key(broker.id), model.encode(broker)),
    ]
    brokers = await store.range(model.BROKERS_PREFIX)
    writes += [Delete(item.key) for item in brokers.items if item.key != model.broker_key(broker.id)]
    for item in (await store.range(model.PARTITIONS_PREFIX)).items:
        state = model.decode_partition(item.key, item.value, item.revision)
        writes.append(Put(item.key, model.encode(led_alone(state, broker.id))))
    deleted = await store.range(model.DELETED_PREFIX)
    oldest = now_ms - REMEMBER_DELETED_MS
    for item in deleted.items:
        topic = model.decode_deleted(item.key, item.value)
        if topic.deleted_ms < oldest and topic.id not in on_disk:
            writes.append(Delete(item.key))
    return await _write_all(store, writes)


async def name_cluster(store: MetadataStore) -> None:
    """Gives the cluster a name unless it has one. Raises UnknownFormat if its metadata is of a newer version."""
    named = model.encode({"id": new_cluster_id(), "format": model.FORMAT})
    await store.transact([Compare(model.CLUSTER_KEY, ABSENT)], [Put(model.CLUSTER_KEY, named)])
    item = await store.get(model.CLUSTER_KEY)
    found = 0 if item is None else model.decode_map(item.key, item.value).get("format", 1)
    if not isinstance(found, int) or found > model.FORMAT:
        raise UnknownFormat(
            f"the cluster's metadata is in format {found}, this version knows {model.FORMAT}",
            where=model.CLUSTER_KEY,
            hint="start the version that the other brokers run",
        )


async def _write_all(store: MetadataStore, writes: Sequence[Put | Delete]) -> Revision:
    steps = [writes[at : at + MAX_OPERATIONS] for at in range(0, len(writes), MAX_OPERATIONS)]
    revisions = await asyncio.gather(*(store.transact([], step) for step in steps))
    return max(revision for revision in revisions if revision is not None)


def new_cluster_id() -> str:
    """Returns a random id of 22 letters, as Kafka's tools expect."""
    return urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
