"""The features of a cluster: which levels this version can serve, and at which a directory begins.

`metadata.version` is the format of the metadata log. `group.version` 1 is the consumer protocol (KIP-848); clients
check that it is finalized before they use it. `transaction.version` is how producers and the coordinator speak: 0 as
Kafka always did, 1 with records of `__transaction_state` that can grow, 2 with an epoch for each transaction and
partitions that a Produce adds (KIP-890). `share.version` 1 are share groups (KIP-932).

A level is finalized by a FeatureLevelRecord; a directory that lacks one, because an earlier Ottla did not have the
feature, gets it at its next start. A feature that was removed stays removed, and a directory with the metadata.version
of an older Kafka gets none: that Kafka could not start on it any more. `transaction.version` is finalized in new
directories only: others keep level 0 until an administrator raises it, because it changes what running clients do.
"""

from __future__ import annotations

from ottla.broker.metadata.metadata_version import METADATA_VERSION, METADATA_VERSION_FEATURE, METADATA_VERSION_MIN

GROUP_VERSION_FEATURE = "group.version"
FIRST_METADATA_VERSION_WITH_GROUP_VERSION = 22
"""4.0-IV0 (Kafka's `GroupVersion.bootstrapMetadataVersion`)."""
CONSUMER_PROTOCOL_LEVEL = 1
"""The level of `group.version` from which on groups may speak the consumer protocol."""
TRANSACTION_VERSION_FEATURE = "transaction.version"
NEWEST_TRANSACTION_VERSION = 2
"""The level from which on each transaction has an epoch of its own (KIP-890 part 2)."""
SHARE_VERSION_FEATURE = "share.version"
SHARE_GROUP_LEVEL = 1
"""The level of `share.version` from which on there may be share groups; 2 are those of Kafka 4.4 with dead letters."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
    GROUP_VERSION_FEATURE: (0, CONSUMER_PROTOCOL_LEVEL),
    TRANSACTION_VERSION_FEATURE: (0, NEWEST_TRANSACTION_VERSION),
    SHARE_VERSION_FEATURE: (0, SHARE_GROUP_LEVEL),
}
"""The least and the highest level, by feature."""

INITIAL_LEVELS: dict[str, int] = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
"""What a new directory begins with. Kafka 4.1's defaults, for the features that are served."""
