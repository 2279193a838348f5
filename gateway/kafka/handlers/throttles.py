"""Limits on replication traffic in the words of Kafka's tools, which set them before a reassignment and clear them.

What is limited here is what a reassignment brings in, at the broker that fetches it: that broker's
`follower.replication.throttled.rate`. The rate of a leader, and the lists of replicas that are meant, are accepted and
mean nothing more: every replica that is being added is meant.
"""

import re
from collections.abc import Sequence
from typing import Final

from gateway.node import Node
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.errors import InvalidConfig, InvalidRequest
from hot_tier.ids import NodeId

FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
BROKER_RATES: Final = frozenset(
    {FOLLOWER_RATE, "leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}
)
THROTTLED_REPLICAS: Final = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)


_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def broker_settings_stay() -> InvalidRequest:
    return InvalidRequest(
        "broker settings cannot be changed while it runs", hint="change its settings file and restart it"
    )


async def alter_broker(node: Node, name: str, changes: Sequence[ConfigChange], validate_only: bool) -> None:
    """Of the broker of this number, which need not be this one."""
    if not changes or not _NUMBER.fullmatch(name) or any(change.name not in BROKER_RATES for change in changes):
        raise broker_settings_stay()
    for change in changes:
        rate = _rate(change)
        if change.name == FOLLOWER_RATE and not validate_only:
            await node.moves.throttle(NodeId(int(name)), rate)


def _rate(change: ConfigChange) -> int | None:
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.operation is not ConfigOperation.SET or not _NUMBER.fullmatch(change.value or ""):
        raise InvalidConfig(f"a rate cannot be {change.value!r}", where=change.name, hint="it is bytes per second")
    return int(change.value or "")
