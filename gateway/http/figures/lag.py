"""How many records each group has not read, over time. The broker that coordinates a group keeps its history.

Ends of partitions that other brokers lead are asked for, many topics at once, and never by a list view.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from gateway.coordinators.offsets_topic.values import CommittedOffset, lag_of
from gateway.http.figures.history import History
from gateway.http.figures.values import GroupFigures, ReadFigures, add_reads
from gateway.http.peers.peers import Peers
from gateway.http.problems import Problem
from gateway.node import Node
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import TierlogError
from hot_tier.ids import TopicPartition

MOST_HISTORIES: Final = 5_000
"""Groups with a history at the same time: 5 KB each. Further groups get none until others are gone."""
TOPICS_AT_ONCE: Final = 1_000

Ends = Mapping[TopicPartition, tuple[int, int]]
"""Log start and high watermark."""
Positions = Mapping[TopicPartition, CommittedOffset | None]


class Measured(NamedTuple):
    groups: dict[str, GroupFigures]
    reads: dict[str, ReadFigures]
    readers: dict[str, dict[str, int | None]]
    """By topic, the lag of each group that reads it; None where it is not known."""
    total: int | None
    """None while one group's lag is unknown."""


def measure(group: str, positions: Positions, ends: Ends, into: Measured) -> None:
    """Adds a group's figures. What is not known of one partition makes the lag of its topic and its group unknown."""
    by_topic: dict[str, int | None] = {}
    for tp, committed in positions.items():
        known = ends.get(tp)
        lag = None if known is None else lag_of(committed, *known)
        so_far = by_topic.get(tp.topic, 0)
        by_topic[tp.topic] = None if lag is None or so_far is None else so_far + lag
    for topic, lag in by_topic.items():
        one = ReadFigures.model_construct(groups=1, lag=lag)
        into.reads[topic] = add_reads(into.reads[topic], one) if topic in into.reads else one
        into.readers.setdefault(topic, {})[group] = lag
    lags = list(by_topic.values())
    whole = None if not lags or None in lags else sum(lag or 0 for lag in lags)
    into.groups[group] = GroupFigures.model_construct(topics=len(by_topic), lag=whole)


class Lag:
    def __init__(self, node: Node, peers: Peers) -> None:
        self._node = node
        self._peers = peers
        self._histories: dict[str, History] = {}
        self.measured = Measured({}, {}, {}, None)

    def history(self, group: str) -> History | None:
        return self._histories.get(group)

    async def sample(self, now_ms: int) -> None:
        if self._node.groups.is_loading:
            return
        turn = self._node.lane.turn()
        found: dict[str, Positions] = {}
        async for listed in turn.through(self._node.groups.list_groups()):
            try:
                found[listed.group_id] = self._node.groups.positions(listed.group_id)
            except TierlogError:
                continue  # its coordinator has just changed
        ends = await self._ends({tp for positions in found.values() for tp in positions})
        measured = Measured({}, {}, {}, None)
        async for group, positions in self._node.lane.turn().through(found.items()):
            measure(group, positions, ends, measured)
        lags = [each.lag for each in measured.groups.values() if each.topics]
        self.measured = measured._replace(total=None if None in lags else sum(lag or 0 for lag in lags))
        self._remember(now_ms)

    def _remember(self, now_ms: int) -> None:
        for gone in self._histories.keys() - self.measured.groups.keys():
            del self._histories[gone]
        for group, figures in self.measured.groups.items():
            history = self._histories.get(group)
            if history is None:
                if len(self._histories) >= MOST_HISTORIES:
                    continue
                history = self._histories[group] = History()
            history.add(now_ms, figures.lag)

    async def _ends(self, wanted: set[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        ends: dict[TopicPartition, tuple[int, int]] = {}
        elsewhere: dict[int, tuple[BrokerInfo, set[str]]] = {}
        async for tp in self._node.lane.turn().through(wanted):
            try:
                leader = self._peers.leader(*tp)
                if leader is None:
                    partition = self._node.partitions.get(*tp)
                    ends[tp] = partition.log_start_offset, partition.high_watermark
                else:
                    elsewhere.setdefault(leader.id, (leader, set()))[1].add(tp.topic)
            except TierlogError:
                continue  # the topic is gone, or nobody leads it now
        for told in await asyncio.gather(*(self._ends_at(*each) for each in elsewhere.values())):
            ends |= told
        return ends

    async def _ends_at(self, leader: BrokerInfo, topics: set[str]) -> dict[TopicPartition, tuple[int, int]]:
        names = sorted(topics)
        ends: dict[TopicPartition, tuple[int, int]] = {}
        for at in range(0, len(names), TOPICS_AT_ONCE):
            ends |= await self._some_ends(leader, names[at : at + TOPICS_AT_ONCE])
        return ends

    async def _some_ends(self, leader: BrokerInfo, names: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
        try:
            told = await self._peers.ask(leader, "POST", "/api/v1/cluster/ends", data=orjson.dumps({"topics": names}))
        except (TierlogError, Problem):
            return {}  # silent, or of a version that does not tell
        return {
            TopicPartition(topic, partition): (start, end)
            for topic, partitions in told["topics"].items()
            for partition, start, end in partitions
        }
