"""What a wish about levels of features comes to: the records that fulfil it, or the refusal of all of it.

Pure function of (image, wishes). Rules and messages follow Kafka 4.1 (`FeatureControlManager`), as asked of a running
one: a level that is finalized already is no change, a lower one must be asked for as a downgrade, and the metadata
version does not go back.

Differences: `metadata.version` can be raised only to what this version writes; features of Kafka that are not served
here (`transaction.version` and others) are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metadata.features import SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import FeatureLevelRecord

if TYPE_CHECKING:
    from ottla.protocol.stored.metadata import MetadataRecord

SAME_METADATA_SINCE = 23
"""The level of `metadata.version` from which on no record has changed: nothing is lost on the way back to it."""
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Kafka's FeatureUpdate.UpgradeType."""


class FeatureWish(NamedTuple):
    """A wish that a feature run at a level from now on; 0 ends it."""

    name: str
    level: int
    upgrade_type: int = UPGRADE


class FeaturePlan(NamedTuple):
    """The refusal, or else the records."""

    error: KafkaError | None
    records: Sequence[MetadataRecord]


def plan_features(image: MetadataImage, wishes: Sequence[FeatureWish]) -> FeaturePlan:
    """Finalize levels: all, or none."""
    records: dict[str, MetadataRecord] = {}
    for wish in wishes:
        current = image.features.get(wish.name, 0)
        reason = _why_not(wish, current)
        if reason:
            message = f"The update failed for all features since the following feature had an error: {reason}"
            return FeaturePlan(KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message), ())
        if wish.level != current:
            records[wish.name] = FeatureLevelRecord(name=wish.name, feature_level=wish.level)
    return FeaturePlan(None, list(records.values()))


def _why_not(wish: FeatureWish, current: int) -> str:
    about = f"Invalid update version {wish.level} for feature {wish.name[:80]}."
    if wish.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"{about} The controller does not support the given upgrade type."
    if wish.level < 0:
        return f"{about} A feature version cannot be less than 0."
    if wish.name not in SUPPORTED_FEATURES:
        return f"{about} Local controller does not support this feature."
    first, last = SUPPORTED_FEATURES[wish.name]
    if not first <= wish.level <= last:
        return f"{about} Local controller only supports versions {first}-{last}"
    if wish.level < current and wish.upgrade_type == UPGRADE:
        downgrade = "without setting the upgrade type to either safe or unsafe downgrade."
        return f"{about} Can't downgrade the version of this feature {downgrade}"
    if wish.level > current and wish.upgrade_type != UPGRADE:
        return f"{about} Can't downgrade to a newer version."
    if wish.name == METADATA_VERSION_FEATURE and wish.level < min(current, SAME_METADATA_SINCE):
        if wish.upgrade_type == UNSAFE_DOWNGRADE:
            return f"Invalid metadata.version {wish.level}. Unsafe metadata downgrade is not supported in this version."
        about = f"Invalid metadata.version {wish.level}."
        return f"{about} Refusing to perform the requested downgrade because it might delete metadata information."
    return ""
