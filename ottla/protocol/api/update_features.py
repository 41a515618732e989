"""UpdateFeatures (key 57), versions 0-2: finalize the level of features (KIP-584).

Versions: 1 distinguishes upgrades from downgrades and can only check (KIP-778) · 2 has no results for single features,
since all succeed or none does.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, NullableString, String


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The features and their new levels."""

    class FeatureUpdateKey(Struct):
        """A feature; level 0 removes it. `upgrade_type`: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

        feature: String
        max_version_level: Int16
        allow_downgrade: Bool = ranged("0", default=False)
        upgrade_type: Int8 = since("1+", default=1)

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = since("1+", default=False)


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    """The result of the update."""

    class UpdatableFeatureResult(Struct):
        """One feature."""

        feature: String
        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    results: list[UpdatableFeatureResult] = ranged("0-1", factory=list, ignorable=True)


def refused(request: UpdateFeaturesRequest, version: int, code: ErrorCode, message: str) -> UpdateFeaturesResponse:
    """Refuse the request."""
    return UpdateFeaturesResponse(error_code=code, error_message=message)
