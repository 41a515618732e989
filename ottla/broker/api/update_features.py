"""UpdateFeatures (key 57), versions 0-2: finalize levels of features. All of the request succeeds, or none of it.

Versions: in 0 a downgrade is requested by `allow_downgrade`, and is a safe one · up to 1 the answer has a result for
each feature if all have succeeded. `metadata/feature_plans.py` describes what is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.feature_plans import SAFE_DOWNGRADE, UPGRADE, FeatureRequest
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.protocol.errors import KafkaError

LAST_VERSION_WITH_RESULTS = 1

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: UpdateFeaturesRequest, context: Context) -> Pending[UpdateFeaturesResponse]:
    """Answer once the levels are on disk."""
    pending: Pending[UpdateFeaturesResponse] = Pending()
    asked = [
        FeatureRequest(update.feature, update.max_version_level, _upgrade_type(update, context.api_version))
        for update in request.feature_updates
    ]

    def done(error: KafkaError | None) -> None:
        if error is not None:
            pending.complete(UpdateFeaturesResponse(error_code=error.code, error_message=error.message))
            return
        names = [one.name for one in asked] if context.api_version <= LAST_VERSION_WITH_RESULTS else []
        results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_message=ErrorCode.NONE.name)
            for name in names
        ]
        pending.complete(UpdateFeaturesResponse(results=results))

    context.services.catalog.settings.update_features(asked, done, validate_only=request.validate_only)
    return pending


def _upgrade_type(update: UpdateFeaturesRequest.FeatureUpdateKey, version: int) -> int:
    if version > 0:
        return update.upgrade_type
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
