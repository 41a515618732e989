"""`quorum-state`: the leader of the metadata log and its raft epoch. One line of JSON, replaced as a whole.

    {"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

Kafka 4 writes data_version 1 with kraft.version 1, and 0 before (with `clusterId`, `appliedOffset`, `currentVoters`).
Ottla reads both and writes the former. It follows Kafka's FileQuorumStateStore, except for an empty file, which Kafka
refuses: here it counts as missing. The log contains its last epoch, and in an epoch that is only in this file nothing
was written. Only the metadata journal uses it.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.metadata.image import MetadataError
from ottla.storage.formats.kafka_uuid import uuid_to_text

if TYPE_CHECKING:
    from ottla.storage.files.files import Files

logger = logging.getLogger(__name__)

QUORUM_STATE_FILE = "quorum-state"
NOBODY = -1
_DATA_VERSION = 1
_MAX_INT32 = 2**31 - 1


class QuorumState(NamedTuple):
    """The leader and its epoch; `leader_id` is -1 if the epoch has none (yet)."""

    leader_id: int
    leader_epoch: int

    def encode(self) -> bytes:
        """The file's content; in an epoch with a leader there is no vote to record."""
        fields = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": NOBODY,
            "votedDirectoryId": uuid_to_text(UUID(int=0)),
            "data_version": _DATA_VERSION,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """Read the file's content. Raises MetadataError if Kafka would not write it so."""
    try:
        fields = json.loads(data)
        version, leader_id, leader_epoch = fields["data_version"], fields["leaderId"], fields["leaderEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # json recurses into nested values
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise MetadataError(f"quorum-state cannot be read: {reason}") from error
    if version not in (0, 1):
        raise MetadataError(f"quorum-state has data_version {version}, this version reads 0 and 1")
    # Both are int32 on the wire and in the log, and a start leads in the epoch that follows.
    if not _is_within(leader_id, NOBODY, _MAX_INT32) or not _is_within(leader_epoch, -1, _MAX_INT32 - 1):
        raise MetadataError(f"quorum-state names leader {leader_id!r} in epoch {leader_epoch!r}")
    return QuorumState(leader_id, max(leader_epoch, 0))


def _is_within(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and least <= value <= most


def load_quorum_state(files: Files, directory: Path) -> QuorumState:
    """`read_quorum_state` for a start. Raises MetadataError with advice."""
    try:
        return read_quorum_state(files, directory)
    except MetadataError as error:
        words = f"{directory / QUORUM_STATE_FILE}: {error}; `ottla log verify --repair {directory.parent}` mends it"
        raise MetadataError(words) from error


def read_quorum_state(files: Files, directory: Path) -> QuorumState:
    """The state of a metadata directory; epoch 0 without a leader if the file is missing or empty.

    Raises MetadataError if Kafka would not write it so.
    """
    path = directory / QUORUM_STATE_FILE
    if not files.exists(path):
        return QuorumState(NOBODY, 0)
    data = files.read_bytes(path)
    if not data.strip(b"\0"):
        logger.warning(
            "%s: %s: the epoch is taken from the metadata log", path, "zeros" if data else "the file is empty"
        )
        return QuorumState(NOBODY, 0)
    return decode_quorum_state(data)
