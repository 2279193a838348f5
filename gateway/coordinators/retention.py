"""Decides which committed offsets have expired. Pure: takes a group and the time, returns the partitions to forget.

- While a group has members, the offsets of topics they subscribe to are kept for ever. If it is a Stable `consumer`
  group, offsets of other topics expire `retention_ms` after their last commit.
- A group that had members keeps its offsets for `retention_ms` after the last member left, or after the commit if that
  was later: somebody may reset the offsets of a stopped group.
- A group that never had members keeps an offset for `retention_ms` after its last commit.
"""

from collections.abc import Mapping

from gateway.coordinators.groups.group import Group
from gateway.coordinators.groups.states import State
from gateway.coordinators.offsets_topic.values import CommittedOffset
from hot_tier.ids import TopicPartition


def expired_offsets(
    group: Group,
    empty_since_ms: int,
    offsets: Mapping[TopicPartition, CommittedOffset],
    retention_ms: int,
    now_ms: int,
) -> list[TopicPartition]:
    """Returns the partitions to forget. `empty_since_ms` is used only for an Empty group; 0 if it never had members."""
    oldest_ms = now_ms - retention_ms
    if group.state is State.EMPTY:
        if empty_since_ms > oldest_ms:
            return []
        return [tp for tp, offset in offsets.items() if offset.commit_ms <= oldest_ms]
    if group.state is State.STABLE:
        topics = group.subscribed_topics()
        if topics is not None:
            return [tp for tp, offset in offsets.items() if tp.topic not in topics and offset.commit_ms <= oldest_ms]
    return []
