"""Plans of feature level changes: the records of a request, or the refusal of all of it.

A pure function of (image, requests). Rules and messages follow Kafka 4.1 (`FeatureControlManager`), as observed with a
running broker: a level that is finalized already is not a change, a lower one must be requested as a downgrade, and the
metadata version cannot be lowered.

Differences: `metadata.version` can be raised only to the level that this version writes; features of Kafka that Ottla
does not serve (`kraft.version` and others) are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metadata.features import SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.metadata_version import LEVELS_WITH_NEW_METADATA, METADATA_VERSION_FEATURE
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from ottla.protocol.stored.metadata import MetadataRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kafka's FeatureUpdate.UpgradeType."""


class FeatureRequest(NamedTuple):
    """A request to finalize a feature at a level; 0 removes it."""

    name: str
    level: int
    upgrade_type: int = UPGRADE


class FeaturePlan(NamedTuple):
    """The refusal, or else the records."""

    error: KafkaError | None
    records: Sequence[MetadataRecord]


def plan_features(image: MetadataImage, requests: Sequence[FeatureRequest]) -> FeaturePlan:
    """Finalize levels: all, or none."""
    records: dict[str, MetadataRecord] = {}
    for request in requests:
        current = image.features.get(request.name, 0)
        reason = _why_not(request, current)
        if reason:
            message = f"The update failed for all features since the following feature had an error: {reason}"
            return FeaturePlan(KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message), ())
        if request.level != current:
            records[request.name] = FeatureLevelRecord(name=request.name, feature_level=request.level)
    return FeaturePlan(None, list(records.values()))


def _why_not(request: FeatureRequest, current: int) -> str:
    about = f"Invalid update version {request.level} for feature {request.name[:80]}."
    if request.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"{about} The controller does not support the given upgrade type."
    if request.level < 0:
        return f"{about} A feature version cannot be less than 0."
    if request.name not in SUPPORTED_FEATURES:
        return f"{about} Local controller does not support this feature."
    first, last = SUPPORTED_FEATURES[request.name]
    if not first <= request.level <= last:
        return f"{about} Local controller only supports versions {first}-{last}"
    if request.level < current and request.upgrade_type == UPGRADE:
        downgrade = "without setting the upgrade type to either safe or unsafe downgrade."
        return f"{about} Can't downgrade the version of this feature {downgrade}"
    if request.level > current and request.upgrade_type != UPGRADE:
        return f"{about} Can't downgrade to a newer version."
    if request.name == METADATA_VERSION_FEATURE and any(
        request.level < level <= current for level in LEVELS_WITH_NEW_METADATA
    ):
        invalid = f"Invalid metadata.version {request.level}."
        if request.upgrade_type == UNSAFE_DOWNGRADE:
            return f"{invalid} Unsafe metadata downgrade is not supported in this version."
        return f"{invalid} Refusing to perform the requested downgrade because it might delete metadata information."
    return ""
