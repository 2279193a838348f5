"""ApiVersions: which APIs and versions this broker serves. Every client asks this first."""

import re
from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.handlers.features import FEATURES, level
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from gateway.node import Node

FEATURES_SINCE: Final = 4
"""In lower versions, Java clients take level 0 for an error."""

NAMED_SINCE: Final = 3
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What Kafka accepts as the name and the version of a client, since both became labels of metrics."""


def handler(handlers: Mapping[ApiKey, Handler]) -> Handler:
    """Returns a handler for a dispatch table, which may still grow."""

    def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        if context.api_version >= NAMED_SINCE and not (
            SOFTWARE.fullmatch(request.client_software_name) and SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        response = ApiVersionsResponse(api_keys=_ranges(handlers))
        if context.api_version >= FEATURES_SINCE:
            response.supported_features = [SupportedFeatureKey(name, 0, most) for name, most in FEATURES.items()]
        _finalize(response, context.node)
        return response

    return Handler(0, 4, handle)


def _finalize(response: ApiVersionsResponse, node: Node) -> None:
    """Says which levels the cluster serves. Clients look at them again only when the epoch has grown."""
    levels = {name: found for name in FEATURES if (found := level(name, node))}
    response.finalized_features = [FinalizedFeatureKey(name, found, found) for name, found in levels.items()]
    response.finalized_features_epoch = len(levels)


def unknown_version(handlers: Mapping[ApiKey, Handler]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(handlers))


def _ranges(handlers: Mapping[ApiKey, Handler]) -> list[ApiVersion]:
    return [ApiVersion(api_key, served.min_version, served.max_version) for api_key, served in sorted(handlers.items())]
