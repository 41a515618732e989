"""The topics of this broker as requests change them: created, grown and deleted.

A change is planned in its turn, written, synced and replayed (`metadata/changes.py`). Then partitions are created
(`partition_creation.py`) or removed (`partition_removal.py`), and then the request is answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.catalog.partition_creation import PartitionCreation
from ottla.broker.catalog.partition_removal import PartitionRemoval
from ottla.broker.catalog.topic import Topic, TopicIndex
from ottla.broker.metadata.change_requests import NewPartitions, NewTopic, ResultsCallback, TopicResult, refused
from ottla.broker.metadata.changes import ChangeQueue
from ottla.broker.metadata.journal import Journal
from ottla.broker.metadata.placement import moved_partitions
from ottla.broker.metadata.plans import (
    Charge,
    Rules,
    TopicPlan,
    charge_nobody,
    plan_partitions,
    plan_removal,
    plan_topics,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.runtime.metrics import Metrics
    from ottla.protocol.stored.metadata import MetadataRecord
    from ottla.storage.directories.manager import LogManager

logger = logging.getLogger(__name__)


def _ignored(_: list[TopicResult]) -> None:
    """The results of a change that nothing waits for before it is finished."""


class TopicChanges:
    """See the module; the base of `Catalog`, whose `open` provides the journal, the queue and the creation."""

    _journal: Journal
    _queue: ChangeQueue
    _creation: PartitionCreation

    def __init__(
        self,
        topic_index: TopicIndex,
        log_manager: LogManager,
        removal: PartitionRemoval,
        rules: Rules,
        metrics: Metrics | None,
    ) -> None:
        self.topics_epoch = 0
        """Grows whenever a topic is created, grown or deleted."""
        self.topic_listeners: list[Callable[[Collection[str]], Iterator[None]]] = []
        """Called with the names of deleted topics (none if topics were created or grown). They return long work
        as steps, which run before the deletion is answered, and before the names may be used again.
        """
        self._topic_index = topic_index
        self._log_manager = log_manager
        self._removal = removal
        self._rules = rules
        self._metrics = metrics

    # --- requests ------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        requests: Sequence[NewTopic],
        done: ResultsCallback,
        *,
        validate_only: bool = False,
        charge: Charge = charge_nobody,
        recorded: ResultsCallback = _ignored,
    ) -> None:
        """Create topics; `done` is called once, when all that were created accept requests.

        If a deleted topic of one of the names is still being removed, nothing is recorded before that is done. So no
        directory that a start finds under the name can be the former topic's. With `validate_only` everything is
        checked and nothing created. `charge` is called with the partitions of each topic that may be created, and
        `recorded` when the change is on disk in the metadata log, before its partitions are created; here and below.
        """
        plan = partial(plan_topics, requests=requests, rules=self._rules, validate_only=validate_only, charge=charge)
        names = [request.name for request in requests]
        self._change(plan, self._created, done, recorded, names, () if validate_only else names)

    def create_partitions(
        self,
        requests: Sequence[NewPartitions],
        done: ResultsCallback,
        *,
        validate_only: bool = False,
        charge: Charge = charge_nobody,
        recorded: ResultsCallback = _ignored,
    ) -> None:
        """Grow topics; `done` is called once, when the new partitions accept requests."""
        plan = partial(
            plan_partitions, requests=requests, rules=self._rules, validate_only=validate_only, charge=charge
        )
        self._change(plan, self._created, done, recorded, [request.name for request in requests])

    def delete_topics(
        self,
        targets: Sequence[str | UUID],
        done: ResultsCallback,
        *,
        charge: Charge = charge_nobody,
        recorded: ResultsCallback = _ignored,
    ) -> None:
        """Delete topics by name or id; `done` is called once, when the removal is synced and the files are renamed."""
        plan = partial(plan_removal, targets=targets, rules=self._rules, charge=charge)
        self._change(plan, self._removed, done, recorded, targets)

    def auto_create(self, names: Sequence[str], done: ResultsCallback, *, charge: Charge = charge_nobody) -> None:
        """Create topics with the broker's defaults; a topic that exists by then counts as success.

        Internal topics are not created this way: their coordinators choose their configuration.
        """

        def created(results: list[TopicResult]) -> None:
            done([result.as_existing() for result in results])

        asked = [name for name in dict.fromkeys(names) if name not in INTERNAL_TOPICS]
        self.create_topics([NewTopic(name) for name in asked], created, charge=charge)

    # --- applying a change -----------------------------------------------------------------------------------------

    def _change(
        self,
        plan: Callable[[MetadataImage], TopicPlan],
        apply: Callable[[list[TopicResult], ResultsCallback], None],
        done: ResultsCallback,
        recorded: ResultsCallback,
        targets: Sequence[str | UUID],
        new_names: Sequence[str] = (),
    ) -> None:
        """Plan in turn, write, sync, replay, then `recorded(results)` and `apply(results, done)`; a failed disk refuses
        every target.

        It waits for the removal of topics that had one of the `new_names` before.
        """
        planned: TopicPlan | None = None

        def run(image: MetadataImage) -> Sequence[MetadataRecord]:
            nonlocal planned
            if any(self._removal.is_under_way(name) for name in new_names):
                return ()
            planned = plan(image)
            return planned.records

        def finish(error: KafkaError | None) -> None:
            if error is not None:
                done([refused(target, error) for target in targets])
            elif planned is None:
                self._removal.call_after_topic(partial(self._change, plan, apply, done, recorded, targets, new_names))
            elif planned.records:
                recorded(planned.results)
                apply(planned.results, done)
            else:
                done(planned.results)

        self._queue.submit(run, finish)

    def _created(self, results: list[TopicResult], done: ResultsCallback) -> None:
        """Create the partitions that are in the image and do not exist yet."""

        def made(results: list[TopicResult]) -> None:
            self._note_change(deleted=())
            self._note_directories()
            done(results)

        self._creation.create(results, made)

    def _removed(self, results: list[TopicResult], done: ResultsCallback) -> None:
        """End the partitions and rename their directories."""
        removed: list[Topic] = []
        for result in results:
            topic = None if result.failed else self._topic_index.remove(result.id)
            if topic is None:
                continue
            removed.append(topic)
            logger.info("topic %s is deleted", topic.name)
            self._creation.forget(topic)
            topic.close(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"))
            if self._metrics is not None:
                self._metrics.forget_topic(topic.name)
        forgetting = self._note_change([topic.name for topic in removed]) if removed else iter(())

        def gone() -> None:
            self._forget_removed()
            done(results)

        self._removal.remove_topics(removed, forgetting, gone)

    def _forget_removed(self) -> None:
        """Forget the ids of deleted topics, once no directory is left under their names."""
        if self._removal.is_settled:
            self._journal.image.removed_topics.clear()

    def _note_change(self, deleted: Collection[str]) -> Iterator[None]:
        self.topics_epoch += 1
        return chain.from_iterable([listener(deleted) for listener in self.topic_listeners])

    def _note_directories(self) -> None:
        """Record the partitions that were created in another directory than planned. Otherwise, if that directory is
        missing at the next start, they would be created again, empty, in the planned one.
        """
        if not self._creation.are_elsewhere:
            return
        self._creation.are_elsewhere = False

        def noted(error: KafkaError | None) -> None:
            if error is not None:
                logger.warning("the directories of new partitions could not be written to the metadata log: %s", error)

        self._queue.submit(partial(moved_partitions, log_manager=self._log_manager, node_id=self._rules.node_id), noted)
