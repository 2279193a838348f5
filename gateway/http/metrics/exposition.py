"""/metrics: what the parts of the node count, as Prometheus metrics, read when it is requested.

No request path runs this code: the fast parts keep plain numbers, and this module reads them. Names are
`tierlog_<part>_<what>_<unit>`; a counter ends in `_total`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from gateway.coordinators.offsets_topic.values import lag_of
from gateway.http.metrics import archive_exposition, replication_exposition, transaction_exposition
from hot_tier.cluster.model import NO_NODE
from hot_tier.errors import TierlogError

if TYPE_CHECKING:
    from gateway.audit.audit import Audit
    from gateway.http.api import Api
    from gateway.kafka.server import KafkaServer

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_process = ProcessCollector(registry=None)


def collect(api: "Api") -> list[Metric]:
    """Returns all metrics as of now. It is fast enough for the loop, even with thousands of partitions."""
    return [
        *_node(api),
        *_partitions(api),
        *replication_exposition.collect(api.node.partitions),
        *_groups(api),
        *transaction_exposition.collect(api.node.transactions),
        *_archive(api),
        *_audit(api.node.audit),
        *_http(api),
        *([] if api.kafka is None else _kafka(api.kafka)),
        *_process.collect(),
    ]


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def render(metrics: list[Metric]) -> bytes:
    """Returns the text. With thousands of partitions this is slow and must run in a thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics))
    return generate_latest(registry)


class Scrape:
    """Makes the text in a thread of its own, so that it works while all other threads are busy. Requests that come
    while a text is made get that text."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._made: asyncio.Future[bytes] | None = None

    async def text(self, api: "Api") -> bytes:
        if self._made is None or self._made.done():
            loop = asyncio.get_running_loop()
            self._made = loop.run_in_executor(self._thread, render, collect(api))
        return await asyncio.shield(self._made)

    def close(self) -> None:
        self._thread.shutdown(wait=False)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value)


def _audit(audit: "Audit | None") -> Iterator[Metric]:
    if audit is None:
        return
    yield _counter("tierlog_audit_events", "Events written to __audit.", audit.total_written)
    yield _counter("tierlog_audit_dropped", "Events that are lost: the queue was full.", audit.dropped)
    yield _counter("tierlog_audit_refused", "Requests refused while the queue was full.", audit.refused)
    yield _counter("tierlog_audit_failures", "Attempts to write events that failed.", audit.failures)
    yield _gauge("tierlog_audit_queue_bytes", "Events that wait to be written.", audit.queued_bytes)


def _node(api: "Api") -> Iterator[Metric]:
    yield InfoMetricFamily("tierlog_build", "The version that runs.", {"version": version("tierlog")})
    yield _gauge("tierlog_topics", "Topics in the cluster.", sum(1 for _ in api.node.image.topics()))
    yield _gauge("tierlog_brokers", "Brokers in the cluster.", len(api.node.image.brokers()))
    yield from _controller(api)
    disk = api.node.logs.disk
    flusher = api.node.logs.flusher
    yield SummaryMetricFamily(
        "tierlog_log_flush_seconds", "Syncs of logs to the disk.", flusher.syncs, flusher.sync_seconds
    )
    delay = api.node.loop_delay
    seconds = HistogramMetricFamily("tierlog_loop_delay_seconds", "How late the event loop called a timer.")
    seconds.add_metric([], list(delay.cumulative()), delay.total_s)
    yield seconds
    yield _gauge("tierlog_loop_delay_max_seconds", "The longest delay of the last one or two minutes.", delay.longest_s)
    yield _gauge("tierlog_disk_free_bytes", "Room on the data directory's disk.", disk.free_bytes)
    yield _gauge("tierlog_disk_size_bytes", "Size of the data directory's disk.", disk.size_bytes)
    yield _gauge("tierlog_disk_full", "1 while writes are refused for want of room.", disk.full)
    yield _gauge("tierlog_log_open_files", "Log files that are kept open.", len(disk.files))
    logs = list(api.node.logs)
    yield _gauge(
        "tierlog_log_failed",
        "Logs that take no more writes, because their disk failed or their files are gone.",
        sum(log.failure is not None for log in logs),
    )
    yield _gauge(
        "tierlog_log_damaged_segments", "Segments known to be damaged.", sum(len(log.known_damage()) for log in logs)
    )
    yield _counter(
        "tierlog_dead_letters_total", "Records that this node has dead-lettered.", api.dead_letters.topics.copied
    )


def _controller(api: "Api") -> Iterator[Metric]:
    image = api.node.image
    is_controller = image.controller == api.node.node_id
    yield _gauge("tierlog_controller", "1 at the broker that is the cluster's controller.", is_controller)
    if is_controller:
        states = (state for topic in image.topics() for state in image.partition_states(topic))
        offline = sum(state.leader == NO_NODE for state in states)
        yield _gauge("tierlog_offline_partitions", "Partitions of the cluster that nobody leads.", offline)


def _partitions(api: "Api") -> Iterator[Metric]:
    labels = ["topic", "partition"]
    start = GaugeMetricFamily("tierlog_partition_log_start_offset", "The oldest offset.", labels=labels)
    committed = GaugeMetricFamily("tierlog_partition_high_watermark", "End of what is committed.", labels=labels)
    end = GaugeMetricFamily("tierlog_partition_log_end_offset", "The next offset.", labels=labels)
    size = GaugeMetricFamily("tierlog_partition_size_bytes", "Bytes on local disk.", labels=labels)
    segments = GaugeMetricFamily("tierlog_partition_segments", "Segments on local disk.", labels=labels)
    taken = CounterMetricFamily("tierlog_partition_in_bytes_total", "Bytes of record batches written.", labels=labels)
    given = CounterMetricFamily("tierlog_partition_out_bytes_total", "Bytes of record batches read.", labels=labels)
    in_bytes: dict[str, int] = defaultdict(int)
    in_batches: dict[str, int] = defaultdict(int)
    out_bytes: dict[str, int] = defaultdict(int)
    for partition in api.node.partitions:
        values = [partition.tp.topic, str(partition.tp.partition)]
        start.add_metric(values, partition.log_start_offset)
        committed.add_metric(values, partition.high_watermark)
        end.add_metric(values, partition.log_end_offset)
        size.add_metric(values, partition.size_bytes)
        segments.add_metric(values, partition.segment_count)
        taken.add_metric(values, partition.appended_bytes)
        given.add_metric(values, partition.fetched_bytes)
        in_bytes[partition.tp.topic] += partition.appended_bytes
        in_batches[partition.tp.topic] += partition.appended_batches
        out_bytes[partition.tp.topic] += partition.fetched_bytes
    yield from (start, committed, end, size, segments, taken, given)
    yield _by_topic("tierlog_topic_in_bytes_total", "Bytes of record batches written.", in_bytes)
    yield _by_topic("tierlog_topic_in_batches_total", "Record batches written.", in_batches)
    yield _by_topic(
        "tierlog_topic_in_expired_records_total",
        "Records that were older than retention.ms when they came, and are deleted soon.",
        api.node.partitions.too_old.records,
    )
    yield _by_topic("tierlog_topic_out_bytes_total", "Bytes of record batches read.", out_bytes)


def _by_topic(name: str, text: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["topic"])
    for topic, value in values.items():
        family.add_metric([topic], value)
    return family


def _groups(api: "Api") -> Iterator[Metric]:
    labels = ["group", "topic", "partition"]
    offsets = GaugeMetricFamily("tierlog_group_committed_offset", "The offset to read next.", labels=labels)
    lag = GaugeMetricFamily("tierlog_group_lag_records", "Committed records not yet read.", labels=labels)
    unknown = GaugeMetricFamily(
        "tierlog_group_uncommitted_records",
        "Records of partitions that a member reads without having committed: the lag is not known, and at most this.",
        labels=labels,
    )
    members = GaugeMetricFamily("tierlog_group_members", "Members that joined through Kafka.", labels=["group"])
    node = api.node
    for listed in node.groups.list_groups():
        members.add_metric([listed.group_id], listed.members)
        try:
            positions = node.groups.positions(listed.group_id)
        except TierlogError:
            continue
        for tp, held in positions.items():
            values = [listed.group_id, tp.topic, str(tp.partition)]
            if held is not None:
                offsets.add_metric(values, held.offset)
            try:
                partition = node.partitions.get(tp.topic, tp.partition)
            except TierlogError:
                continue
            start, end = partition.log_start_offset, partition.high_watermark
            records = lag_of(held, start, end)
            if records is None:
                unknown.add_metric(values, end - start)
            else:
                lag.add_metric(values, records)
    yield from (members, offsets, lag, unknown)


def _archive(api: "Api") -> Iterator[Metric]:
    if api.node.archive is not None:
        yield from archive_exposition.collect(api.node.archive.figures(), api.node.clock())


def _http(api: "Api") -> Iterator[Metric]:
    requests = CounterMetricFamily("tierlog_http_requests_total", "Requests answered.", labels=["operation", "status"])
    seconds = HistogramMetricFamily(
        "tierlog_http_request_seconds", "From headers to answer; long polls included.", labels=["operation"]
    )
    for operation, timer in api.metrics.timers.items():
        for status, count in timer.by_status.items():
            requests.add_metric([operation, str(status)], count)
        if timer.by_status:
            seconds.add_metric([operation], list(timer.cumulative()), timer.total_s)
    yield from (requests, seconds)
    yield _counter("tierlog_http_messages_in_total", "Messages written through HTTP.", api.producer.messages)
    yield _counter("tierlog_http_batches_in_total", "Record batches they became.", api.producer.batches)
    yield _counter(
        "tierlog_http_throttled_seconds_total", "Delay of answers for quotas.", api.metrics.throttled_ms / 1000
    )
    yield _counter("tierlog_http_forwarded_total", "Requests passed on to other brokers.", api.peers.forwarded)
    yield _gauge("tierlog_http_long_polls", "Reads that wait for records now.", api.metrics.long_polls)
    yield _gauge("tierlog_http_buffered_bytes", "Request bodies in memory now.", api.bodies.buffered_bytes)
    yield _gauge("tierlog_http_unsent_bytes", "Answers in memory that clients have not read.", api.answers.used)
    if api.server is not None:
        yield _gauge("tierlog_http_connections", "Open connections.", api.server.connections)
        yield _counter(
            "tierlog_http_refused_connections_total",
            "Connections refused because there were too many.",
            api.server.refused_connections,
        )


def _kafka(server: "KafkaServer") -> Iterator[Metric]:
    requests = CounterMetricFamily("tierlog_kafka_requests_total", "Requests received.", labels=["api", "version"])
    for route in server.apis.routes():
        requests.add_metric([route.api_key.name.lower(), str(route.version)], route.requests)
    yield requests
    yield _gauge("tierlog_kafka_connections", "Open connections.", len(server.connections))
    yield _counter("tierlog_kafka_accepted_connections_total", "Connections accepted.", server.accepted)
    yield _counter("tierlog_kafka_refused_connections_total", "Connections over a limit.", server.refused)
    yield _counter("tierlog_kafka_received_bytes_total", "Bytes of requests.", server.received_bytes)
    yield _counter("tierlog_kafka_sent_bytes_total", "Bytes of responses.", server.sent_bytes)
    yield _counter("tierlog_kafka_bad_requests_total", "Requests that could not be read.", server.bad_requests)
    yield _counter("tierlog_kafka_errors_total", "Requests that failed unexpectedly.", server.unexpected_errors)
    yield _counter("tierlog_logins_failed_total", "Logins that failed.", server.node.failed_logins.total)
