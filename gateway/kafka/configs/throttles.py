"""Limits on replication traffic, under Kafka's names. Kafka's tools set them before a reassignment and clear them.

The limit applies to the traffic of a reassignment, at the broker that fetches: that broker's
`follower.replication.throttled.rate`. The rate of a leader, and the lists of affected replicas, are accepted but have
no effect: the limit applies to every replica that is being added.
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
    """Sets the rates of the broker with this id, which may be another broker."""
    if FOLLOWER_RATE in rates and not _alone(node, name):
        await node.moves.throttle(NodeId(int(name)), rates[FOLLOWER_RATE])


def _alone(node: Node, name: str) -> bool:
    """Returns whether this broker is without a cluster: then it fetches no replicas, and there is nothing to limit."""
    return name == str(node.node_id) and node.image.node(node.node_id) is None


def rate_of(change: ConfigChange) -> int | None:
    """Returns bytes per second; None resets the rate to the broker's settings."""
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.operation is not ConfigOperation.SET or not _NUMBER.fullmatch(change.value or ""):
        raise InvalidConfig(
            f"a rate cannot be {change.value!r}", where=change.name, hint="set a number of bytes per second"
        )
    return int(change.value or "")
