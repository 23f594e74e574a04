"""UpdateFeatures: accepted only if nothing changes; the levels of features are fixed."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.codec.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.features import UpgradeType, check_update
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster

_FIRST_WITH_UPGRADE_TYPE = 1
_LAST_WITH_RESULTS = 1


def handle(context: Context, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    require_on_cluster(context, Operation.ALTER)
    for update in request.feature_updates:
        check_update(update.feature, update.max_version_level, _upgrade_type(context, update))
    names = dict.fromkeys(update.feature for update in request.feature_updates)
    results = [UpdatableFeatureResult(feature=name) for name in names]
    return UpdateFeaturesResponse(results=results if context.version <= _LAST_WITH_RESULTS else [])


def _upgrade_type(context: Context, update: FeatureUpdateKey) -> int:
    if context.version >= _FIRST_WITH_UPGRADE_TYPE:
        return update.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _refuse(
    context: Context, request: UpdateFeaturesRequest, code: ErrorCode, message: str
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


HANDLER = Handler(key=57, handle=handle, refuse=_refuse)
