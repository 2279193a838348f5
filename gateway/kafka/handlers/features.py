"""Features of the cluster, as `kafka-features` shows them, and UpdateFeatures.

Level 0 of each is the protocol from before the feature: classic groups, no share groups, no transactions of the newer
kind. Nothing above is served, so that no level can be raised.
"""

from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

FEATURES: Final = ("group.version", "share.version", "streams.version", "transaction.version")


async def update(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    turn = context.turn()
    asked = {each.feature: each async for each in turn.through(request.feature_updates)}
    results = [UpdatableFeatureResult(name, *_outcome(each)) async for name, each in turn.through(asked.items())]
    refused = next((each for each in results if each.error_code), None)
    if refused is None:
        return UpdateFeaturesResponse(results=results)
    return UpdateFeaturesResponse(error_code=refused.error_code, error_message=refused.error_message)


def _outcome(asked: FeatureUpdateKey) -> tuple[int, str | None]:
    if asked.feature not in FEATURES:
        return ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {asked.feature}"
    if asked.max_version_level != 0:
        return ErrorCode.INVALID_UPDATE_VERSION, f"{asked.feature} is served at level 0 alone"
    return ErrorCode.NONE, None


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.UPDATE_FEATURES: Handler(0, 2, update)}
