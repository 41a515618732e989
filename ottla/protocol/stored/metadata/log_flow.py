"""Metadata records about the metadata log itself: no-ops, atomic groups of batches, the state of a migration.

Records between BeginTransactionRecord and EndTransactionRecord take effect together, or not at all if an
AbortTransactionRecord ends them (KIP-868).
"""

from __future__ import annotations

from ottla.protocol.message import tagged
from ottla.protocol.stored.metadata.record import MetadataRecord
from ottla.protocol.types import Int8, NullableString


class NoOpRecord(MetadataRecord, key=20, versions="0", flexible="0+"):
    """Shows that the controller is alive (KIP-835). Changes nothing."""


class BeginTransactionRecord(MetadataRecord, key=23, versions="0", flexible="0+"):
    """The records after this one take effect at the end of the transaction."""

    name: NullableString = tagged(0, "0+", default=None)


class EndTransactionRecord(MetadataRecord, key=24, versions="0", flexible="0+"):
    """The records since the begin take effect."""


class AbortTransactionRecord(MetadataRecord, key=25, versions="0", flexible="0+"):
    """The records since the begin are discarded."""

    reason: NullableString = tagged(0, "0+", default=None)


class ZkMigrationStateRecord(MetadataRecord, key=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper: 0 none, 1 pre-migration, 2 migration, 3 post-migration."""

    zk_migration_state: Int8
