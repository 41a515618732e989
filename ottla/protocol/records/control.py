"""Control records: what brokers write into a log for themselves, in batches whose control bit is set.

The key says which kind it is: `version` int16, `type` int16, big-endian. Worked example: `00 00 00 02` is a
LeaderChange of version 0. The value of a transaction marker is `version` int16, `coordinator_epoch` int32; the values
of the others are Kafka messages, declared in `ottla.protocol.stored`. Consumers skip control records, and so skip kinds
that they do not know. Source: Kafka's ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.protocol.records.errors import CorruptBatch

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """The kinds of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The value of an ABORT or COMMIT record: the epoch of the transaction coordinator that wrote it."""

    coordinator_epoch: int


def encode_control_key(control_type: ControlType, version: int = 0) -> bytes:
    """Return the four bytes of a control record's key."""
    return _KEY.pack(version, control_type)


def decode_control_key(key: bytes | None) -> ControlType | None:
    """Return the kind that a control record's key names, None for a kind from a newer Kafka.

    Raises CorruptBatch when the key is absent, too short or of a negative version. Bytes past the four are a newer
    version's fields and are ignored, as in Kafka.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"a control record's key has {0 if key is None else len(key)} bytes, it needs {_KEY.size}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"a control record's key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def encode_end_transaction_marker(marker: EndTransactionMarker) -> bytes:
    """Return the value of an ABORT or COMMIT record, version 0."""
    return _MARKER.pack(0, marker.coordinator_epoch)


def decode_end_transaction_marker(value: bytes | None) -> EndTransactionMarker:
    """Return what an ABORT or COMMIT record's value says; raises CorruptBatch when it is broken."""
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch(
            f"a transaction marker has {0 if value is None else len(value)} bytes, it needs {_MARKER.size}"
        )
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"a transaction marker has version {version}")
    return EndTransactionMarker(coordinator_epoch)
