"""UnregisterBroker, and DescribeQuorum, which is refused because brokers do not vote here.

A broker is registered while it runs (`hot_tier.cluster.membership`). When it stops, its registration ends.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

from gateway.kafka.errors import UnsupportedVersion
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.describe_quorum import DescribeQuorumRequest
from gateway.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from hot_tier.errors import InvalidRequest, UnknownBroker
from hot_tier.ids import NodeId


def unregister(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    image, asked = context.node.image, NodeId(request.broker_id)
    if image.broker(asked) is not None:
        raise InvalidRequest(f"broker {asked} is running", hint="stop it: that ends its registration")
    if image.node(asked) is None:
        raise UnknownBroker(f"there never was a broker {asked} in this cluster")
    return UnregisterBrokerResponse()


def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> NoReturn:
    raise UnsupportedVersion(
        "there is no quorum of brokers: cluster metadata is in SQLite on a single broker, in etcd in a cluster",
        hint="`tierlog cluster status` shows the brokers and which of them decides; etcdctl shows etcd's members",
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.UNREGISTER_BROKER: Handler(0, 0, unregister),
    ApiKey.DESCRIBE_QUORUM: Handler(0, 2, describe_quorum),
}
