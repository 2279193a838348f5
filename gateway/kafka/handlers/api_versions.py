"""ApiVersions: what this broker speaks. The first thing that a client asks."""

from collections.abc import Mapping

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


def handler(handlers: Mapping[ApiKey, Handler]) -> Handler:
    """The handler over a dispatch table, which may still grow."""

    def handle(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        return ApiVersionsResponse(api_keys=_ranges(handlers))

    return Handler(0, 4, handle)


def unknown_version(handlers: Mapping[ApiKey, Handler]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges(handlers))


def _ranges(handlers: Mapping[ApiKey, Handler]) -> list[ApiVersion]:
    return [ApiVersion(api_key, served.min_version, served.max_version) for api_key, served in sorted(handlers.items())]
