"""A broker that starts leaves the in-sync sets of partitions whose records it may no longer have.

Both steps come between the end of its old registration and the new one. In between nobody can add it to an in-sync set,
because that needs its registration.

- `give_up`, before its logs are opened, by what the stop was like and whether the data directory is the one it had.
  Where it alone held the committed records of a partition, and they are not here, nothing is changed: DataLost.
- `disown`, once recovery has looked at the logs, for those that were damaged or cut (`hot_tier.log.damaged_logs`).
  A damaged one is copied anew when its leader answers, and kept until then.
"""

from collections.abc import Collection

from hot_tier.cluster import model
from hot_tier.cluster.elections import Kept, elect, restart
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.partition_writes import PartitionWrite, newest, swap_states
from hot_tier.cluster.store import KeyValue, MetadataStore
from hot_tier.errors import DataLost
from hot_tier.ids import NodeId, PartitionId, TopicId, TopicPartition
from hot_tier.log.config import TopicConfig, parse_topic_config

Key = tuple[TopicId, int]


async def give_up(
    store: MetadataStore,
    node: NodeId,
    *,
    same_directory: bool,
    tail_kept: bool,
    accept_lost_data: bool,
    defaults: TopicConfig,
) -> None:
    """`tail_kept` says that unsynced writes are there too, because the stop was clean or the machine did not
    restart."""
    settled: set[str] = set()
    while True:
        live = [
            NodeId(int(item.key.removeprefix(model.BROKERS_PREFIX))) for item in await _all(store, model.BROKERS_PREFIX)
        ]
        found = (
            model.decode_topic(item.key, item.value, item.revision) for item in await _all(store, model.TOPICS_PREFIX)
        )
        topics = {topic.id: topic for topic in found}
        swaps, lost = [], []
        for item in await _all(store, model.PARTITIONS_PREFIX):
            topic_id, partition = model.parse_partition_key(item.key)
            topic = topics.get(topic_id)
            state = model.decode_partition(item.key, item.value, item.revision)
            if topic is None or node not in state.isr or item.key in settled:
                continue
            config = parse_topic_config(topic.config, defaults)
            changed: PartitionState | None
            if same_directory:
                kept = Kept.ALL if tail_kept or config.flush_before_ack else Kept.MAYBE_NOT_TAIL
                changed = restart(state, node, live, kept)
            else:
                changed = restart(state, node, live, Kept.NOTHING)
                if state.isr == (node,):
                    if not accept_lost_data and not config.unclean_leader_election_enable:
                        lost.append(str(TopicPartition(topic.name, partition)))
                    changed = elect(changed or state, [node], unclean=True)
            if changed is not None:
                swaps.append(PartitionWrite(topic_id, partition, changed))
        if lost:
            raise _data_lost(node, lost)
        if not swaps:
            return
        settled |= {swap.key for swap in await swap_states(store, swaps)}


def _data_lost(node: NodeId, partitions: list[str]) -> DataLost:
    named = ", ".join(partitions[:5]) + (", …" if len(partitions) > 5 else "")
    return DataLost(
        f"broker {node} alone held the committed records of {len(partitions)} partitions ({named}), and this is not "
        "the data directory it had, or an older copy of it",
        hint="start it on that directory (is it mounted?), or give the records up with --cluster.accept_lost_data true",
    )


async def disown(
    store: MetadataStore,
    image: ClusterImage,
    node: NodeId,
    partitions: Collection[Key],
    emptied: Collection[Key] = (),
) -> set[Key]:
    """Leaves the in-sync sets of these partitions where other members, which have all records, are alive.

    Returns the partitions whose in-sync set no longer contains this broker. Where no other member is alive the broker
    stays, because nobody has more records. This does not hold for `emptied` partitions: a log that begins where its
    lost records ended must not lead, because the others would take that offset for the log start and delete records
    that only they have. Such a partition waits for the other members.
    """
    live = {broker.id for broker in image.brokers()} - {node}
    gone: set[Key] = set()
    left = set(partitions)
    while left:
        swaps = []
        for topic_id, partition in left:
            key = model.partition_key(topic_id, partition)
            item = await store.get(key)
            if item is None:
                continue
            state = model.decode_partition(key, item.value, item.revision)
            if node not in state.isr:
                gone.add((topic_id, partition))
                continue
            others = {member for member in state.isr if member != node}
            if live.intersection(others) or (others and (topic_id, partition) in emptied):
                without = restart(state, node, live, Kept.NOTHING)
                assert without is not None
                swaps.append(PartitionWrite(topic_id, PartitionId(partition), without))
        written = await swap_states(store, swaps)
        await image.reached(newest(written))
        gone |= {(swap.topic_id, int(swap.partition)) for swap in written}
        left = {(swap.topic_id, int(swap.partition)) for swap in swaps} - gone
    return gone


async def _all(store: MetadataStore, prefix: str) -> tuple[KeyValue, ...]:
    return (await store.range(prefix)).items
