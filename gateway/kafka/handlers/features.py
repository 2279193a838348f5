"""Features of the cluster, as `kafka-features` shows them, and UpdateFeatures.

Level 0 of each feature is the protocol before the feature: classic groups, no share groups, no streams groups. These
are served at level 0 only. `transaction.version` is at level 2 as soon as every broker can do transactions (KIP-890: an
epoch for each transaction), and not before. No level can be chosen.
"""

from collections.abc import Mapping
from typing import Final

from gateway.coordinators.transactions.rollout import is_served
from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from gateway.node import Node

TRANSACTION_VERSION: Final = "transaction.version"
FEATURES: Final = {"group.version": 0, "share.version": 0, "streams.version": 0, TRANSACTION_VERSION: 2}
"""The highest level of each that this broker can do."""


def level(feature: str, node: Node) -> int:
    """Returns the level at which the cluster serves the feature."""
    return FEATURES[feature] if is_served(node.image, node.node_id) else 0


async def update(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    turn = context.turn()
    asked = {each.feature: each async for each in turn.through(request.feature_updates)}
    results = [
        UpdatableFeatureResult(name, *_outcome(each, context.node)) async for name, each in turn.through(asked.items())
    ]
    refused = next((each for each in results if each.error_code), None)
    if refused is None:
        return UpdateFeaturesResponse(results=results)
    return UpdateFeaturesResponse(error_code=refused.error_code, error_message=refused.error_message)


def _outcome(asked: FeatureUpdateKey, node: Node) -> tuple[int, str | None]:
    if asked.feature not in FEATURES:
        return ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {asked.feature}"
    served = level(asked.feature, node)
    if asked.max_version_level != served:
        return ErrorCode.INVALID_UPDATE_VERSION, f"{asked.feature} is served at level {served} alone"
    return ErrorCode.NONE, None


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.UPDATE_FEATURES: Handler(0, 2, update)}
