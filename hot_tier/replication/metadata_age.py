"""Refuses metadata that is older than the logs, because an old copy of it was put back.

A leader epoch is in the store before its first batch is in any log. So a log with a later epoch than its partition's
state proves that the store went back. Then its in-sync sets are old: a leader chosen by them may lack acknowledged
records, and would write in an epoch that has been used.
"""

from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import CorruptMetadata
from hot_tier.log.manager import LogManager


def refuse_older_metadata(image: ClusterImage, logs: LogManager) -> None:
    """Raises CorruptMetadata if it is older. Call it before this broker registers."""
    for log in logs:
        topic = image.find_topic_by_id(log.topic_id)
        states = () if topic is None else image.partition_states(topic)
        known = states[log.tp.partition].leader_epoch if log.tp.partition < len(states) else log.epochs.latest
        if log.epochs.latest > known:
            raise CorruptMetadata(
                f"cluster metadata is older than the logs: it knows leader epoch {known}, the log has "
                f"{log.epochs.latest}",
                where=str(log.tp),
                hint="put the newest state of etcd back, or make the metadata anew: docs/RECOVERY.md",
            )
