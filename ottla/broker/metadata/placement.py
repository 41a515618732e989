"""The log directory of each partition: chosen for a new one, and recorded for one that is elsewhere than planned.

The metadata name a directory for every partition before it is created (KIP-858), so that a missing directory can be
distinguished from an offline disk. If the named directory accepts no writes by then, the partition is created in
another, and the metadata are updated. Both depend only on the image and the state of the directories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.metadata.registration import partition_change
from ottla.config.conflicts import MAX_PARTITIONS_PER_REQUEST
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage, TopicState
    from ottla.broker.metadata.partition_state import PartitionState
    from ottla.protocol.stored.metadata import MetadataRecord
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.directories.manager import LogManager

CountIn = Callable[[UUID], int]
"""Returns the number of partitions in a directory."""
ChooseDirectory = Callable[[CountIn, Mapping[UUID, int]], UUID]
"""Chooses the directory for one more partition, by the number of partitions in each and how many of them this request
adds. Raises KafkaError if none can take it."""


class Placement:
    """Assigns a directory to each new partition of one request, and enforces the limits on their number.

    `most_partitions` is the limit of the whole broker (`ottla.max.partitions`).
    """

    def __init__(self, image: MetadataImage, most_partitions: int, choose_directory: ChooseDirectory) -> None:
        self._most_partitions = most_partitions
        self._choose_directory = choose_directory
        self._total = image.partition_count
        self._asked = 0
        self._planned: Counter[UUID] = Counter()
        self._image = image
        self._before: Counter[UUID] | None = None
        """The number of the image's partitions by directory, when they are counted."""

    def check(self, count: int) -> None:
        """Raise KafkaError if `count` more partitions would be too many."""
        if self._asked + count > MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"one request may create {MAX_PARTITIONS_PER_REQUEST} partitions at most"
            )
        total = self._total + count
        if total > self._most_partitions:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} more partitions would be {total}; ottla.max.partitions is {self._most_partitions}",
            )

    def take(self, count: int, *, is_assigned: bool = False) -> list[UUID]:
        """Directories for `count` partitions, the emptiest first. Raises KafkaError; then nothing is taken.

        If all are cordoned, the code depends on whether the client has assigned brokers to the partitions, as in Kafka.
        """
        self.check(count)
        planned = self._planned.copy()

        def count_in(directory: UUID) -> int:
            return self._count_before()[directory] + planned[directory]

        directories = []
        for _ in range(count):
            try:
                directory = self._choose_directory(count_in, planned)
            except KafkaError as error:
                if is_assigned and error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
                    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, error.message) from None
                raise
            planned[directory] += 1
            directories.append(directory)
        self._planned = planned
        self._asked += count
        self._total += count
        return directories

    def _count_before(self) -> Counter[UUID]:
        """The partitions of the image by directory, counted only if there is a choice: 10,000 of them take 3 ms."""
        before = self._before
        if before is None:
            before = self._before = Counter(
                state.directories[0]
                for topic in self._image.topics.values()
                for state in topic.partitions.values()
                if state.directories
            )
        return before


def emptiest_directory(log_manager: LogManager, count_in: CountIn, planned: Mapping[UUID, int]) -> UUID:
    """The directory with the fewest partitions by `count_in`, of those that accept writes, are not cordoned, and have
    inodes for one more partition than this request has `planned` there; the first of `log.dirs` among equals.

    Raises KafkaError if there is none: INVALID_REPLICATION_FACTOR if all are cordoned.
    """
    if not planned:
        log_manager.look_at_room()  # new topics may have used much since the last check
    online = [one for one in log_manager.directories if one.is_online and one.id is not None]
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory takes writes")
    online = [one for one in online if not one.is_cordoned]
    if not online:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "all log directories that take writes are cordoned (cordoned.log.dirs): they take no new partitions",
        )
    found: UUID | None = None
    for one in online:
        room = one.room.room_for_partitions
        is_better = found is None or count_in(one.id) < count_in(found)  # type: ignore[arg-type]  # it has one
        if is_better and (room is None or planned.get(one.id, 0) < room):  # type: ignore[arg-type]  # as above
            found = one.id
    if found is None:
        left = sum(one.room.room_for_partitions or 0 for one in online)
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the log directories have inodes for {left} partitions more (ottla.log.dir.reserve.inodes)",
        )
    return found


def opened_partitions(
    image: MetadataImage, log_manager: LogManager
) -> Iterator[tuple[TopicState, int, PartitionState, LogDirectory]]:
    """Each partition of the image that has a log, as (topic, index, state, directory of its log)."""
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            directory = log_manager.directory_of(topic.name, index)
            if directory is not None:
                yield topic, index, state, directory


def moved_partitions(image: MetadataImage, log_manager: LogManager, node_id: int) -> list[MetadataRecord]:
    """The records for partitions that were created in another directory than planned."""
    changes = (
        partition_change(topic.id, index, state, node_id=node_id, elect=False, directory_id=directory.id)
        for topic, index, state, directory in opened_partitions(image, log_manager)
    )
    return [change for change in changes if change is not None]
