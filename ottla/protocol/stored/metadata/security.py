"""Metadata records of ACLs, SCRAM credentials and delegation tokens.

The small numbers are those of Kafka's ``ResourceType``, ``PatternType``, ``AclOperation``, ``AclPermissionType`` and
``ScramMechanism``.
"""

from __future__ import annotations

from ottla.protocol.stored.metadata.record import MetadataRecord
from ottla.protocol.types import Bytes, Int8, Int32, Int64, String, Uuid


class AccessControlEntryRecord(MetadataRecord, key=18, versions="0", flexible="0+"):
    """An ACL was added."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(MetadataRecord, key=19, versions="0", flexible="0+"):
    """An ACL was removed."""

    id: Uuid


class UserScramCredentialRecord(MetadataRecord, key=11, versions="0", flexible="0+"):
    """A user's credential was set (RFC 5802); the password is not in it.

    `mechanism` 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512.
    """

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32

    def __repr__(self) -> str:
        return f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism}, ...)"


class RemoveUserScramCredentialRecord(MetadataRecord, key=22, versions="0", flexible="0+"):
    """A user's credential was removed."""

    name: String
    mechanism: Int8


class DelegationTokenRecord(MetadataRecord, key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed; times in ms since the epoch."""

    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class RemoveDelegationTokenRecord(MetadataRecord, key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: String
