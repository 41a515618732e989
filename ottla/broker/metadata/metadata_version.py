"""`metadata.version`: the level to write, the levels to read, and each record's version (MetadataVersion)."""

from __future__ import annotations

from ottla.protocol.stored.metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 17
"""3.7-IV2, the first level whose records contain log directories."""
METADATA_VERSION = 27
"""4.1-IV1, the level of new directories: each Kafka since 4.1 reads them (Kafka's MetadataVersion)."""
METADATA_VERSION_MAX = 33
"""4.4-IV2, the level of Kafka 4.4."""
FIRST_METADATA_VERSION_WITH_CIDR = 32
"""4.4-IV1: the host of an ACL may be a range of addresses (CIDR)."""
LEVELS_WITH_NEW_METADATA = (23, 30, 32, 33)
"""The levels with records or fields that the one before does not have: a downgrade across one could lose them."""

RECORD_VERSIONS: dict[type[MetadataRecord], int] = {
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
    PartitionRecord: 1,
    PartitionChangeRecord: 1,
}
"""The version in which each record is written, at any level from METADATA_VERSION_MIN on; 0 for all others.

RegisterBrokerRecord 4 and BrokerRegistrationChangeRecord 3 add only log directories that take no new partitions: this
broker knows its own without a record, and Kafka's brokers report theirs to their controller with each heartbeat.
PartitionRecord 2 needs the feature eligible.leader.replicas.version, which is useless for one node.
"""
