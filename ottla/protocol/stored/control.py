"""The values of the control records of the metadata log: leader changes, snapshot bounds, the quorum's voters.

Control records are in batches with the control bit; their key has the type of the value (records/control.py). Each
value begins with its own version, by which it is decoded::

    00 00  00 00 00 01  02 00 00 00 01 00  02 00 00 00 01 00  00
    v0     leader 1     one voter: 1       one that voted: 1  no tagged fields

Source: Kafka's ``ControlRecordUtils`` and the schemas of release 4.1.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, Struct, decode, encode, since
from ottla.protocol.types import ZERO_UUID, Buffer, Int16, Int32, Int64, String, Uint16, Uuid

C = TypeVar("C", bound="ControlRecord")

_VERSION = struct.Struct(">h")


class ControlRecord(Message):
    """A value that begins with its own version, which is the field `version`."""


class LeaderChangeMessage(ControlRecord, versions="0-1", flexible="0+"):
    """A leader was elected: the first record of each of its epochs.

    Version 1 adds directory ids (KIP-853); Kafka 4.1 still writes version 0, and can read no other.
    """

    class Voter(Struct):
        """A voter, by its node id and the id of its metadata directory."""

        voter_id: Int32
        voter_directory_id: Uuid = since("1+", default=ZERO_UUID)

    version: Int16 = 0
    leader_id: Int32
    voters: list[Voter]
    granting_voters: list[Voter]


class SnapshotHeaderRecord(ControlRecord, versions="0", flexible="0+"):
    """Opens a snapshot; `last_contained_log_timestamp` is that of the last record it covers, in ms."""

    version: Int16 = 0
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(ControlRecord, versions="0", flexible="0+"):
    """Ends a snapshot; without it the snapshot is incomplete."""

    version: Int16 = 0


class KRaftVersionRecord(ControlRecord, versions="0", flexible="0+"):
    """The quorum uses this version of KRaft from here on; 1 allows the voters to change (KIP-853)."""

    version: Int16 = 0
    kraft_version: Int16


class VotersRecord(ControlRecord, versions="0", flexible="0+"):
    """The voters of the quorum from here on (KIP-853)."""

    class Endpoint(Struct):
        """An address, named by its listener."""

        name: String
        host: String
        port: Uint16

    class KRaftVersionFeature(Struct):
        """The versions of KRaft that the voter supports."""

        min_supported_version: Int16
        max_supported_version: Int16

    class Voter(Struct):
        """A voter with its addresses."""

        voter_id: Int32
        voter_directory_id: Uuid
        endpoints: list[VotersRecord.Endpoint]
        kraft_version_feature: VotersRecord.KRaftVersionFeature

    version: Int16 = 0
    voters: list[Voter]


def encode_control_record(record: ControlRecord) -> bytes:
    """The value of a control record, in the version that its field `version` names. Raises UnencodableMessage."""
    version: int = record.version  # type: ignore[attr-defined]  # each subclass declares it, as its first field
    return encode(record, version)


def decode_control_record(cls: type[C], data: Buffer) -> C:
    """Decode a control record of this class. Raises MalformedMessage, also for an unknown version.

    Bytes after it are ignored, as in Kafka.
    """
    if len(data) < _VERSION.size:
        raise MalformedMessage(f"{cls.__name__} of {len(data)} bytes has no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version not in cls.message_versions:
        raise MalformedMessage(f"{cls.__name__} of unknown version {version}")
    return decode(cls, data, version)
