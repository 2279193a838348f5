"""ApiVersions: what this broker speaks. The first thing that a client asks."""

import re
from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.handlers.features import FEATURES
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)

FEATURES_SINCE: Final = 4
"""Before, Java clients take a level of 0 for an error."""

NAMED_SINCE: Final = 3
SOFTWARE: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What Kafka takes for the name and the version of a client, since the two became labels of metrics."""


def handler(handlers: Mapping[ApiKey, Handler]) -> Handler:
    """The handler over a dispatch table, which may still grow."""

    def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        if context.api_version >= NAMED_SINCE and not (
            SOFTWARE.fullmatch(request.client_software_name) and SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        response = ApiVersionsResponse(api_keys=_ranges(handlers))
        if context.api_version >= FEATURES_SINCE:
            response.supported_features = [SupportedFeatureKey(name, 0, 0) for name in FEATURES]
        return response

    return Handler(0, 4, handle)


def unknown_version(handlers: Mapping[ApiKey, Handler]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(handlers))


def _ranges(handlers: Mapping[ApiKey, Handler]) -> list[ApiVersion]:
    return [ApiVersion(api_key, served.min_version, served.max_version) for api_key, served in sorted(handlers.items())]
