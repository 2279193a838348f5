"""Tells handlers about partitions and groups on any broker: asks this node's own parts, or the right broker.

For each question there is one request per broker, all at the same time. An answer is true for the moment it was given.
If the answer is not available, the result is a refusal, never a guess.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from gateway.coordinators.errors import NotCoordinator, UnstableOffset
from gateway.fetch.reader import Isolation
from gateway.http.peers.peers import Peers
from gateway.http.peers.remote_partition import RemotePartition
from gateway.http.problems import Problem
from gateway.node import Node
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import NotLeader, TierlogError
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.replication.led_partition import LedPartition

Refusal = Problem | TierlogError
"""Why something is not known or not done. This broker or another one has decided it."""

CONFLICT: Final = 409


class Bounds(NamedTuple):
    """A partition's offsets and size at its leader."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    size_bytes: int
    segments: int

    @classmethod
    def of(cls, partition: LedPartition) -> "Bounds":
        return cls(
            partition.log_start_offset,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_end_offset,
            partition.size_bytes,
            partition.segment_count,
        )


class ClusterView:
    def __init__(self, node: Node, peers: Peers) -> None:
        self._node = node
        self._peers = peers

    # Partitions

    async def bounds(self, topic: Topic, numbers: Iterable[int], *, alone: bool = False) -> dict[int, Bounds | Refusal]:
        """Returns the bounds of these partitions; with `alone`, a refusal for each one that another broker leads."""
        found: dict[int, Bounds | Refusal] = {}
        elsewhere: dict[int, tuple[BrokerInfo, list[int]]] = {}
        async for number in self._node.lane.turn().through(numbers):
            try:
                leader = self._peers.leader(topic.name, number)
                if leader is None:
                    found[number] = Bounds.of(self._node.partitions.get(topic.name, number))
                elif alone:
                    found[number] = NotLeader(f"broker {leader.id} leads this partition")
                else:
                    elsewhere.setdefault(leader.id, (leader, []))[1].append(number)
            except TierlogError as error:
                found[number] = error
        if elsewhere:
            for part in await asyncio.gather(*(self._bounds_at(topic, *each) for each in elsewhere.values())):
                found |= part
        return found

    async def bounds_of(self, tp: TopicPartition) -> Bounds:
        found = (await self.bounds(self._node.image.topic(tp.topic), [tp.partition]))[tp.partition]
        if isinstance(found, Bounds):
            return found
        raise found

    async def _bounds_at(self, topic: Topic, leader: BrokerInfo, numbers: Sequence[int]) -> dict[int, Bounds | Refusal]:
        try:
            told = await self._peers.ask(leader, "GET", f"/api/v1/topics/{topic.name}")
        except (TierlogError, Problem) as refusal:
            return dict.fromkeys(numbers, refusal)
        known = {each["partition"]: each for each in told["partitions"] if each["log_end_offset"] is not None}
        return {
            number: Bounds(*(known[number][field] for field in Bounds._fields))
            if number in known
            else NotLeader(f"broker {leader.id} does not lead this partition any more", where=f"{topic.name}-{number}")
            for number in numbers
        }

    async def offset_at(self, tp: TopicPartition, time_ms: int) -> int:
        """Returns the offset of the first record at or after a time; if there is none, the end of what may be read."""
        leader = self._peers.leader(*tp)
        if leader is None:
            partition = self._node.partitions.get(*tp)
            found = await self._node.reader.offset_for_timestamp(partition, time_ms, Isolation.READ_COMMITTED)
            return await self.latest(tp) if found is None else found.offset
        told = await self._peers.ask(leader, "GET", _messages_path(tp), params={"from": str(time_ms), "limit": "1"})
        messages = told["messages"]
        return int(messages[0]["offset"] if messages else told["next_offset"])

    async def latest(self, tp: TopicPartition) -> int:
        """Returns the end of what may be read. Raises OffsetNotAvailable while a new leader does not know it yet."""
        leader = self._peers.leader(*tp)
        if leader is None:
            partition = self._node.partitions.get(*tp)
            partition.check_committed_known()
            return partition.last_stable_offset
        told = await self._peers.ask(leader, "GET", _messages_path(tp), params={"offset": "latest", "limit": "1"})
        return int(told["next_offset"])

    def led_elsewhere(self, topic: str, partition: int) -> RemotePartition | None:
        leader = self._peers.leader(topic, partition)
        return (
            None
            if leader is None
            else RemotePartition(self._peers, leader, TopicPartition(topic, PartitionId(partition)))
        )

    # Groups

    async def committed(self, group: str, tp: TopicPartition) -> int | None:
        """Returns the offset that the group has committed to read next; None if it has not committed. Raises
        UnstableOffset while an open transaction may replace it."""
        coordinator = self._coordinator(group)
        if coordinator is None:
            if tp in self._node.groups.unstable_offsets(group):
                raise UnstableOffset(where=f"{group}, {tp}", hint="try again")
            held = self._node.groups.fetch_offsets(group).get(tp)
            return None if held is None else held.position
        told = await self._peers.ask(coordinator, "GET", _offsets_path(group), params={"topic": tp.topic})
        found = next((each for each in told["offsets"] if each["partition"] == tp.partition), None)
        if found is None:
            return None
        if found.get("pending"):  # a broker of version 0.1 does not say it, and has none
            raise UnstableOffset(where=f"{group}, {tp}", hint="try again")
        return found["offset"] if found["offset"] is not None and found["offset"] >= 0 else None

    async def move_offset(self, group: str, tp: TopicPartition, expected: int | None, offset: int) -> bool:
        """Commits for a group without members if its offset is still `expected`. Returns whether it did."""
        broker = await self._node.groups.find(group)
        coordinator = self._peers.registered(broker.id, group)
        if coordinator is None:
            return await self._node.groups.move_offset(group, tp, expected, offset)
        document = {"topic": tp.topic, "partition": tp.partition, "offset": offset, "expected_offset": expected}
        try:
            await self._peers.ask(coordinator, "POST", _offsets_path(group), data=orjson.dumps(document))
        except Problem as refused:
            if refused.kind.status != CONFLICT:
                raise NotCoordinator(refused.detail, where=group) from refused
            return False
        return True

    def _coordinator(self, group: str) -> BrokerInfo | None:
        node_id = self._node.groups.find_existing(group)
        return None if node_id is None else self._peers.registered(node_id, group)

    # All brokers

    async def everywhere(
        self, method: str, path: str, headers: Iterable[tuple[str, str]] = ()
    ) -> list[tuple[BrokerInfo, Any | Refusal]]:
        """Returns each other broker's own answer, or its refusal."""
        others = [broker for broker in self._node.image.brokers() if broker.id != self._node.node_id]

        async def ask(broker: BrokerInfo) -> Any | Refusal:
            try:
                return await self._peers.ask(broker, method, path, headers=headers)
            except (TierlogError, Problem) as refusal:
                return refusal

        return list(zip(others, await asyncio.gather(*map(ask, others)), strict=True))


def _messages_path(tp: TopicPartition) -> str:
    return f"/api/v1/topics/{tp.topic}/partitions/{tp.partition}/messages"


def _offsets_path(group: str) -> str:
    return f"/api/v1/consumer-groups/{quote(group, safe='')}/offsets"
