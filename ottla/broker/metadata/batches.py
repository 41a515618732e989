"""The encoding of metadata records in batches, the same in the log and in snapshots.

A data batch's records have no key; the value is Kafka's metadata framing (unsigned varints: frame version 1, record
type, record version; then the fields), see `ottla.protocol.stored.metadata`. A control batch marks a raft event; its
records' keys have the type. The raft epoch is in the batch's leader epoch field. Source: Kafka's MetadataRecordSerde,
BatchAccumulator, RecordsSnapshotWriter.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.metadata_version import RECORD_VERSIONS
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import encode
from ottla.protocol.records.batch import BatchHeader, CorruptBatch, decode_batch, encode_batch
from ottla.protocol.records.control import ControlType, encode_control_key
from ottla.protocol.records.record import Record
from ottla.protocol.stored.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.stored.metadata import MetadataRecord, decode_metadata_record, encode_metadata_record

LEADER_CHANGE_VERSION = 0
"""The version that Kafka 4.1 writes and reads; version 1, with directory ids, exists in its schema only."""
KRAFT_VERSION = 1
"""Voters are in the log and in snapshots, not in the configuration; `quorum-state` has data_version 1."""


def encode_data_batch(records: Sequence[MetadataRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch with `records`, each in the version for METADATA_VERSION."""
    return encode_batch(
        [
            Record(
                base_offset + index, now_ms, None, encode_metadata_record(record, RECORD_VERSIONS.get(type(record), 0))
            )
            for index, record in enumerate(records)
        ],
        leader_epoch=epoch,
    )


def decode_data_batch(batch: memoryview) -> list[MetadataRecord]:
    """The records of a data batch. Raises MetadataError if it cannot be read."""
    try:
        return [decode_metadata_record(record.value or b"") for record in decode_batch(batch)]
    except (CorruptBatch, MalformedMessage) as error:
        raise MetadataError(str(error)) from error


def leader_change_batch(*, base_offset: int, epoch: int, now_ms: int, node_id: int) -> bytearray:
    """The batch that begins a raft epoch: the one voter elects itself."""
    voter = LeaderChangeMessage.Voter(voter_id=node_id)
    message = LeaderChangeMessage(
        version=LEADER_CHANGE_VERSION, leader_id=node_id, voters=[voter], granting_voters=[voter]
    )
    value = encode(message, LEADER_CHANGE_VERSION)
    return _control_batch(
        [(ControlType.LEADER_CHANGE, LEADER_CHANGE_VERSION, value)], base_offset=base_offset, epoch=epoch, now_ms=now_ms
    )


def snapshot_header_batch(
    *, epoch: int, now_ms: int, last_contained_log_timestamp: int, voters: VotersRecord | None
) -> bytearray:
    """A snapshot's first batch; `voters` (with the kraft.version they need) are in it, not in the image."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp)
    entries = [(ControlType.SNAPSHOT_HEADER, 0, encode(header, 0))]
    if voters is not None:
        level = KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSION)
        entries.append((ControlType.KRAFT_VERSION, 0, encode(level, 0)))
        entries.append((ControlType.KRAFT_VOTERS, 0, encode(voters, 0)))
    return _control_batch(entries, base_offset=0, epoch=epoch, now_ms=now_ms)


def snapshot_footer_batch(*, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """A snapshot's last batch: without it the snapshot was not finished."""
    entries = [(ControlType.SNAPSHOT_FOOTER, 0, encode(SnapshotFooterRecord(version=0), 0))]
    return _control_batch(entries, base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def single_voter(node_id: int, directory_id: UUID, endpoints: Sequence[tuple[str, str, int]]) -> VotersRecord:
    """The voter set of a broker that is alone; an endpoint is (listener name, host, port)."""
    voter = VotersRecord.Voter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=[VotersRecord.Endpoint(name=name, host=host, port=port) for name, host, port in endpoints],
        kraft_version_feature=VotersRecord.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=KRAFT_VERSION
        ),
    )
    return VotersRecord(version=0, voters=[voter])


def describe(header: BatchHeader) -> str:
    """A batch, for an error message."""
    return f"the batch of offsets {header.base_offset} to {header.last_offset}"


def _control_batch(
    entries: Sequence[tuple[ControlType, int, bytes]], *, base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    return encode_batch(
        [
            Record(base_offset + index, now_ms, encode_control_key(kind, version), value)
            for index, (kind, version, value) in enumerate(entries)
        ],
        leader_epoch=epoch,
        is_control=True,
    )
