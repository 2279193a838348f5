"""Whether every broker of the cluster can do transactions: one of version 0.1 stores markers, but serves what they end
as if it were committed. So as long as one is registered, transactions are refused as that version refuses them."""

import re
from typing import Final

from gateway.coordinators.errors import TransactionsNotServed
from hot_tier.cluster.image import ClusterImage
from hot_tier.ids import NodeId

SINCE: Final = (0, 2)

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


def can(version: str) -> bool:
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) >= SINCE


def is_served(image: ClusterImage, node_id: NodeId) -> bool:
    """Returns whether all brokers can. `node_id` is this broker's own, which can."""
    return all(broker.id == node_id or can(broker.version) for broker in image.brokers())


def check_served(image: ClusterImage, node_id: NodeId) -> None:
    if not is_served(image, node_id):
        raise TransactionsNotServed(
            "transactions are not served while a broker of this cluster runs a version without them",
            hint="upgrade all brokers to 0.2 or newer, or produce without transactional.id",
        )
