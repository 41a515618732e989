"""The features of a cluster: the levels that this version can serve, and the initial levels of a directory.

`metadata.version` is the format of the metadata log. `group.version` 1 is the consumer protocol (KIP-848); clients
check that it is finalized before they use it. `transaction.version` is the protocol between producers and coordinator:
0 is the original one, 1 has extensible records in `__transaction_state`, 2 has an epoch for each transaction, and
Produce adds partitions (KIP-890). `share.version` 1 has share groups (KIP-932). `streams.version` 1 has streams groups
(KIP-1071).

A level is finalized by a FeatureLevelRecord. A directory without one, because an earlier Ottla did not have the
feature, gets it at its next start. A removed feature stays removed, and a directory with the metadata.version of an
older Kafka gets none: that Kafka could not start on it any more. `transaction.version` and `streams.version` are
finalized in new directories only: others keep level 0 until an administrator raises it. The first changes the behaviour
of running clients; with the second, Kafka 4.1 could not start on the directory any more. So a new directory does not
get `streams.version` either if `ottla.profile` names a release without it.
"""

from __future__ import annotations

from ottla.broker.metadata.metadata_version import (
    METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
)

GROUP_VERSION_FEATURE = "group.version"
FIRST_METADATA_VERSION_WITH_GROUP_VERSION = 22
"""4.0-IV0 (Kafka's `GroupVersion.bootstrapMetadataVersion`)."""
CONSUMER_PROTOCOL_LEVEL = 1
"""From this level of `group.version` on groups may use the consumer protocol."""
TRANSACTION_VERSION_FEATURE = "transaction.version"
NEWEST_TRANSACTION_VERSION = 2
"""From this level on each transaction has its own epoch (KIP-890 part 2)."""
SHARE_VERSION_FEATURE = "share.version"
FIRST_METADATA_VERSION_WITH_SHARE_GROUPS = 26
"""4.1-IV0: a broker of an earlier Kafka refuses a directory in which `share.version` is finalized."""
SHARE_GROUP_LEVEL = 1
"""The level of `share.version` from which on there can be share groups; 2 has the dead letters of Kafka 4.4."""
STREAMS_VERSION_FEATURE = "streams.version"
STREAMS_GROUP_LEVEL = 1
"""The level of `streams.version` from which on there can be streams groups. Kafka has it since 4.2."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    GROUP_VERSION_FEATURE: (0, CONSUMER_PROTOCOL_LEVEL),
    TRANSACTION_VERSION_FEATURE: (0, NEWEST_TRANSACTION_VERSION),
    SHARE_VERSION_FEATURE: (0, SHARE_GROUP_LEVEL),
    STREAMS_VERSION_FEATURE: (0, STREAMS_GROUP_LEVEL),
}
"""The lowest and the highest level, by feature."""

INITIAL_LEVELS: dict[str, int] = {
    **{name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()},
    METADATA_VERSION_FEATURE: METADATA_VERSION,
}
"""The levels of a new directory."""
