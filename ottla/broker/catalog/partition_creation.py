"""The creation of partitions: each partition that is in the metadata image and not in the topics gets a directory,
stores its leader epoch and is served.

A few are created in a turn of the loop, and other requests run in between; a topic that is deleted meanwhile gets no
more of them. Each request creates its own partitions and is answered for these. It waits while a topic of the same name
is being created for an earlier request. A partition whose directory cannot be created (a full disk) is offline until
`make_missing` or the next start.

Called by the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.storage.formats.layout import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic, TopicIndex
    from ottla.broker.metadata.change_requests import ResultsCallback, TopicResult
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.workers import Workers
    from ottla.storage.directories.manager import LogManager
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 1
"""Partitions that are created before other requests run: each waits for the disk more than once."""


class PartitionCreation:
    """Creates partitions. All calls are made on the broker's thread.

    `later(step)` runs a step in a later turn of the loop; without it everything is done immediately.
    """

    def __init__(
        self,
        image: MetadataImage,
        topics: TopicIndex,
        log_manager: LogManager,
        workers: Workers,
        make_partition: Callable[[str, int, Log], Partition],
        later: Callable[[Callable[[], None]], None] | None,
    ) -> None:
        self._image = image
        self._topics = topics
        self._log_manager = log_manager
        self._workers = workers
        self._make_partition = make_partition
        self._later = later
        self._missing: set[TopicPartition] = set()
        """Partitions of the image whose directories could not be created."""
        self._under_way: set[str] = set()
        """Names of topics whose creation is not answered yet."""
        self._waiting: list[Callable[[], None]] = []
        """Creations that wait for earlier ones of the same names."""
        self.are_elsewhere = False
        """Whether partitions are in another directory than in the metadata, until the catalog has recorded it."""

    def create(self, results: list[TopicResult], done: ResultsCallback) -> None:
        """Create the missing partitions of the synced `results`, and their topics.

        `done(results)` once all accept requests; a topic that lacks one of its partitions is reported as unusable.
        """
        names = {result.name for result in results if result.name is not None and not result.failed}
        if names & self._under_way:
            self._waiting.append(partial(self.create, results, done))
        else:
            self._under_way |= names
            steps = self._steps(results, names, done)
            former = [one for one in self._wanted(results) if self._log_manager.remembers(one)]
            if former:
                # Otherwise `create_log` would sync each checkpoint of a directory on the broker's thread.
                self._workers.run(partial(self._log_manager.forget, former), lambda *_: self._run_some(steps))
            else:
                self._run_some(steps)

    def make_missing(self) -> int:
        """Create the directories that could not be created before. Return the number of partitions served now."""
        return sum(self._make(self._topics.by_name[topic], index) for topic, index in sorted(self._missing))

    def forget(self, topic: Topic) -> None:
        """Forget the missing partitions of a deleted topic."""
        for index in range(len(topic.partitions)):
            self._missing.discard(TopicPartition(topic.name, index))

    def serve(self, topic: Topic, index: int, log: Log) -> None:
        """Serve a partition in the leader epoch of the image. Raises OSError when that cannot be stored."""
        epoch = self._image.topics[topic.name].partitions[index].leader_epoch
        if log.leader_epoch != epoch:
            log.start_leader_epoch(epoch)
        partition = self._make_partition(topic.name, index, log)
        partition.leader_epoch = epoch
        topic.partitions[index] = partition

    def _wanted(self, results: list[TopicResult]) -> Iterator[TopicPartition]:
        """The partitions that will be created."""
        for result in results:
            if result.name is not None and not result.failed:
                topic = self._topics.by_name.get(result.name)
                first = 0 if topic is None else len(topic.partitions)
                yield from (TopicPartition(result.name, index) for index in range(first, result.partitions))

    def _run_some(self, steps: Iterator[None]) -> None:
        """Create the partitions of one step; the next ones in a later turn of the loop."""
        for number, _ in enumerate(steps, 1):
            if number == PARTITIONS_PER_STEP and self._later is not None:
                self._later(partial(self._run_some, steps))
                return

    def _steps(self, results: list[TopicResult], names: set[str], done: ResultsCallback) -> Iterator[None]:
        made = []
        try:
            for result in results:
                made.append((yield from self._topic_steps(result)))
        finally:
            self._under_way -= names
        done(made)
        waiting, self._waiting = self._waiting, []
        for create in waiting:
            create()

    def _topic_steps(self, result: TopicResult) -> Generator[None, None, TopicResult]:
        state = None if result.failed or result.name is None else self._image.topics.get(result.name)
        if state is None or state.id != result.id:
            return result  # refused, or deleted before its turn
        topic = self._topics.by_name.get(state.name)
        if topic is None:
            topic = self._topics.add(state, self._image.topic_configs(state.name))
            self._topics.say_what_is_not_compacted([topic])
        first = len(topic.partitions)
        topic.partitions.extend([None] * (result.partitions - first))
        is_usable = True
        for index in range(first, result.partitions):
            if self._topics.by_name.get(topic.name) is not topic:
                return result.as_unusable()  # deleted between two steps
            is_usable &= self._make(topic, index)
            yield
        return result if is_usable else result.as_unusable()

    def _make(self, topic: Topic, index: int) -> bool:
        """Create one partition's directory and serve it; False when the disk refuses it."""
        state = self._image.topics[topic.name].partitions[index]
        try:
            log = self._log_manager.create_log(
                topic.name, index, topic.id, topic.config, directory_id=state.directories[0]
            )
            self.serve(topic, index, log)
        except OSError as error:
            self._missing.add(TopicPartition(topic.name, index))
            logger.error("%s-%d is offline, its directory cannot be created: %s", topic.name, index, error)
            return False
        self._missing.discard(TopicPartition(topic.name, index))
        directory = self._log_manager.directory_of(topic.name, index)
        self.are_elsewhere |= directory is None or directory.id != state.directories[0]
        return True
