"""Replication's part of /metrics: in-sync replicas of partitions led here, and partitions followed here."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from hot_tier.replication.table import PartitionTable


def collect(partitions: PartitionTable) -> Iterator[Metric]:
    labels = ["topic", "partition"]
    in_sync = GaugeMetricFamily(
        "tierlog_partition_in_sync_replicas", "Of a replicated partition that this node leads.", labels=labels
    )
    under_replicated = under_min = 0
    for partition in partitions:
        replicas, members = len(partition.leadership.state.replicas), len(partition.in_sync)
        under_replicated += members < replicas
        under_min += members < partition.config.min_insync_replicas
        if replicas > 1:
            in_sync.add_metric([partition.tp.topic, str(partition.tp.partition)], members)
    behind = GaugeMetricFamily(
        "tierlog_replica_uncommitted_records",
        "Of a partition that this node follows: copied here, not known to be committed.",
        labels=labels,
    )
    for replica in partitions.replicas:
        behind.add_metric(
            [replica.tp.topic, str(replica.tp.partition)], replica.log_end_offset - replica.high_watermark
        )
    yield in_sync
    yield behind
    yield GaugeMetricFamily(
        "tierlog_under_replicated_partitions",
        "Led here, with fewer replicas in sync than they have.",
        under_replicated,
    )
    yield GaugeMetricFamily(
        "tierlog_under_min_in_sync_partitions",
        "Led here, with fewer replicas in sync than acks=all asks for: such writes are refused.",
        under_min,
    )
    yield GaugeMetricFamily("tierlog_replicas_followed", "Partitions that this node follows.", len(partitions.replicas))
