"""The catalog of this broker: topics, their configurations and identities. Changes are made one after another.

The catalog is the only owner of `__cluster_metadata-0`. A change is a function of the image that returns records. The
records of one request are one batch. Only when that batch is synced are they replayed into the image, and only then is
the change answered. So the image never contains anything that a crash could undo, and a running broker and a restart
share one code path: replay.

Changes run one after another (`metadata/changes.py`): while one waits for its sync the next waits in memory. Hence at
most one batch of the metadata log is ever unsynced, and a bad batch that is not the last one is real damage.

Order on disk (docs/decisions/metadata-is-kafkas-log.md): create = synced record, then directories
(`partition_creation.py`); delete = synced record, then the rename to `-delete` (`partition_removal.py`). A creation is
answered when every partition accepts requests, a deletion when every directory is renamed; other requests run in
between (`topic_changes.py`).

Callers: the composition root (`open`, `close`), chores, API handlers, all on the broker's one thread. Nothing here
knows sockets or an event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.catalog.partition_creation import PartitionCreation
from ottla.broker.catalog.partition_removal import PartitionRemoval
from ottla.broker.catalog.settings import Settings
from ottla.broker.catalog.topic import TopicIndex
from ottla.broker.catalog.topic_changes import TopicChanges
from ottla.broker.metadata.change_requests import NewPartitions, NewTopic, TopicResult
from ottla.broker.metadata.changes import ChangeQueue
from ottla.broker.metadata.features import (
    NEWEST_TRANSACTION_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION_FEATURE,
)
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.journal import Journal, Snapshot
from ottla.broker.metadata.opening import (
    journal_settings,
    look_at_metadata,
    metadata_log_directory,
    open_metadata_log,
    register,
    wanted_logs,
    warn_about_carried_records,
    write_partition_changes,
)
from ottla.broker.metadata.placement import emptiest_directory
from ottla.broker.metadata.plans import (
    Rules,
)
from ottla.broker.metadata.reading import MetadataReading
from ottla.broker.metadata.registration import NO_PORTS, Registration
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import MetadataRecord, ProducerIdsRecord
from ottla.storage.formats.kafka_uuid import random_uuid
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.producers.producer_snapshots import no_pause

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.workers import Workers
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.directories.manager import LogManager
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log
    from ottla.storage.producers.producer_snapshots import Pause

__all__ = ["Catalog", "NewPartitions", "NewTopic", "TopicResult"]

logger = logging.getLogger(__name__)

PRODUCER_IDS_PER_BLOCK = 1_000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""


class Catalog(TopicChanges):
    """Topics and identities of this broker; see the module.

    `cluster_id` and `node_id` are set from the start, `node_epoch` (the broker epoch) by `open`.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        files: Files,
        clock: Clock,
        log_manager: LogManager,
        syncer: GroupSyncer,
        workers: Workers,
        make_partition: Callable[[str, int, Log], Partition],
        metrics: Metrics | None = None,
        new_id: Callable[[], UUID] = random_uuid,
        later: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Without `later` everything is done immediately: without a loop, no other request waits for its turn."""
        super().__init__(
            TopicIndex(config),
            log_manager,
            PartitionRemoval(log_manager, syncer, workers, later),
            Rules(config, config.node_id, new_id, partial(emptiest_directory, log_manager)),
            metrics,
        )
        self.topics = self._topic_index.by_name
        self.topics_by_id = self._topic_index.by_id
        self.find_topic = self._topic_index.find
        self.cluster_id = ""
        self.node_id = config.node_id
        self.node_epoch = -1
        self.leaves_deletion = False
        """Whether `close` has left a deletion that was written and not synced: its directories were not renamed."""
        self.made_at_start: list[TopicPartition] = []
        """Directories that were missing at the start and were created."""
        self._config = config
        self._files = files
        self._clock = clock
        self._syncer = syncer
        self._workers = workers
        self._make_partition = make_partition
        self._new_id = new_id
        self._later = later
        self._reading: MetadataReading | None = None
        self.settings = Settings(self, config)
        """The settings that clients change while the broker runs: configurations, quotas, features."""

    # --- life ----------------------------------------------------------------------------------------------------

    def look(self, directories: Sequence[LogDirectory]) -> None:
        """Read the metadata in the directories, which are locked and not changed yet.

        Blocks. Raises MetadataError, StorageError (one line for people) when a start cannot continue with them.
        """
        self._reading = look_at_metadata(self._files, self._config, directories)

    def open(self, bound_ports: Mapping[str, int] = NO_PORTS) -> None:
        """Use what `look` has read (or create the metadata), register this run, open every log. After
        `log_manager.open_directories()`. `bound_ports`: see `Registration.records`.

        Blocks; call before serving. Raises MetadataError (one line for people) when the metadata cannot be used.
        """
        self.cluster_id = self._log_manager.cluster_id
        directories = self._log_manager.directories
        directory = metadata_log_directory(self._files, directories)
        settings = journal_settings(self._config, directory)
        open_log = partial(open_metadata_log, self._log_manager, self._config)
        self._journal = Journal(self._files, self._clock, settings, open_log)
        try:
            self._journal.load(self._reading or MetadataReading())
            self._reading = None
            self.settings.load()
            self._journal.begin_epoch()
            self.node_epoch = register(self._journal, self._config, directories, self._new_id(), bound_ports)
            warn_about_carried_records(self._journal.image)
            self._creation = PartitionCreation(
                self._journal.image,
                self._topic_index,
                self._log_manager,
                self._workers,
                self._make_partition,
                self._later,
            )
            self._open_partitions()
        except (OSError, KafkaError) as error:
            raise MetadataError(f"the metadata log {self._journal.directory} cannot be written: {error}") from error
        self._queue = ChangeQueue(self._journal, self._syncer)

    def close(self) -> None:
        """Finish deletions, and record in the metadata that the broker stops. Blocks; before `log_manager.close()`,
        which closes all logs.

        Changes that still wait are dropped unanswered: no client is connected any more.
        """
        self._removal.finish()
        self.leaves_deletion = self._journal.has_unsynced_deletion
        if self._journal.has_unsynced_change or self._journal.log.error is not None:
            return
        try:
            self._journal.append_now([Registration(self.node_id, self.node_epoch).farewell()])
        except (OSError, KafkaError) as error:
            logger.warning("the clean stop could not be written to the metadata log: %s", error)

    # --- look-ups ------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition; None when no partition has that name and index, or its directory is offline."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that `partition` does not return: offline, or unknown."""
        found = self.topics.get(topic)
        if found is not None and 0 <= index < len(found.partitions):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def finalized_features(self) -> tuple[int, dict[str, int]]:
        """(epoch, levels) for ApiVersions: the metadata offset of the levels, and the level by feature name.

        A feature that Kafka has finalized in this directory and that Ottla lacks is left out: clients would use it.
        """
        image = self._journal.image
        levels = {name: level for name, level in image.features.items() if level > 0 and name in SUPPORTED_FEATURES}
        return max(image.end_offset - 1, 0), levels

    @property
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`, at most the highest that Ottla supports."""
        return min(self._journal.image.features.get(TRANSACTION_VERSION_FEATURE, 0), NEWEST_TRANSACTION_VERSION)

    @property
    def image(self) -> MetadataImage:
        """The state that the metadata log describes; read-only for callers."""
        return self._journal.image

    @property
    def metadata_log(self) -> Log:
        """The log of the image; read-only for callers."""
        return self._journal.log

    @property
    def metadata_end_offset(self) -> int:
        """The next offset of the metadata log."""
        return self._journal.image.end_offset

    @property
    def waiting_changes(self) -> int:
        """The number of changes that wait for the disk."""
        return len(self._queue)

    @property
    def snapshots_taken(self) -> int:
        """The number of snapshots written since the start."""
        return self._journal.snapshots_taken

    # --- changes -------------------------------------------------------------------------------------------------

    def change(
        self,
        plan: Callable[[MetadataImage], Sequence[MetadataRecord]],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Run `plan` in its turn; call `done` once its records are synced and replayed, or with the error."""
        self._queue.submit(plan, done)

    def allocate_producer_ids(self, done: Callable[[range | None], None]) -> None:
        """Take the next block of producer ids; `done` gets it once it is synced, or None when the disk failed."""
        block = range(0)

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal block
            first = image.next_producer_id
            block = range(first, first + PRODUCER_IDS_PER_BLOCK)
            return [
                ProducerIdsRecord(broker_id=self.node_id, broker_epoch=self.node_epoch, next_producer_id=block.stop)
            ]

        def allocated(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("no producer ids could be taken: %s", error)
            done(block if error is None else None)

        self._queue.submit(plan, allocated)

    # --- chores --------------------------------------------------------------------------------------------------

    def make_missing(self) -> int:
        """Create the directories that a full disk prevented. Return the number of partitions that are served now.

        Also continues deletions that wait for a descriptor.
        """
        self._removal.settle_again()
        made = self._creation.make_missing()
        self._note_directories()
        return made

    def begin_snapshot(self, pause: Pause = no_pause) -> Snapshot | None:
        """A snapshot to be written if one is due: `write_snapshot` in any thread, then `end_snapshot`."""
        journal = self._journal
        if not journal.log.takes_writes or not journal.snapshot_is_due:
            return None
        if not self._removal.is_settled and not journal.is_long:
            return None  # a start could no longer recognise the directories of deleted topics
        return journal.begin_snapshot(pause)

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Encode it and write it to the disk. Blocks, may run in any thread. Raises OSError."""
        self._journal.write_snapshot(snapshot)

    def end_snapshot(self, snapshot: Snapshot) -> None:
        """The snapshot is on disk: drop what it replaces; retention deletes segments of `metadata_log`. Raises OSError,
        KafkaError.
        """
        self._journal.end_snapshot(snapshot)

    # --- start ---------------------------------------------------------------------------------------------------

    def _open_partitions(self) -> None:
        image = self._journal.image
        for state in image.topics.values():
            self._topic_index.add(state, image.topic_configs(state.name))
        configs = {name: topic.config for name, topic in self.topics.items()}
        loaded = self._log_manager.open_logs(wanted_logs(image, configs), self._journal.removed_topics)
        self._forget_removed()
        self.made_at_start = loaded.made
        write_partition_changes(self._journal, self._log_manager, self.node_id, new=set(loaded.made))
        for state in image.topics.values():
            topic = self.topics[state.name]
            topic.partitions = [None] * len(state.partitions)
            for index in state.partitions:
                log = self._log_manager.get(state.name, index)
                if log is None:
                    continue
                try:
                    self._creation.serve(topic, index, log)
                except OSError as error:
                    # It may not be served in an epoch that is not on its disk; partitions of other directories may.
                    logger.error("%s-%d is offline, its leader epoch cannot be stored: %s", state.name, index, error)
        self._topic_index.say_what_is_not_compacted(self.topics.values())
