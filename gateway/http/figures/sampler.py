"""Measures this broker every ten seconds, in slices, so that no client waits for it.

Rates are those of the last interval. A broker with so many partitions and groups that a sample takes long measures
itself less often: never more than a twentieth of the time.
"""

import asyncio
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from gateway.http.figures.history import FINE, History
from gateway.http.figures.lag import Lag
from gateway.http.figures.values import BrokerFigures, HistoryDocument, HotPartition, TopicFigures, add_topics
from gateway.http.peers.peers import Peers
from gateway.node import Node
from hot_tier.clock import steady_s
from hot_tier.ids import TopicPartition
from hot_tier.replication.led_partition import LedPartition

if TYPE_CHECKING:
    from cold_tier.reports import ArchiveFigures, PartitionFigures

REST: Final = 19
"""The pause before the next sample is at least so many times as long as the last sample took."""
LEAST_S: Final = 1.0
"""Rates of a shorter interval would say little."""
HOT: Final = 10
DAY_S: Final = 86_400.0

_log = structlog.get_logger()


class _Counted(NamedTuple):
    in_bytes: int
    out_bytes: int


class _Round(NamedTuple):
    """What one look at all partitions found."""

    topics: dict[str, TopicFigures]
    counted: dict[TopicPartition, _Counted]
    rates: list[HotPartition]
    under_min_in_sync: int
    archive: "ArchiveFigures | None"


def wait_s(began_ms: int, took_s: float) -> float:
    """Returns how long to wait after a sample, until the next step of the histories begins. Each wait takes a little
    longer than asked for, so with equal waits a step would be left out from time to time."""
    left_ms = FINE.step_ms - began_ms % FINE.step_ms
    return max(left_ms / 1000 - took_s, took_s * REST, LEAST_S)


class Sampler:
    def __init__(self, node: Node, peers: Peers) -> None:
        self._node = node
        self.lag = Lag(node, peers)
        self.topics: dict[str, TopicFigures] = {}
        self.started_ms = node.clock()
        self.at_ms = 0
        self._at_s: float | None = None
        self._counted: dict[TopicPartition, _Counted] = {}
        self._hot: list[HotPartition] = []
        self._archive: ArchiveFigures | None = None
        self._under_min_in_sync = 0
        self._spent: list[tuple[float, float]] = []
        """Times and costs of requests to the bucket, over the last hour."""
        self._histories = {name: History() for name in ("in", "out", "lag", "backlog")}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="figures")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            began_ms, began_s = self._node.clock(), steady_s()
            try:
                await self.sample()
            except Exception:
                _log.exception("figures could not be measured")
            finally:
                self._node.lane.leave()
            await asyncio.sleep(wait_s(began_ms, steady_s() - began_s))

    async def sample(self) -> None:
        now_s, now_ms = steady_s(), self._node.clock()
        seconds = 0.0 if self._at_s is None else now_s - self._at_s
        found = await self._look(seconds)
        self.topics, self._counted, self._archive = found.topics, found.counted, found.archive
        self._under_min_in_sync = found.under_min_in_sync
        self._hot = nlargest(HOT, found.rates, key=lambda each: each.in_bytes_per_s + each.out_bytes_per_s)
        self._at_s, self.at_ms = now_s, now_ms
        if found.archive is not None:
            hour_ago = now_s - 3600
            self._spent = [each for each in self._spent if each[0] >= hour_ago]
            self._spent.append((now_s, found.archive.requests_cost))
        await self.lag.sample(now_ms)
        self._remember(now_ms, rates_known=seconds > 0)

    async def _look(self, seconds: float) -> _Round:
        topics: dict[str, TopicFigures] = {}
        counted: dict[TopicPartition, _Counted] = {}
        rates: list[HotPartition] = []
        under_min = 0
        turn = self._node.lane.turn()
        async for partition in turn.through(list(self._node.partitions)):
            counted[partition.tp] = now = _Counted(partition.appended_bytes, partition.fetched_bytes)
            rate = _rate(partition.tp, self._counted.get(partition.tp), now, seconds)
            if rate.in_bytes_per_s or rate.out_bytes_per_s:
                rates.append(rate)
            under_min += len(partition.in_sync) < partition.config.min_insync_replicas
            _add(topics, partition.tp.topic, _figures(partition, rate))
        if self._node.archive is None:
            return _Round(topics, counted, rates, under_min, None)
        archived: list[PartitionFigures] = []
        async for each in turn.through(self._node.archive.partition_figures()):
            archived.append(each)
            _add(topics, each.topic, _archive_figures(each))
        return _Round(topics, counted, rates, under_min, self._node.archive.figures(archived))

    def _remember(self, now_ms: int, *, rates_known: bool) -> None:
        totals = list(self.topics.values())
        if rates_known:
            self._histories["in"].add(now_ms, round(sum(each.in_bytes_per_s for each in totals)))
            self._histories["out"].add(now_ms, round(sum(each.out_bytes_per_s for each in totals)))
        self._histories["backlog"].add(now_ms, sum(each.backlog_bytes for each in totals))
        self._histories["lag"].add(now_ms, self.lag.measured.total)

    @property
    def cost_per_day(self) -> float:
        if self._archive is None:
            return 0.0
        (first_s, first), (last_s, last) = self._spent[0], self._spent[-1]
        # The first minutes of a broker are not typical: it loads what there is.
        rate = (last - first) / (last_s - first_s) if last_s - first_s > 60 else 0.0
        return self._archive.storage_cost_per_day + rate * DAY_S

    def figures(self, kafka_connections: int, http_connections: int) -> BrokerFigures:
        node, totals, logs = self._node, list(self.topics.values()), list(self._node.logs)
        return BrokerFigures(
            broker=node.node_id,
            at_ms=self.at_ms,
            started_ms=self.started_ms,
            leaders=len(self._counted),
            followers=len(node.partitions.replicas),
            size_bytes=sum(log.size_bytes for log in logs),
            disk_free_bytes=node.logs.disk.free_bytes,
            disk_size_bytes=node.logs.disk.size_bytes,
            disk_full=node.logs.disk.full,
            in_bytes_per_s=sum(each.in_bytes_per_s for each in totals),
            out_bytes_per_s=sum(each.out_bytes_per_s for each in totals),
            under_replicated=sum(each.under_replicated for each in totals),
            under_min_in_sync=self._under_min_in_sync,
            failed_logs=sum(log.failure is not None for log in logs),
            damaged_segments=sum(len(log.known_damage()) for log in logs),
            groups=len(self.lag.measured.groups),
            lag=self.lag.measured.total,
            backlog_bytes=sum(each.backlog_bytes for each in totals),
            archive_lag_ms=max((each.archive_lag_ms for each in totals), default=0),
            stored_bytes=sum(each.stored_bytes for each in totals),
            held=sum(each.held for each in totals),
            cost_per_day=self.cost_per_day,
            kafka_connections=kafka_connections,
            http_connections=http_connections,
            loop_delay_max_s=node.loop_delay.longest_s,
            hot=self._hot,
            history={name: HistoryDocument.of(history) for name, history in self._histories.items()},
        )


def _add(topics: dict[str, TopicFigures], name: str, figures: TopicFigures) -> None:
    known = topics.get(name)
    topics[name] = figures if known is None else add_topics(known, figures)


def _rate(tp: TopicPartition, before: _Counted | None, now: _Counted, seconds: float) -> HotPartition:
    """A partition that is new to this broker has no rate yet. A log that was opened anew counts from 0."""
    rates = (0.0, 0.0)
    if before is not None and seconds > 0:
        rates = max(0, now.in_bytes - before.in_bytes) / seconds, max(0, now.out_bytes - before.out_bytes) / seconds
    return HotPartition.model_construct(
        topic=tp.topic, partition=int(tp.partition), in_bytes_per_s=rates[0], out_bytes_per_s=rates[1]
    )


def _figures(partition: LedPartition, rate: HotPartition) -> TopicFigures:
    return TopicFigures.model_construct(
        size_bytes=partition.size_bytes,
        records=partition.high_watermark - partition.log_start_offset,
        in_bytes_per_s=rate.in_bytes_per_s,
        out_bytes_per_s=rate.out_bytes_per_s,
        under_replicated=int(len(partition.in_sync) < len(partition.leadership.state.replicas)),
        backlog_bytes=0,
        archive_lag_ms=0,
        stored_bytes=0,
        held=0,
    )


def _archive_figures(figures: "PartitionFigures") -> TopicFigures:
    return TopicFigures(
        backlog_bytes=figures.backlog_bytes,
        archive_lag_ms=figures.lag_ms,
        stored_bytes=figures.stored_bytes,
        held=int(figures.held or figures.stopped),
    )
