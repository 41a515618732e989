"""The records of the cluster metadata log, ``__cluster_metadata-0``, and their framing.

The value of each data record in that log (and in its snapshots) is::

    unsigned varint   frame version, always 1
    unsigned varint   record type
    unsigned varint   version of the record type
    ...               the record, in the flexible encoding of that version

for example the TopicRecord of topic ``t`` with an id of sixteen bytes, all 0x11::

    01  02  00  02 74  11 x 16  00      frame 1, type 2, version 0, "t", the id, no tagged fields

Keys are null. Source: Kafka's ``MetadataRecordSerde`` and the schemas of release 4.1. All record types of 4.1 are here,
whether Ottla writes them or not, so that a directory of Kafka's can be read. Unlike a request, a record must not be
followed by more bytes.
"""

from __future__ import annotations

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import decode_prefix, encode
from ottla.protocol.primitives import decode_unsigned_varint, encode_unsigned_varint
from ottla.protocol.stored.metadata.configuration import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
)
from ottla.protocol.stored.metadata.log_flow import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
)
from ottla.protocol.stored.metadata.nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.stored.metadata.record import MetadataRecord
from ottla.protocol.stored.metadata.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.stored.metadata.topics import (
    NO_LEADER_CHANGE,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.types import Buffer

FRAME_VERSION = 1

METADATA_RECORDS: dict[int, type[MetadataRecord]] = {
    record.message_key: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        UnregisterControllerRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
"""The record classes by their type."""

__all__ = [
    "FRAME_VERSION",
    "METADATA_RECORDS",
    "NO_LEADER_CHANGE",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "UserScramCredentialRecord",
    "ZkMigrationStateRecord",
    "decode_metadata_record",
    "encode_metadata_record",
]


def encode_metadata_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """The value of a record of the metadata log.

    Without a `version`, the latest one, which a log at the ``metadata.version`` of Kafka 4.1 has.
    Raises UnencodableMessage, and ValueError for a version that the record type does not have.
    """
    if version is None:
        version = record.message_versions.last
    body = encode(record, version)
    return b"%c%b%b%b" % (
        FRAME_VERSION,
        encode_unsigned_varint(record.message_key),
        encode_unsigned_varint(version),
        body,
    )


def decode_metadata_record(data: Buffer) -> MetadataRecord:
    """Decode the value of a record of the metadata log.

    Raises MalformedMessage for another frame version, an unknown type or version, and for broken bytes.
    """
    try:
        frame_version, position = decode_unsigned_varint(data, 0)
        record_type, position = decode_unsigned_varint(data, position)
        version, position = decode_unsigned_varint(data, position)
    except IndexError as error:
        raise MalformedMessage(f"a metadata record of {len(data)} bytes ends within its frame") from error
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata record with frame version {frame_version}, not {FRAME_VERSION}")
    cls = METADATA_RECORDS.get(record_type)
    if cls is None:
        raise MalformedMessage(f"metadata record of unknown type {record_type}")
    if version not in cls.message_versions:
        raise MalformedMessage(f"{cls.__name__} of unknown version {version}")
    record, end = decode_prefix(cls, data, version, position)
    if end != len(data):
        raise MalformedMessage(f"{cls.__name__} v{version} is followed by {len(data) - end} bytes")
    return record
