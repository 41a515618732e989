"""A batch header and a record, in the words that both `log dump` and `log explain` use."""

from __future__ import annotations

from typing import Final

from ottla.cli.show import json_bytes
from ottla.protocol.records.batch import MAGIC, BatchHeader, Record

HEADER_FIELDS: Final = (
    ("base_offset", 0, 8),
    ("batch_length", 8, 4),
    ("partition_leader_epoch", 12, 4),
    ("magic", 16, 1),
    ("crc", 17, 4),
    ("attributes", 21, 2),
    ("last_offset_delta", 23, 4),
    ("base_timestamp", 27, 8),
    ("max_timestamp", 35, 8),
    ("producer_id", 43, 8),
    ("producer_epoch", 51, 2),
    ("base_sequence", 53, 4),
    ("record_count", 57, 4),
)
"""The header's fields with their place in its 61 bytes, as in ottla/protocol/records/batch.py."""

MESSAGE_FIELDS: Final = (
    ("last_offset", 0, 8),
    ("batch_length", 8, 4),
    ("crc", 12, 4),
    ("magic", 16, 1),
    ("attributes", 17, 1),
    ("max_timestamp", 18, 8),
)
"""The same of a message of format v1; in v0 there is no timestamp (ottla/protocol/records/legacy.py)."""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def header_fields(header: BatchHeader) -> tuple[tuple[str, int, int], ...]:
    """Name, place and width of the fields that a header of this format has."""
    return HEADER_FIELDS if header.magic == MAGIC else MESSAGE_FIELDS[: 5 + header.magic]


def codec_of(header: BatchHeader) -> str:
    """The codec's name; `codec 7` for a number that no codec has."""
    return _CODECS[header.codec] if header.codec < len(_CODECS) else f"codec {header.codec}"


def flags_of(header: BatchHeader) -> list[str]:
    """The attributes beside the codec, in words."""
    flags = (
        ("transactional", header.is_transactional),
        ("control", header.is_control),
        ("log append time", header.is_log_append_time),
        ("delete horizon", header.has_delete_horizon),
    )
    return [flag for flag, is_set in flags if is_set]


def offsets_of(header: BatchHeader) -> str:
    """`4-9`, or `4` for a batch of one offset."""
    if header.last_offset == header.base_offset:
        return str(header.base_offset)
    return f"{header.base_offset}-{header.last_offset}"


def header_to_json(header: BatchHeader, position: int) -> dict[str, object]:
    """A batch header for `--json`."""
    return {
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "partition_leader_epoch": header.partition_leader_epoch,
        "magic": header.magic,
        "crc": header.crc,
        "attributes": header.attributes,
        "compression": codec_of(header),
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "is_log_append_time": header.is_log_append_time,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
    }


def record_to_json(record: Record) -> dict[str, object]:
    """A record for `--json`."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
