"""Limits on replication traffic in the words of Kafka's tools, which set them before a reassignment and clear them.

What is limited here is what a reassignment brings in, at the broker that fetches it: that broker's
`follower.replication.throttled.rate`. The rate of a leader, and the lists of replicas that are meant, are accepted and
mean nothing more: every replica that is being added is meant.
"""

import re
from collections.abc import Mapping
from typing import Final

from gateway.node import Node
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.errors import InvalidConfig
from hot_tier.ids import NodeId

FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
BROKER_RATES: Final = frozenset(
    {FOLLOWER_RATE, "leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}
)

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


async def throttle(node: Node, name: str, rates: Mapping[str, int | None]) -> None:
    """Of the broker of this number, which need not be this one."""
    if FOLLOWER_RATE in rates and not _alone(node, name):
        await node.moves.throttle(NodeId(int(name)), rates[FOLLOWER_RATE])


def _alone(node: Node, name: str) -> bool:
    """A broker without a cluster gets replicas from nobody: there is no rate to keep."""
    return name == str(node.node_id) and node.image.node(node.node_id) is None


def rate_of(change: ConfigChange) -> int | None:
    """Bytes per second; None goes back to what the broker's settings say."""
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.operation is not ConfigOperation.SET or not _NUMBER.fullmatch(change.value or ""):
        raise InvalidConfig(f"a rate cannot be {change.value!r}", where=change.name, hint="it is bytes per second")
    return int(change.value or "")
