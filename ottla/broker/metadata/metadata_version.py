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
"""4.1-IV1, the level of Kafka 4.1 (Kafka's MetadataVersion)."""

RECORD_VERSIONS: dict[type[MetadataRecord], int] = {
    RegisterBrokerRecord: 3,
    BrokerRegistrationChangeRecord: 2,
    PartitionRecord: 1,
    PartitionChangeRecord: 1,
}
"""The version in which each record is written at METADATA_VERSION; 0 for all others.

PartitionRecord 2 needs the feature eligible.leader.replicas.version, which is useless for one node.
"""
