"""The archive's part of /metrics."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from cold_tier.reports import ArchiveFigures

_KINDS = ("puts", "gets", "heads", "lists", "deletes")


def collect(figures: ArchiveFigures, now_ms: int) -> Iterator[Metric]:
    yield from _partitions(figures, now_ms)
    yield from _pins(figures)
    yield from _requests(figures)
    yield from _cold_reads(figures)
    yield from _cost(figures)


def _partitions(figures: ArchiveFigures, now_ms: int) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    backlog = GaugeMetricFamily(
        "tierlog_archive_backlog_bytes", "Sealed segments that are not in the bucket yet.", labels=labels
    )
    end = GaugeMetricFamily("tierlog_archive_end_offset", "End of what is in the bucket.", labels=labels)
    segments = CounterMetricFamily("tierlog_archive_segments_total", "Segments archived.", labels=labels)
    size = CounterMetricFamily("tierlog_archive_bytes_total", "Bytes of the segments archived.", labels=labels)
    failures = CounterMetricFamily(
        "tierlog_archive_failures_total", "Attempts at archiving that failed.", labels=labels
    )
    held = GaugeMetricFamily(
        "tierlog_archive_held", "1 while a local segment is damaged or its archived copy is gone.", labels=labels
    )
    stopped = GaugeMetricFamily(
        "tierlog_archive_stopped",
        "1 while the bucket has an older manifest than was published, or another's, and a person has to decide.",
        labels=labels,
    )
    age = GaugeMetricFamily(
        "tierlog_archive_last_success_age_seconds", "Since this partition's archive was last in order.", labels=labels
    )
    waits = GaugeMetricFamily(
        "tierlog_archive_held_by_transaction_seconds",
        "How long the transaction is open that the archive waits for; 0 while it waits for none.",
        labels=labels,
    )
    lag = GaugeMetricFamily(
        "tierlog_archive_lag_seconds",
        "For how long the oldest sealed segment has waited to be archived; 0 if none waits.",
        labels=labels,
    )
    stored = GaugeMetricFamily("tierlog_archive_stored_bytes", "Rows and indexes in the bucket.", labels=labels)
    for each in figures.partitions:
        values = [each.topic, str(each.partition)]
        backlog.add_metric(values, each.backlog_bytes)
        end.add_metric(values, each.archived_offset)
        segments.add_metric(values, each.archived_segments)
        size.add_metric(values, each.archived_bytes)
        failures.add_metric(values, each.failures)
        held.add_metric(values, each.held)
        stopped.add_metric(values, each.stopped)
        waits.add_metric(values, 0 if each.held_by is None else max(0, now_ms - each.held_by.since_ms) / 1000)
        lag.add_metric(values, each.lag_ms / 1000)
        stored.add_metric(values, each.stored_bytes)
        if each.last_success_ms:
            age.add_metric(values, max(0, now_ms - each.last_success_ms) / 1000)
    yield from (backlog, end, segments, size, failures, held, stopped, waits, age, lag, stored)


def _pins(figures: ArchiveFigures) -> Iterator[Metric]:
    pins = GaugeMetricFamily("tierlog_archive_pins", "Jobs that hold a topic's retention.", labels=["topic"])
    expiry = GaugeMetricFamily(
        "tierlog_archive_pin_expiry_timestamp_seconds",
        "When a pin ends by itself, in seconds since 1970.",
        labels=["topic", "pin"],
    )
    for topic, count in Counter(each.topic for each in figures.pins).items():
        pins.add_metric([topic], count)
    for pinned in figures.pins:
        expiry.add_metric([pinned.topic, pinned.pin.name], pinned.pin.expires_ms / 1000)
    yield from (pins, expiry)


def _requests(figures: ArchiveFigures) -> Iterator[Metric]:
    counted = asdict(figures.requests)
    requests = CounterMetricFamily(
        "tierlog_store_requests_total", "Requests to the bucket, every attempt counted.", labels=["kind"]
    )
    for kind in _KINDS:
        requests.add_metric([kind.removesuffix("s")], counted[kind])
    yield requests
    yield CounterMetricFamily("tierlog_store_retries_total", "Attempts made again.", counted["retries"])
    yield CounterMetricFamily("tierlog_store_in_bytes_total", "Bytes read from the bucket.", counted["bytes_in"])
    yield CounterMetricFamily("tierlog_store_out_bytes_total", "Bytes written to the bucket.", counted["bytes_out"])


def _cold_reads(figures: ArchiveFigures) -> Iterator[Metric]:
    reads = CounterMetricFamily(
        "tierlog_cold_reads_total", "Reads of archived records, by whether they were in memory.", labels=["result"]
    )
    reads.add_metric(["hit"], figures.cold_hits)
    reads.add_metric(["miss"], figures.cold_misses)
    yield reads
    yield GaugeMetricFamily(
        "tierlog_cold_memory_bytes", "Archived records kept ready in memory.", figures.cold_memory_bytes
    )


def _cost(figures: ArchiveFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "tierlog_archive_storage_cost_per_day",
        "What the archived objects of partitions led here cost per day, by the prices of [cost].",
        figures.storage_cost_per_day,
    )
    yield CounterMetricFamily(
        "tierlog_store_requests_cost_total",
        "What this broker's requests to the bucket have cost, by the prices of [cost].",
        figures.requests_cost,
    )
