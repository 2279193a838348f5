"""DescribeCluster: the cluster's id, its brokers, and which of them is the controller."""

from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.handlers.metadata import NOT_ASKED, cluster_operations
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if request.endpoint_type == CONTROLLERS
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="this port serves brokers (endpoint type 1); there are no separate controllers",
        )
    image = context.node.image
    return DescribeClusterResponse(
        cluster_id=context.node.cluster_id,
        controller_id=image.controller,
        brokers=[
            DescribeClusterBroker(each.id, at.host, at.port, each.rack)
            for each, at in context.reachable(image.brokers())
        ],
        cluster_authorized_operations=cluster_operations(context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.DESCRIBE_CLUSTER: Handler(0, 2, handle)}
