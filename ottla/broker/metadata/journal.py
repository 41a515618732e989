"""`__cluster_metadata-0`, in the format of Kafka's KRaft controller: the image, its log, and its snapshots.

The directory `<metadata.log.dir>/__cluster_metadata-0` contains

    00000000000000000000.log .index .timeindex    record batches; the leader epoch field is the raft epoch
    leader-epoch-checkpoint  partition.metadata   as for any partition; the topic id is AAAAAAAAAAAAAAAAAAAAAQ
    quorum-state                                  the leader and its raft epoch
    00000000000000000000-0000000000.checkpoint    the voters, as `kafka-storage format --standalone` writes them
    <end offset>-<epoch>.checkpoint               snapshots

and `bootstrap.checkpoint` is beside it. Each run of the broker has its own raft epoch; it begins with a control batch
(LeaderChange), so the first record of a new log has offset 1, as in Kafka.

The steps of a change are `append` → sync → `commit` (replay) or `discard`. `load` replays the newest snapshot and the
log after it with the same `MetadataImage.replay`. Only the catalog and its change queue may call this; the blocking
calls are `load`, `begin_epoch`, `append_now` and `write_snapshot`. The log manager opens and closes the log itself.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.metadata.batches import decode_data_batch, encode_data_batch, leader_change_batch, single_voter
from ottla.broker.metadata.features import INITIAL_LEVELS
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.image_records import records_of
from ottla.broker.metadata.quorum_state import QUORUM_STATE_FILE, QuorumState
from ottla.broker.metadata.reading import (
    METADATA_DIRECTORY,
    MetadataReading,
    has_no_metadata,
    refused,
    unfinished_after_a_clean_stop,
)
from ottla.broker.metadata.scan import scan_log, segment_offsets
from ottla.broker.metadata.snapshot import (
    BOOTSTRAP_FILE,
    VOTERS_SNAPSHOT,
    SnapshotId,
    encode_snapshot,
    list_snapshots,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import FeatureLevelRecord, RemoveTopicRecord
from ottla.storage.errors import StorageError
from ottla.storage.files.disk_errors import is_full
from ottla.storage.producers.producer_snapshots import no_pause

if TYPE_CHECKING:
    from ottla.protocol.stored.control import VotersRecord
    from ottla.protocol.stored.metadata import MetadataRecord
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log
    from ottla.storage.producers.producer_snapshots import Pause

logger = logging.getLogger(__name__)

METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's Uuid.METADATA_TOPIC_ID."""
LONG_LOG_SNAPSHOTS = 4
"""With this many times the bytes between snapshots, the next snapshot may not wait any longer."""
SNAPSHOTS_KEPT = 2
"""The newest snapshot, and the one before it, so that a person can compare them."""


class JournalSettings(NamedTuple):
    """The directory and the node of the metadata log. `voter_endpoints`: the controller's (listener, host, port)."""

    root: Path
    node_id: int
    directory_id: UUID
    snapshot_max_bytes: int
    snapshot_max_interval_ms: int
    voter_endpoints: tuple[tuple[str, str, int], ...]


class Snapshot:
    """A snapshot that will be written once. `encode` returns its bytes, for the image at the time when it began."""

    def __init__(self, path: Path, encode: Callable[[], bytes]) -> None:
        self.path = path
        self.encode = encode
        self.size_bytes = 0
        """The size of its file, after that is written."""


class Journal:
    """See the module's text. `image` contains synced changes only."""

    log: Log

    def __init__(
        self,
        files: Files,
        clock: Clock,
        settings: JournalSettings,
        open_log: Callable[[], Log],
    ) -> None:
        self.directory = settings.root / METADATA_DIRECTORY
        self.image = MetadataImage()
        self.epoch = 0
        self.snapshots_taken = 0
        self._files = files
        self._clock = clock
        self._settings = settings
        self._open_log = open_log
        self._appended: list[MetadataRecord] = []
        self._has_discarded_deletion = False
        self._last_timestamp = 0
        self._quorum_epoch = 0
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = 0
        self._last_snapshot_ms = clock.monotonic_ms()

    @property
    def is_new(self) -> bool:
        """Whether there are no metadata yet: no segment with a byte in it and no snapshot."""
        return has_no_metadata(self._files, self._settings.root)

    def load(self, reading: MetadataReading) -> None:
        """Use the reading of the directory, create the log in a new one, and open it for appending.

        Raises MetadataError, one line for the user, if the log cannot be opened or ends at another offset than the
        reading.
        """
        self.image = reading.image
        self._last_timestamp = reading.last_timestamp
        self._records_since_snapshot = reading.records_since_snapshot
        self._bytes_since_snapshot = reading.bytes_since_snapshot
        self._quorum_epoch = reading.quorum_epoch
        try:
            self._found()
            self.log = self._open_log()
            if reading.torn is not None and not self.log.recovery.truncated_bytes and not self.log.recovery.quarantined:
                raise refused(self.directory, unfinished_after_a_clean_stop(reading.torn))
        except StorageError as error:
            raise MetadataError(
                f"the metadata log {self.directory} cannot be read: {error};"
                f" `ottla log verify --repair {self.directory.parent}` says and does what can be done"
            ) from error
        except OSError as error:
            raise MetadataError(f"the metadata log {self.directory} cannot be read: {error}") from error
        if self.log.log_end_offset != self.image.end_offset:
            raise MetadataError(
                f"the metadata log {self.directory} ends at offset {self.log.log_end_offset}"
                f" and its records at {self.image.end_offset}"
            )

    def begin_epoch(self) -> None:
        """Start this run's raft epoch: `quorum-state`, then the LeaderChange batch, synced. Raises OSError.

        If there is no room for another file, the old `quorum-state` stays, so that the broker can start and clients can
        make room. The log contains its last epoch; Ottla and Kafka continue with the larger of the two.
        """
        self.epoch = max(self.image.epoch, self._quorum_epoch) + 1
        state = QuorumState(self._settings.node_id, self.epoch)
        try:
            self._files.write_atomically(self.directory / QUORUM_STATE_FILE, state.encode())
        except OSError as error:
            if not is_full(error):
                raise
            logger.warning(
                "%s stays as it is: %s; the next start writes it", self.directory / QUORUM_STATE_FILE, error.strerror
            )
        self.log.start_leader_epoch(self.epoch)
        batch = leader_change_batch(
            base_offset=self.log.log_end_offset,
            epoch=self.epoch,
            now_ms=self._clock.wall_ms(),
            node_id=self._settings.node_id,
        )
        self._write(batch)
        self._sync_now()
        self.commit()

    def append(self, records: Sequence[MetadataRecord]) -> None:
        """Write `records` as one batch; they count after a sync and `commit`. Raises KafkaError and writes nothing."""
        if self._appended:
            raise RuntimeError("a change is appended before the last one was committed")
        now_ms = self._clock.wall_ms()
        self._write(encode_data_batch(records, base_offset=self.log.log_end_offset, epoch=self.epoch, now_ms=now_ms))
        self._appended = list(records)

    def append_now(self, records: Sequence[MetadataRecord]) -> None:
        """Append, sync and commit, blocking: for the start and the stop. Raises KafkaError or OSError."""
        self.append(records)
        self._sync_now()
        self.commit()

    def commit(self) -> None:
        """Replay the appended records after their sync."""
        records, self._appended = self._appended, []
        for record in records:
            self.image.replay(record)
        self.image.end_offset = self.log.log_end_offset
        self.image.epoch = self.epoch
        self._records_since_snapshot += len(records)

    def discard(self) -> None:
        """Drop appended records that could not be synced. The log has failed and accepts nothing more.

        The next start may find them nevertheless.
        """
        self._has_discarded_deletion = self.has_unsynced_deletion
        self._appended = []

    @property
    def has_unsynced_change(self) -> bool:
        """Whether a change was appended and is neither committed nor discarded."""
        return bool(self._appended)

    @property
    def has_unsynced_deletion(self) -> bool:
        """Whether that change, or one whose sync has failed, removes topics."""
        return self._has_discarded_deletion or any(isinstance(record, RemoveTopicRecord) for record in self._appended)

    @property
    def snapshot_is_due(self) -> bool:
        """Whether a snapshot is due: by bytes since the last one, or by time if anything has changed since."""
        if self._appended or self._records_since_snapshot == 0 or self.image.transaction is not None:
            return False
        interval_ms = self._settings.snapshot_max_interval_ms
        return self._bytes_since_snapshot >= self._settings.snapshot_max_bytes or (
            interval_ms > 0 and self._clock.monotonic_ms() >= self._last_snapshot_ms + interval_ms
        )

    @property
    def is_long(self) -> bool:
        """Whether the log after the newest snapshot has grown so much that the next one may not wait."""
        return self._bytes_since_snapshot >= LONG_LOG_SNAPSHOTS * self._settings.snapshot_max_bytes

    def removed_topics(self) -> Mapping[UUID, str]:
        """Ids of the topics whose removal is in the log, with their names; unknown names are empty.

        Also reads the part of the log before the newest snapshot that is kept. For a start that has found a directory
        of an unknown topic.
        """
        removed = dict.fromkeys(_removed_before(self._files, self.directory, self.image.end_offset), "")
        return removed | self.image.removed_topics

    def begin_snapshot(self, pause: Pause = no_pause) -> Snapshot:
        """Begin a snapshot of the image as it is now, to be encoded and written. Until `end_snapshot` none is due.

        `pause` is called between two batches of it, in the thread that encodes it.
        """
        snapshot_id = SnapshotId(self.image.end_offset, self.image.epoch)
        encode = partial(
            encode_snapshot,
            records_of(self.image),
            epoch=snapshot_id.epoch,
            now_ms=self._clock.wall_ms(),
            last_contained_log_timestamp=self._last_timestamp,
            voters=self._voters(),
            pause=pause,
        )
        self._bytes_since_snapshot = self._records_since_snapshot = 0
        self._last_snapshot_ms = self._clock.monotonic_ms()
        return Snapshot(self.directory / snapshot_id.file_name, encode)

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot to the disk, completely or not at all. Blocks, may run in any thread. Raises OSError."""
        content = snapshot.encode()
        self._files.write_atomically(snapshot.path, content)
        snapshot.size_bytes = len(content)

    def end_snapshot(self, snapshot: Snapshot) -> None:
        """Drop older snapshots once this one is on disk, and move the log start to the offset that the oldest kept one
        needs; retention deletes the segments before it. Raises OSError, KafkaError.
        """
        self.snapshots_taken += 1
        logger.info("metadata snapshot %s: %d bytes", snapshot.path.name, snapshot.size_bytes)
        snapshots = list_snapshots(self._files, self.directory)
        for old in snapshots[:-SNAPSHOTS_KEPT]:
            self._files.unlink(self.directory / old.file_name)
        self.log.roll(self._clock.wall_ms())
        if len(snapshots) >= SNAPSHOTS_KEPT:
            self.log.delete_records(snapshots[-SNAPSHOTS_KEPT].end_offset)

    def _found(self) -> None:
        """Create the files that a new directory needs; nothing if all exist."""
        files = self._files
        if not files.exists(self.directory):
            files.make_directory(self.directory)
            files.sync_directory(self._settings.root)
        if not self.is_new:
            return
        now_ms = self._clock.wall_ms()
        if not files.exists(self._settings.root / BOOTSTRAP_FILE):
            bootstrap = encode_snapshot(bootstrap_records(), epoch=0, now_ms=now_ms, last_contained_log_timestamp=0)
            files.write_atomically(self._settings.root / BOOTSTRAP_FILE, bootstrap)
        voters = self.directory / VOTERS_SNAPSHOT.file_name
        if not files.exists(voters):
            content = encode_snapshot([], epoch=0, now_ms=now_ms, last_contained_log_timestamp=0, voters=self._voters())
            files.write_atomically(voters, content)

    def _voters(self) -> VotersRecord:
        settings = self._settings
        return single_voter(settings.node_id, settings.directory_id, settings.voter_endpoints)

    def _write(self, batch: bytearray) -> None:
        now_ms = self._clock.wall_ms()
        result = self.log.append_internal(batch, now_ms)
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, result.error_message or "the metadata log takes no more")
        self._last_timestamp = now_ms
        self._bytes_since_snapshot += len(batch)

    def _sync_now(self) -> None:
        ticket = self.log.begin_sync()
        if ticket is None:
            return
        try:
            ticket.run()
        except OSError as error:
            self.log.fail(error)
            self.discard()
            raise
        self.log.end_sync(ticket)


def bootstrap_records(known: Collection[str] = ()) -> list[MetadataRecord]:
    """The records that a controller writes into an empty log: the levels of its features, metadata.version first.

    Without the features in `known`, which a log that is not empty already has.
    """
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in INITIAL_LEVELS.items()
        if name not in known
    ]


def _removed_before(files: Files, directory: Path, end_offset: int) -> Iterator[UUID]:
    """Ids of the topics that the log removes below `end_offset`, in the part that is kept and readable."""
    offsets = segment_offsets(files, directory)
    if not offsets:
        return
    with contextlib.suppress(MetadataError, OSError):  # batches that a snapshot has replaced may be damaged
        for header, batch in scan_log(files, directory, offsets[0]):
            if header.base_offset >= end_offset:
                return
            if not header.is_control:
                records = decode_data_batch(batch)
                yield from (record.topic_id for record in records if isinstance(record, RemoveTopicRecord))
