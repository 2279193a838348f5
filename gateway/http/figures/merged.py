"""The figures of all brokers put together, for lists: asked for at most once in a few seconds, whoever looks.

A list of ten thousand topics costs one request to each other broker in that time, and none for each topic or group.
"""

import asyncio
from typing import Any, Final, NamedTuple

from gateway.http.figures.sampler import Sampler
from gateway.http.figures.values import GroupFigures, OwnFigures, ReadFigures, TopicFigures, add_reads, add_topics
from gateway.http.peers.cluster_view import ClusterView
from gateway.http.problems import Problem
from gateway.off_loop import off_loop
from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError

FRESH_S: Final = 5.0
OWN_PATH: Final = "/api/v1/cluster/figures/own"


class Merged(NamedTuple):
    topics: dict[str, TopicFigures]
    reads: dict[str, ReadFigures]
    groups: dict[str, GroupFigures]


class ClusterTotals:
    def __init__(self, sampler: Sampler, view: ClusterView) -> None:
        self._sampler = sampler
        self._view = view
        self._made: asyncio.Task[Merged] | None = None
        self._until_s = 0.0

    def own(self) -> OwnFigures:
        measured = self._sampler.lag.measured
        return OwnFigures.model_construct(topics=self._sampler.topics, reads=measured.reads, groups=measured.groups)

    async def get(self) -> Merged:
        if self._made is None or (self._made.done() and steady_s() >= self._until_s):
            self._made = asyncio.get_running_loop().create_task(self._make(), name="figures of all brokers")
        return await asyncio.shield(self._made)

    async def _make(self) -> Merged:
        own = self.own()
        told = [each for _, each in await self._view.everywhere("GET", OWN_PATH)]
        answers = [each for each in told if not isinstance(each, TierlogError | Problem)]
        merged = Merged(own.topics, own.reads, own.groups)
        if answers:
            merged = await off_loop(sum(len(each["topics"]) for each in answers), _merge, own, answers)
        self._until_s = steady_s() + FRESH_S
        return merged


def _merge(own: OwnFigures, answers: list[dict[str, Any]]) -> Merged:
    topics, reads, groups = dict(own.topics), dict(own.reads), dict(own.groups)
    for answer in answers:
        for name, told in answer["topics"].items():
            figures = TopicFigures.model_construct(**told)
            topics[name] = add_topics(topics[name], figures) if name in topics else figures
        for name, told in answer["reads"].items():
            read = ReadFigures.model_construct(**told)
            reads[name] = add_reads(reads[name], read) if name in reads else read
        for name, told in answer["groups"].items():
            groups[name] = GroupFigures.model_construct(**told)
    return Merged(topics, reads, groups)
