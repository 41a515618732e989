"""Partitions on their way in: of what the metadata image has and the topics have not, each gets its directory, stores
its leader epoch and is served.

A few are made in a turn of the loop, and other requests run in between; a topic that is deleted meanwhile gets no more
of them. Each wish has its own partitions made, and is answered for these. It waits as long as a topic of the same name
is being made for an earlier wish, or directories of a deleted one are in the way (`partition_removal.py`). A partition
whose directory the disk does not let be made (a full disk) is offline until `make_missing` or the next start.

Called by the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.storage.formats.layout import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.catalog.partition_removal import PartitionRemoval
    from ottla.broker.catalog.topic import Topic, TopicIndex
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.metadata.wishes import Outcomes, TopicOutcome
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.workers import Workers
    from ottla.storage.directories.manager import LogManager
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

PARTITIONS_PER_STEP = 1
"""Partitions that are made before others have their turn: each waits for the disk more than once."""


class PartitionCreation:
    """Makes partitions. All calls on the broker's thread.

    `later(step)` runs a step when others have had their turn; without it all is done at once.
    """

    def __init__(
        self,
        image: MetadataImage,
        topics: TopicIndex,
        log_manager: LogManager,
        removal: PartitionRemoval,
        workers: Workers,
        make_partition: Callable[[str, int, Log], Partition],
        later: Callable[[Callable[[], None]], None] | None,
    ) -> None:
        self._image = image
        self._topics = topics
        self._log_manager = log_manager
        self._removal = removal
        self._workers = workers
        self._make_partition = make_partition
        self._later = later
        self._missing: set[TopicPartition] = set()
        """Partitions of the image whose directories could not be made."""
        self._under_way: set[str] = set()
        """Names of the topics of creations that are not answered yet."""
        self._waiting: list[Callable[[], None]] = []
        """Creations of topics of the same names."""
        self.are_elsewhere = False
        """Whether partitions were made in another directory than the metadata say, until the catalog has seen to it."""

    def create(self, outcomes: list[TopicOutcome], done: Outcomes) -> None:
        """Make the partitions that synced `outcomes` speak of and that are not there, and their topics.

        `done(outcomes)` once all accept requests; a topic that lacks one of them is told as unusable.
        """
        names = {outcome.name for outcome in outcomes if outcome.name is not None and not outcome.failed}
        if any(self._removal.is_under_way(name) for name in names):
            self._removal.call_after_topic(partial(self.create, outcomes, done))
        elif names & self._under_way:
            self._waiting.append(partial(self.create, outcomes, done))
        else:
            self._under_way |= names
            steps = self._steps(outcomes, names, done)
            former = [one for one in self._wanted(outcomes) if self._log_manager.remembers(one)]
            if former:
                # On the broker's thread each checkpoint of a directory would be synced by `create_log`.
                self._workers.run(partial(self._log_manager.forget, former), lambda *_: self._run_some(steps))
            else:
                self._run_some(steps)

    def make_missing(self) -> int:
        """Make the directories that could not be made before; returns how many partitions came to life."""
        return sum(self._make(self._topics.by_name[topic], index) for topic, index in sorted(self._missing))

    def forget(self, topic: Topic) -> None:
        """The topic is deleted: nothing of it is missing any more."""
        for index in range(len(topic.partitions)):
            self._missing.discard(TopicPartition(topic.name, index))

    def serve(self, topic: Topic, index: int, log: Log) -> None:
        """Let requests at a partition, in the leader epoch of the image. Raises OSError when that cannot be stored."""
        epoch = self._image.topics[topic.name].partitions[index].leader_epoch
        if log.leader_epoch != epoch:
            log.start_leader_epoch(epoch)
        partition = self._make_partition(topic.name, index, log)
        partition.leader_epoch = epoch
        topic.partitions[index] = partition

    def _wanted(self, outcomes: list[TopicOutcome]) -> Iterator[TopicPartition]:
        """The partitions that are about to be made."""
        for outcome in outcomes:
            if outcome.name is not None and not outcome.failed:
                topic = self._topics.by_name.get(outcome.name)
                first = 0 if topic is None else len(topic.partitions)
                yield from (TopicPartition(outcome.name, index) for index in range(first, outcome.partitions))

    def _run_some(self, steps: Iterator[None]) -> None:
        """Partitions of one stretch; the next ones when others have had their turn."""
        for number, _ in enumerate(steps, 1):
            if number == PARTITIONS_PER_STEP and self._later is not None:
                self._later(partial(self._run_some, steps))
                return

    def _steps(self, outcomes: list[TopicOutcome], names: set[str], done: Outcomes) -> Iterator[None]:
        results = []
        try:
            for outcome in outcomes:
                results.append((yield from self._topic_steps(outcome)))
        finally:
            self._under_way -= names
        done(results)
        waiting, self._waiting = self._waiting, []
        for create in waiting:
            create()

    def _topic_steps(self, outcome: TopicOutcome) -> Generator[None, None, TopicOutcome]:
        state = None if outcome.failed or outcome.name is None else self._image.topics.get(outcome.name)
        if state is None or state.id != outcome.id:
            return outcome  # refused, or deleted before its turn
        topic = self._topics.by_name.get(state.name)
        if topic is None:
            topic = self._topics.add(state, self._image.topic_configs(state.name))
            self._topics.say_what_is_not_compacted([topic])
        first = len(topic.partitions)
        topic.partitions.extend([None] * (outcome.partitions - first))
        is_usable = True
        for index in range(first, outcome.partitions):
            if self._topics.by_name.get(topic.name) is not topic:
                return outcome.as_unusable()  # deleted between two steps
            is_usable &= self._make(topic, index)
            yield
        return outcome if is_usable else outcome.as_unusable()

    def _make(self, topic: Topic, index: int) -> bool:
        """Make one partition's directory and serve it; False when the disk does not let us."""
        state = self._image.topics[topic.name].partitions[index]
        try:
            log = self._log_manager.create_log(
                topic.name, index, topic.id, topic.config, directory_id=state.directories[0]
            )
            self.serve(topic, index, log)
        except OSError as error:
            self._missing.add(TopicPartition(topic.name, index))
            logger.error("%s-%d is offline, its directory cannot be made: %s", topic.name, index, error)
            return False
        self._missing.discard(TopicPartition(topic.name, index))
        home = self._log_manager.directory_of(topic.name, index)
        self.are_elsewhere |= home is None or home.id != state.directories[0]
        return True
