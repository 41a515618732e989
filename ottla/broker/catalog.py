"""What exists on this broker: topics, their partitions, configurations and identities.

The catalog is the one owner of `__cluster_metadata-0`. A change is a function of the image that yields records; the
records of one request are one batch, and only when that batch is synced are they replayed into the image, and only
then is the change answered. So the image never holds what a crash could take back, and live running and restarting
share one code path: replay.

Changes run one after another (`metadata/changes.py`): while one waits for its sync the next waits in memory. Hence at
most one batch of the metadata log is ever unsynced, and a bad batch that is not the last one is damage, not bad luck.

Order on disk (decisions.md 14): create = synced record, then directories; delete = synced record, then the rename to
`-delete` (`partition_removal.py`). A creation is answered when every partition accepts requests; partitions are made a
few at a time, and other requests run in between. Directories that could not be made (a full disk) are made by
`make_missing` or at the next start; until then their partitions are offline.

Who may call: the composition root (`open`, `close`), chores, API handlers. All on the broker's one thread. Nothing
here knows of sockets or of an event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.metadata.changes import ChangeQueue
from ottla.broker.metadata.features import SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataError, MetadataImage, TopicState
from ottla.broker.metadata.journal import METADATA_TOPIC_ID, Journal, Snapshot
from ottla.broker.metadata.opening import (
    journal_settings,
    metadata_home,
    refuse_orphans,
    register,
    wanted_logs,
    write_partition_changes,
)
from ottla.broker.metadata.plans import Rules, TopicPlan, plan_partitions, plan_removal, plan_topics
from ottla.broker.metadata.registration import Registration, partition_change
from ottla.broker.metadata.wishes import NewPartitions, NewTopic, TopicOutcome, refused
from ottla.broker.partition_removal import PartitionRemoval
from ottla.broker.settings import Settings
from ottla.config.errors import ConfigError
from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import MetadataRecord, ProducerIdsRecord
from ottla.storage.kafka_uuid import random_uuid
from ottla.storage.layout import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.disk import GroupSyncer, Workers
    from ottla.broker.metrics import Metrics
    from ottla.broker.partition import Partition
    from ottla.config.broker import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.files import Files
    from ottla.storage.log import Log
    from ottla.storage.manager import LogManager

__all__ = ["Catalog", "MetadataError", "NewPartitions", "NewTopic", "Topic", "TopicOutcome"]

logger = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 1
"""Partitions that are made before others have their turn: each waits for the disk more than once."""
PRODUCER_IDS_PER_BLOCK = 1_000
"""Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""
METADATA_LOG_OVERRIDES = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str((1 << 31) - 1),
    "segment.ms": str((1 << 63) - 1),
    "max.message.bytes": str((1 << 31) - 1),
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "ottla.acks.all": "sync",
}
"""The metadata log's own configuration, whatever the broker's defaults are: it is cut by snapshots only."""

Outcomes = Callable[[list[TopicOutcome]], None]


class Topic:
    """A topic as requests see it. `partitions[i]` is partition i, None while its directory is offline."""

    __slots__ = ("config", "id", "is_internal", "name", "overrides", "partitions")

    def __init__(self, name: str, topic_id: UUID, overrides: Mapping[str, str], config: TopicConfig) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: list[Partition | None] = []
        self.config = config
        self.overrides = dict(overrides)
        self.is_internal = name in INTERNAL_TOPICS


class Catalog:
    """Topics and identities of this broker; see the module's text for what holds.

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
        """Without `later` everything is done at once: where there is no loop, nobody else waits for a turn."""
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.cluster_id = ""
        self.node_id = config.node_id
        self.node_epoch = -1
        self.topics_epoch = 0
        """Grows whenever a topic is created, grown or deleted."""
        self.on_topics_changed: Callable[[Collection[str]], None] | None = None
        """Told the names of deleted topics, none where topics were created or grown; before the change is answered."""
        self.made_at_start: list[TopicPartition] = []
        """Directories that were missing at the start and have been made."""
        self._config = config
        self._files = files
        self._clock = clock
        self._log_manager = log_manager
        self._syncer = syncer
        self._make_partition = make_partition
        self._metrics = metrics
        self._new_id = new_id
        self._later = later
        self._removal = PartitionRemoval(log_manager, syncer, workers, later)
        self._unmade: set[TopicPartition] = set()
        self._retiring: Counter[str] = Counter()
        """Deleted topics with so many partitions whose directories are not renamed yet."""
        self._delayed: list[Callable[[], None]] = []
        """Creations of topics of the same names."""
        self._rules = Rules(config, config.node_id, new_id, self._choose_directory)
        self.settings = Settings(self, config)
        """What clients change while the broker runs: configurations, quotas, features."""

    # --- life ----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Load (or found) the metadata, register this run, open every log. After `log_manager.open_directories()`.

        Blocks; call before serving. Raises MetadataError (one line for people) when the metadata cannot be used.
        """
        self.cluster_id = self._log_manager.cluster_id
        directories = self._log_manager.directories
        home = metadata_home(self._files, directories)
        settings = journal_settings(self._config, home)
        self._journal = Journal(self._files, self._clock, settings, self._open_metadata_log)
        if self._journal.is_new:
            refuse_orphans(self._files, directories, self._journal)
        try:
            self._journal.load()
            self.settings.load()
            self._journal.begin_epoch()
            self.node_epoch = register(self._journal, self._config, directories, self._new_id())
            self._warn_about_carried_records()
            self._open_partitions()
        except (OSError, KafkaError) as error:
            raise MetadataError(f"the metadata log {self._journal.directory} cannot be written: {error}") from error
        self._queue = ChangeQueue(self._journal, self._syncer)

    def close(self) -> None:
        """Finish deletions, and say in the metadata that the broker stops. Blocks; before `log_manager.close()`, which
        closes all logs.

        Changes that still wait are dropped unanswered: nobody is connected any more.
        """
        self._removal.finish()
        if self._journal.has_unsynced_change or self._journal.log.error is not None:
            return
        try:
            self._journal.append_now([Registration(self.node_id, self.node_epoch).farewell()])
        except (OSError, KafkaError) as error:
            logger.warning("the stop could not be written to the metadata log: %s", error)

    # --- look-ups ------------------------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, or None when there is none of that name and index, or its directory is offline."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that `partition` has not got: offline, or unknown."""
        found = self.topics.get(topic)
        if found is not None and 0 <= index < len(found.partitions):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def finalized_features(self) -> tuple[int, dict[str, int]]:
        """(epoch, levels) for ApiVersions: the metadata offset that the levels hold at, and level by feature name.

        A feature that Kafka has finalized in this directory and that we do not have is left out: clients would use it.
        """
        image = self._journal.image
        levels = {name: level for name, level in image.features.items() if level > 0 and name in SUPPORTED_FEATURES}
        return max(image.end_offset - 1, 0), levels

    def supported_features(self) -> dict[str, tuple[int, int]]:
        """(least, most) level by feature name, for ApiVersions."""
        return dict(SUPPORTED_FEATURES)

    @property
    def image(self) -> MetadataImage:
        """What the metadata log adds up to; to be read only."""
        return self._journal.image

    @property
    def metadata_log(self) -> Log:
        """The log behind the image; to be read only."""
        return self._journal.log

    @property
    def metadata_end_offset(self) -> int:
        """The next offset of the metadata log."""
        return self._journal.image.end_offset

    @property
    def waiting_changes(self) -> int:
        """Changes that wait for the disk."""
        return len(self._queue)

    @property
    def snapshots_taken(self) -> int:
        """Snapshots written since the start."""
        return self._journal.snapshots_taken

    # --- changes -------------------------------------------------------------------------------------------------

    def change(
        self,
        plan: Callable[[MetadataImage], Sequence[MetadataRecord]],
        done: Callable[[KafkaError | None], None],
    ) -> None:
        """Run `plan` when it is its turn; `done` once its records are synced and replayed, or with what went wrong."""
        self._queue.submit(plan, done)

    def create_topics(self, wishes: Sequence[NewTopic], done: Outcomes, *, validate_only: bool = False) -> None:
        """Create topics; `done` is called once, when all that were created accept requests.

        With `validate_only` everything is checked and nothing created.
        """
        plan = partial(plan_topics, wishes=wishes, rules=self._rules, validate_only=validate_only)
        self._change(plan, self._created, done, [wish.name for wish in wishes])

    def create_partitions(
        self, wishes: Sequence[NewPartitions], done: Outcomes, *, validate_only: bool = False
    ) -> None:
        """Grow topics; `done` is called once, when the new partitions accept requests."""
        plan = partial(plan_partitions, wishes=wishes, rules=self._rules, validate_only=validate_only)
        self._change(plan, self._created, done, [wish.name for wish in wishes])

    def delete_topics(self, targets: Sequence[str | UUID], done: Outcomes) -> None:
        """Delete topics by name or id; `done` is called once, when the removal is synced and the files are renamed."""
        plan = partial(plan_removal, targets=targets, rules=self._rules)
        self._change(plan, self._removed, done, targets)

    def auto_create(self, names: Sequence[str], done: Outcomes) -> None:
        """Create topics with the broker's defaults; one that exists by then counts as success.

        Internal topics are not created this way: their coordinators know better what they must be like.
        """

        def created(outcomes: list[TopicOutcome]) -> None:
            done([outcome.as_existing() for outcome in outcomes])

        wished = [name for name in dict.fromkeys(names) if name not in INTERNAL_TOPICS]
        self.create_topics([NewTopic(name) for name in wished], created)

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
        """Make the directories that a full disk did not let be made; returns how many partitions came to life."""
        made = 0
        for topic_partition in sorted(self._unmade):
            topic = self.topics[topic_partition.topic]
            made += self._make(topic, topic_partition.partition)
        if made:
            self._note_directories()
        return made

    def begin_snapshot(self) -> Snapshot | None:
        """A snapshot to be written if one is due: `write_snapshot` in any thread, then `end_snapshot`."""
        return self._journal.begin_snapshot() if self._journal.snapshot_is_due else None

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Bring it to the disk. Blocks, may run in any thread. Raises OSError."""
        self._journal.write_snapshot(snapshot)

    def end_snapshot(self, snapshot: Snapshot) -> None:
        """It is on disk: drop what it replaces. Raises OSError."""
        self._journal.end_snapshot(snapshot)

    # --- start ---------------------------------------------------------------------------------------------------

    def _open_metadata_log(self) -> Log:
        config = TopicConfig.resolve(METADATA_LOG_OVERRIDES, self._config)
        return self._log_manager.open_log(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID, config)

    def _warn_about_carried_records(self) -> None:
        kinds = Counter(type(record).__name__ for record in self._journal.image.carried)
        for kind, count in kinds.items():
            logger.warning("the metadata holds %d %s, which this version keeps and does not act on", count, kind)

    def _open_partitions(self) -> None:
        image = self._journal.image
        for state in image.topics.values():
            self._add_topic(state)
        configs = {name: topic.config for name, topic in self.topics.items()}
        loaded = self._log_manager.open_logs(wanted_logs(image, configs, self.node_id))
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
                    self._serve(topic, index, log)
                except OSError as error:
                    # It may not serve in an epoch that is not on its disk; the other directories' partitions may.
                    logger.error("%s-%d is offline, its leader epoch cannot be stored: %s", state.name, index, error)
        self._say_what_is_not_compacted(self.topics.values())

    # --- applying a change -----------------------------------------------------------------------------------------

    def _change(
        self,
        plan: Callable[[MetadataImage], TopicPlan],
        apply: Callable[[list[TopicOutcome], Outcomes], None],
        done: Outcomes,
        targets: Sequence[str | UUID],
    ) -> None:
        """Plan in turn, write, sync, replay, then `apply(outcomes, done)`; a failed disk refuses every target."""
        planned = TopicPlan()

        def run(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            planned = plan(image)
            return planned.records

        def finish(error: KafkaError | None) -> None:
            if error is not None:
                done([refused(target, error) for target in targets])
            elif planned.records:
                apply(planned.outcomes, done)
            else:
                done(planned.outcomes)

        self._queue.submit(run, finish)

    def _created(self, outcomes: list[TopicOutcome], done: Outcomes) -> None:
        """Make the directories of what the image has and we have not, some at a time."""
        if any(outcome.name in self._retiring for outcome in outcomes):
            self._delayed.append(partial(self._created, outcomes, done))
            return
        self._run_some(self._creation(outcomes, done))

    def _run_some(self, steps: Iterator[None]) -> None:
        """Partitions of one stretch; the next ones when others have had their turn."""
        for number, _ in enumerate(steps, 1):
            if number == PARTITIONS_PER_STEP and self._later is not None:
                self._later(partial(self._run_some, steps))
                return

    def _creation(self, outcomes: list[TopicOutcome], done: Outcomes) -> Iterator[None]:
        image = self._journal.image
        results = []
        for outcome in outcomes:
            state = None if outcome.failed or outcome.name is None else image.topics.get(outcome.name)
            if state is None:
                results.append(outcome)
                continue
            topic = self.topics.get(state.name) or self._add_topic(state)
            self._say_what_is_not_compacted([topic] if not topic.partitions else [])
            first = len(topic.partitions)
            topic.partitions.extend([None] * (len(state.partitions) - first))
            is_usable = True
            for index in range(first, len(state.partitions)):
                if self.topics.get(topic.name) is not topic:
                    is_usable = False  # deleted between two steps
                    break
                is_usable &= self._make(topic, index)
                yield
            results.append(outcome if is_usable else outcome.as_unusable())
        self._topics_changed(())
        done(results)

    def _removed(self, outcomes: list[TopicOutcome], done: Outcomes) -> None:
        """End the partitions, and have their directories renamed."""
        deleted: list[str] = []
        doomed: list[Partition] = []
        for outcome in outcomes:
            topic = None if outcome.failed else self.topics_by_id.pop(outcome.id, None)
            if topic is None:
                continue
            del self.topics[topic.name]
            deleted.append(topic.name)
            logger.info("topic %s is deleted", topic.name)
            for index, partition in enumerate(topic.partitions):
                self._unmade.discard(TopicPartition(topic.name, index))
                if partition is not None:
                    self._retiring[topic.name] += 1
                    doomed.append(partition)
                    partition.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"))
            if self._metrics is not None:
                self._metrics.forget_topic(topic.name)
        if deleted:
            self._topics_changed(deleted)
        if not doomed:
            done(outcomes)
        waiting = len(doomed)

        def gone(partition: Partition) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting == 0:
                done(outcomes)
            self._note_gone(partition.topic)

        self._removal.remove(doomed, gone)

    def _note_gone(self, topic: str) -> None:
        """A partition's old directory is out of the way: with the last one, topics of that name may be made."""
        self._retiring[topic] -= 1
        if self._retiring[topic]:
            return
        del self._retiring[topic]
        delayed, self._delayed = self._delayed, []
        for create in delayed:
            create()

    def _topics_changed(self, deleted: Collection[str]) -> None:
        self.topics_epoch += 1
        if self.on_topics_changed is not None:
            self.on_topics_changed(deleted)

    def _add_topic(self, state: TopicState) -> Topic:
        overrides = self._journal.image.topic_configs(state.name)
        try:
            config = TopicConfig.resolve(overrides, self._config)
        except ConfigError as error:
            raise MetadataError(f"the configuration of topic {state.name} cannot be used: {error}") from error
        topic = Topic(state.name, state.id, overrides, config)
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        return topic

    def _make(self, topic: Topic, index: int) -> bool:
        """Make one partition's directory and serve it; False when the disk does not let us."""
        state = self._journal.image.topics[topic.name].partitions[index]
        try:
            log = self._log_manager.create_log(
                topic.name, index, topic.id, topic.config, directory_id=state.directories[0]
            )
            self._serve(topic, index, log)
        except OSError as error:
            self._unmade.add(TopicPartition(topic.name, index))
            logger.error("%s-%d is offline, its directory cannot be made: %s", topic.name, index, error)
            return False
        self._unmade.discard(TopicPartition(topic.name, index))
        return True

    def _serve(self, topic: Topic, index: int, log: Log) -> None:
        epoch = self._journal.image.topics[topic.name].partitions[index].leader_epoch
        if log.leader_epoch != epoch:
            log.start_leader_epoch(epoch)
        partition = self._make_partition(topic.name, index, log)
        partition.leader_epoch = epoch
        topic.partitions[index] = partition

    def _note_directories(self) -> None:
        """Write down partitions that were made in another directory than was planned."""

        def plan(image: MetadataImage) -> Sequence[MetadataRecord]:
            changes = []
            for state in image.topics.values():
                for index, partition in state.partitions.items():
                    home = self._log_manager.directory_of(state.name, index)
                    if home is not None:
                        change = partition_change(
                            state.id, index, partition, node_id=self.node_id, elect=False, directory_id=home.id
                        )
                        changes.append(change)
            return [change for change in changes if change is not None]

        def noted(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("where partitions were made could not be written down: %s", error)

        self._queue.submit(plan, noted)

    def _choose_directory(self, counts: Mapping[UUID, int]) -> UUID:
        online = [one.id for one in self._log_manager.directories if one.is_online and one.id is not None]
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory takes writes")
        return min(online, key=lambda directory_id: counts.get(directory_id, 0))

    def _say_what_is_not_compacted(self, topics: Iterable[Topic]) -> None:
        names = sorted(topic.name for topic in topics if "compact" in topic.config.cleanup_policy)
        if names and not self._config.log_cleaner_enable:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            logger.warning("cleanup.policy=compact of %s: log.cleaner.enable is false, every record is kept", shown)
