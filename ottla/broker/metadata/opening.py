"""The steps of a start: find the metadata, register, list the wanted logs, and write partition changes.

Called by `Catalog.open` only, in this order, before anything is served, so these functions may block.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.metadata.features import (
    FIRST_METADATA_VERSION_WITH_GROUP_VERSION,
    FIRST_METADATA_VERSION_WITH_SHARE_GROUPS,
    GROUP_VERSION_FEATURE,
    SHARE_VERSION_FEATURE,
    STREAMS_VERSION_FEATURE,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION_FEATURE,
)
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.journal import METADATA_TOPIC_ID, Journal, JournalSettings, bootstrap_records
from ottla.broker.metadata.metadata_version import METADATA_VERSION, METADATA_VERSION_FEATURE
from ottla.broker.metadata.placement import opened_partitions
from ottla.broker.metadata.reading import METADATA_DIRECTORY, MetadataReading, read_metadata, refuse_larger_clusters
from ottla.broker.metadata.registration import NO_PORTS, Registration, partition_change
from ottla.broker.profiles.profiles import profile_named
from ottla.config.topic import TopicConfig
from ottla.protocol.stored.metadata import AbortTransactionRecord, MetadataRecord
from ottla.storage.directories.directory_shapes import refuse_partitions_without_metadata
from ottla.storage.directories.log_placement import WantedLog, choose_directory
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.directories.manager import LogManager
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

CHANGES_PER_START_BATCH = 5_000
"""The number of partition changes of a start in one batch."""
DEFAULT_CONTROLLER = ("CONTROLLER", "localhost", 9093)
"""The endpoint of the one voter if no controller listener is configured: Kafka requires one, no client uses it."""
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
"""The metadata log's own configuration, whatever the broker's defaults are: only snapshots delete its segments."""


def look_at_metadata(files: Files, config: BrokerConfig, directories: Sequence[LogDirectory]) -> MetadataReading | None:
    """Read the metadata in the directories before anything is changed; None if none of them has a metadata log.

    Raises MetadataError, StorageError: a start cannot continue with these directories, and has written nothing.
    """
    log_directories = [
        one for one in directories if not one.is_offline and files.is_directory(one.path / METADATA_DIRECTORY)
    ]
    if not log_directories:
        refuse_partitions_without_metadata(files, [one.path for one in directories])  # once more, under the locks
        return None
    wanted = WantedLog(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID, _metadata_config(config))
    try:
        choose_directory(files, wanted, log_directories)
    except BrokenFile as error:
        path = log_directories[0].path
        raise MetadataError(f"{error}; `ottla log verify --repair {path}` says and does what can be done") from error
    reading = read_metadata(files, log_directories[0].path, was_clean=log_directories[0].was_clean)
    refuse_larger_clusters(reading.image, config.node_id)
    return reading


def metadata_log_directory(files: Files, directories: Sequence[LogDirectory]) -> LogDirectory:
    """The directory with the metadata log; the first of `log.dirs` if none has it. Raises MetadataError."""
    for directory in directories:
        if not directory.is_offline and files.exists(directory.path / METADATA_DIRECTORY):
            return directory
    first = directories[0]
    if first.is_offline:
        raise MetadataError(f"the metadata log may be in {first.path}, which is offline: {first.error}")
    return first


def journal_settings(config: BrokerConfig, directory: LogDirectory) -> JournalSettings:
    """The part of the configuration that the journal needs."""
    controllers = [(one.name, one.host or "localhost", one.port) for one in config.controller_listeners]
    if directory.id is None:
        raise MetadataError(f"{directory.path} has no directory.id")
    return JournalSettings(
        root=directory.path,
        node_id=config.node_id,
        directory_id=directory.id,
        snapshot_max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        snapshot_max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        voter_endpoints=tuple(controllers) or (DEFAULT_CONTROLLER,),
    )


def open_metadata_log(log_manager: LogManager, config: BrokerConfig) -> Log:
    """The log of the image, for appending. Raises OSError, StorageError."""
    return log_manager.open_log(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID, _metadata_config(config))


def _metadata_config(config: BrokerConfig) -> TopicConfig:
    return TopicConfig.resolve(METADATA_LOG_OVERRIDES, config)


def register(
    journal: Journal,
    config: BrokerConfig,
    directories: Sequence[LogDirectory],
    incarnation: UUID,
    bound_ports: Mapping[str, int] = NO_PORTS,
) -> int:
    """Write this run's registration, after the records that a new or interrupted log needs. Returns the broker epoch.

    Raises OSError, KafkaError.
    """
    records: list[MetadataRecord] = []
    if journal.image.transaction is not None:
        records.append(AbortTransactionRecord(reason="the controller that began it has stopped"))
    is_new = not journal.image.features and not journal.image.brokers
    known = known_features(journal.image, config.node_id)
    if is_new and STREAMS_VERSION_FEATURE not in profile_named(config.ottla_profile).supported_features(
        SUPPORTED_FEATURES
    ):
        known.add(STREAMS_VERSION_FEATURE)  # the Kafka of the profile could not start on the directory
    records.extend(bootstrap_records(known))
    if is_new and config.ottla_add_scram:
        records.extend(_scram_users(config.ottla_add_scram))
    epoch = journal.log.log_end_offset + len(records)
    ids = [one.id for one in directories if one.id is not None and not one.is_offline]
    journal.append_now(records + Registration(config.node_id, epoch).records(config, incarnation, ids, bound_ports))
    return epoch


def _scram_users(text: str) -> Sequence[MetadataRecord]:
    """The records of the users in a new directory."""
    from ottla.broker.metadata.scram_plans import Upsertion, by_user, plan_scram
    from ottla.config.scram_users import parse_scram_users
    from ottla.scram import NUMBERS

    image, records = MetadataImage(), []
    for user in parse_scram_users(text):
        asked = Upsertion(user.name, NUMBERS[user.mechanism], user.iterations, user.salt, user.salted_password)
        plan = plan_scram(image, by_user([asked]))
        if plan.results[0].error_code:
            raise MetadataError(f"ottla.add.scram: user {user.name}: {plan.results[0].error_message}")
        records += plan.records
        logger.info("user %s begins with a credential of %s", user.name, user.mechanism)
    return records


def known_features(image: MetadataImage, node_id: int) -> set[str]:
    """Features that need no level now: those that have one, and those that the last run offered.

    A level of 0 leaves no other trace: a feature that was offered and has no level was removed, or never finalized.
    """
    last_run = image.brokers.get(node_id)
    offered = set() if last_run is None else {feature.name for feature in last_run.features}
    known = set(image.features) | (offered - {METADATA_VERSION_FEATURE})
    metadata_version = image.features.get(METADATA_VERSION_FEATURE, METADATA_VERSION)
    if metadata_version < FIRST_METADATA_VERSION_WITH_GROUP_VERSION:
        known.add(GROUP_VERSION_FEATURE)  # the Kafka version of the directory refuses it
    if metadata_version < FIRST_METADATA_VERSION_WITH_SHARE_GROUPS:
        known.add(SHARE_VERSION_FEATURE)  # likewise
    if image.features or image.brokers:
        known |= {TRANSACTION_VERSION_FEATURE, STREAMS_VERSION_FEATURE}  # not new: an administrator decides
    return known


def warn_about_carried_records(image: MetadataImage) -> None:
    """Log the types of Kafka's records that this version keeps unchanged and does not act on."""
    kinds = Counter(type(record).__name__ for record in image.carried)
    for kind, count in kinds.items():
        logger.warning("the metadata holds %d %s, which this version keeps and does not act on", count, kind)


def wanted_logs(image: MetadataImage, configs: Mapping[str, TopicConfig]) -> Iterator[WantedLog]:
    """The log of every partition in the image."""
    for state in image.topics.values():
        for index, partition in state.partitions.items():
            directory_id = partition.directories[0] if partition.directories else None
            yield WantedLog(state.name, index, state.id, configs[state.name], directory_id)


def write_partition_changes(
    journal: Journal, log_manager: LogManager, node_id: int, *, new: set[TopicPartition]
) -> None:
    """Write new leader epochs after an unclean stop, and the directories of logs that are not where the metadata say.

    `new` are partitions whose directory was missing and has just been created. They get a new epoch, too: they may have
    existed, and consumers may have seen records that were never synced. Raises OSError, KafkaError.
    """
    changes: list[MetadataRecord] = []
    for topic, index, state, directory in opened_partitions(journal.image, log_manager):
        log = log_manager.get(topic.name, index)
        has_gap = log is not None and log.recovery.gap is not None
        unclean = not directory.was_clean or has_gap or TopicPartition(topic.name, index) in new
        elect = unclean or state.leader != node_id
        change = partition_change(topic.id, index, state, node_id=node_id, elect=elect, directory_id=directory.id)
        if change is not None:
            changes.append(change)
    for first in range(0, len(changes), CHANGES_PER_START_BATCH):
        journal.append_now(changes[first : first + CHANGES_PER_START_BATCH])
