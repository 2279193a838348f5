"""Moves that people ask for: replicas to other brokers, leaderships to preferred ones, a broker out of the cluster.

This module only begins a move: it writes a reassignment into the partition's state. The controller and the replicas
carry it out; it is done when the new replicas are in sync. Any broker can be asked; every write is a compare-and-swap.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hot_tier.cluster import elections, model
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.partition_writes import PartitionWrite, newest, swap_states
from hot_tier.cluster.placement import check_assignment, count_hosts, places_of
from hot_tier.cluster.rebalance import Plan, plan_leaving, plan_rebalance, plan_widening
from hot_tier.cluster.store import Compare, KeyValue, MetadataStore, Put, Revision
from hot_tier.errors import (
    ElectionNotNeeded,
    MetadataConflict,
    NoEligibleLeader,
    NoReassignment,
    PreferredLeaderUnavailable,
    TierlogError,
    UnknownBroker,
)
from hot_tier.ids import NodeId, PartitionId, TopicPartition

ATTEMPTS: Final = 10

Outcome = dict[TopicPartition, TierlogError | None]
"""For each partition the error, or None if the change was made."""
Decide = Callable[[TopicPartition, PartitionState], PartitionState | None]
"""Returns the new state, or None if nothing is to be done. Raises a TierlogError if it cannot be done."""


class PartitionMoves:
    def __init__(self, store: MetadataStore, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    # Partitions

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Outcome:
        """Begins to move partitions to these replicas, the preferred leader first. None cancels a move that is under
        way."""

        def decide(tp: TopicPartition, state: PartitionState) -> PartitionState | None:
            target = targets[tp]
            if target is not None:
                known = sorted(self._live().union(state.replicas))
                (replicas,) = check_assignment({tp.partition: target}, tp.partition, known)
                return elections.begin_reassignment(state, replicas)
            if not state.adding and not state.removing:
                raise NoReassignment("no reassignment is going on", where=str(tp))
            cancelled = elections.cancel_reassignment(state, self._live())
            if cancelled is None:
                raise NoEligibleLeader("none of the replicas it had before can lead", where=str(tp))
            return cancelled

        outcome = await self._change(targets, decide)
        for name in {tp.topic for tp in targets}:
            await self._note_factor(name)
        return outcome

    def reassignments(self) -> dict[TopicPartition, PartitionState]:
        """Returns the reassignments that are under way."""
        return {tp: state for tp, state in self._states() if state.adding or state.removing}

    async def elect(self, partitions: Iterable[TopicPartition], *, unclean: bool = False) -> Outcome:
        """Makes the preferred replica the leader. With `unclean`, any live replica where no in-sync replica is
        alive."""

        def decide(tp: TopicPartition, state: PartitionState) -> PartitionState | None:
            live = self._live()
            if state.leader in live and (unclean or state.leader == state.replicas[0]):
                raise ElectionNotNeeded(f"broker {state.leader} leads this partition", where=str(tp))
            if unclean:
                elected = elections.elect(state, live, unclean=True)
                if elected is None or elected.leader == model.NO_NODE:
                    raise NoEligibleLeader("no replica is alive", where=str(tp))
                return elected
            preferred = elections.prefer(state, live)
            if preferred is None:
                raise PreferredLeaderUnavailable(
                    f"broker {state.replicas[0]} is not in sync or not alive", where=str(tp)
                )
            return preferred

        return await self._change(partitions, decide)

    # Brokers

    async def decommission(self, node: NodeId) -> int:
        """No new replica and no leadership goes to this broker, and its replicas begin to move to others.

        Returns the number of replicas that still have to move. A second call plans for those that are left. A broker
        that is down can be decommissioned too, as long as other brokers are in sync for its partitions.
        """
        await self.known(node)
        staying = [broker for broker in self._image.brokers() if broker.id != node and not broker.draining]
        plan = await asyncio.to_thread(
            plan_leaving, dict(self._states()), [node], [broker.id for broker in staying], places_of(staying)
        )
        await self._mark(node, draining=True)
        for error in (await self.reassign(plan)).values():
            if error is not None:
                raise error
        return self.replicas_on(node)

    async def recommission(self, node: NodeId) -> None:
        """The broker takes replicas and leaderships again. Replicas that are already moving to others go on."""
        await self._mark(node, draining=False)

    async def rebalance(self, *, dry_run: bool = False) -> Plan:
        """Evens out replicas and preferred leaders over the brokers that are alive and not draining."""
        able = [broker for broker in self._image.brokers() if not broker.draining]
        plan = await asyncio.to_thread(
            plan_rebalance, dict(self._states()), [broker.id for broker in able], places_of(able)
        )
        if not dry_run:
            for error in (await self.reassign(plan)).values():
                if error is not None:
                    raise error
        return plan

    async def widen(self, topic: str, width: int) -> Plan:
        """Gives a topic more replicas, up to this number and as far as there are hosts for them."""
        places = places_of(broker for broker in self._image.brokers() if not broker.draining)
        states = {tp: state for tp, state in self._states() if tp.topic == topic}
        plan = plan_widening(states, min(width, count_hosts(places)), list(places), places)
        await self.reassign(plan)
        return plan

    def replicas_on(self, node: NodeId) -> int:
        return sum(node in state.replicas for _, state in self._states())

    async def known(self, node: NodeId) -> KeyValue:
        """Returns what the cluster remembers of this broker, alive or not. Raises UnknownBroker."""
        found = await self._store.get(model.node_key(node))
        if found is None and self._image.broker(node) is not None:
            raise UnknownBroker(f"broker {node} runs on its own: there is no cluster to move anything to")
        if found is None:
            raise UnknownBroker(f"there never was a broker {node} in this cluster")
        return found

    async def throttle(self, node: NodeId, bytes_per_second: int | None) -> None:
        """Sets how fast this broker fetches the replicas that move to it: 0 is no limit, None is the broker's own
        setting."""
        key = model.node_key(node)
        for _ in range(ATTEMPTS):
            known = await self.known(node)
            record = replace(model.decode_node(key, known.value), reassignment_bytes_per_second=bytes_per_second)
            revision = await self._store.transact([Compare(key, known.revision)], [Put(key, model.encode(record))])
            if revision is not None:
                await self._image.reached(revision)
                return
        raise MetadataConflict(f"broker {node} is being changed by others, gave up after {ATTEMPTS} attempts")

    async def _mark(self, node: NodeId, *, draining: bool) -> None:
        """Marks the broker in its registration, for everybody now, and in its record, for its next registration."""
        key, node_key = model.broker_key(node), model.node_key(node)
        for _ in range(ATTEMPTS):
            item, known = await self._store.get(key), await self.known(node)
            record = replace(model.decode_node(node_key, known.value), draining=draining)
            compares = [Compare(node_key, known.revision)]
            writes = [Put(node_key, model.encode(record))]
            if item is not None:
                info = replace(model.decode_broker(key, item.value, item.revision), draining=draining)
                compares.append(Compare(key, item.revision))
                writes.append(Put(key, model.encode(info), info.lease))
            revision = await self._store.transact(compares, writes)
            if revision is not None:
                await self._image.reached(revision)
                return
        raise MetadataConflict(f"broker {node} is being changed by others, gave up after {ATTEMPTS} attempts")

    # Writing

    async def _change(self, partitions: Iterable[TopicPartition], decide: Decide) -> Outcome:
        """Decides for each partition from the image, writes, and decides again for those that others changed
        meanwhile."""
        outcome: Outcome = dict.fromkeys(partitions)
        left = list(outcome)
        for _ in range(ATTEMPTS):
            swaps: dict[str, tuple[TopicPartition, PartitionWrite]] = {}
            for tp in left:
                try:
                    state = self._image.partition_state(tp)
                    changed = decide(tp, state)
                except TierlogError as error:
                    outcome[tp] = error
                    continue
                if changed is not None:
                    swap = PartitionWrite(self._image.topic(tp.topic).id, tp.partition, changed)
                    swaps[swap.key] = (tp, swap)
            seen = self._image.revision
            written = await swap_states(self._store, [swap for _, swap in swaps.values()])
            for swap in written:
                del swaps[swap.key]
            await self._image.reached(newest(written))
            left = [tp for tp, _ in swaps.values()]
            if not left:
                return outcome
            await self._image.reached(Revision(seen + 1))
        for tp in left:
            outcome[tp] = MetadataConflict("the partition is being changed by others, try again", where=str(tp))
        return outcome

    async def _note_factor(self, name: str) -> None:
        """Sets the topic's replication factor once a reassignment has given all its partitions another number of
        replicas."""
        topic = self._image.find_topic(name)
        if topic is None:
            return
        widths = {len(elections.reassignment_target(state)) for state in self._image.partition_states(topic)}
        if len(widths) == 1 and topic.replication_factor not in widths:
            noted = replace(topic, replication_factor=widths.pop())
            key = model.topic_key(name)
            revision = await self._store.transact([Compare(key, topic.version)], [Put(key, model.encode(noted))])
            if revision is not None:
                await self._image.reached(revision)

    def _live(self) -> set[NodeId]:
        return {broker.id for broker in self._image.brokers()}

    def _states(self) -> Iterator[tuple[TopicPartition, PartitionState]]:
        for topic in self._image.topics():
            for index, state in enumerate(self._image.partition_states(topic)):
                yield TopicPartition(topic.name, PartitionId(index)), state
