"""What a coordinator asks of the runtime: make the internal topic, and run a step on the shard of a key.

    handler -> coordinator -> CoordinatorRuntime.run -> shard -> machine -> effects -> append -> reply

The topic is made on first need. A request waits for nothing here but that: a shard that is loading or cannot be used
refuses at once, with Kafka's code. A refusal of a whole request is a failed `Pending`, which the dispatcher turns into
the API's own error response.

All calls on the broker's one thread. Source: Kafka's `CoordinatorRuntime`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordination.definition import S
from ottla.broker.coordination.shard_map import ShardMap
from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.runtime.pending import Pending
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.definition import CoordinatorDefinition
    from ottla.broker.metadata.change_requests import TopicResult
    from ottla.broker.services import Services

logger = logging.getLogger(__name__)

P = TypeVar("P")

LOAD_AT_START_BYTES = 256 << 10
"""So much of each partition is loaded before the first request: milliseconds."""

Made = Callable[["KafkaError | None"], None]


class CoordinatorRuntime(Generic[S]):
    """One coordinator's shards, and the way to them."""

    def __init__(self, services: Services, definition: CoordinatorDefinition[S]) -> None:
        self.shards = ShardMap(services, definition)
        self._catalog = services.catalog
        self._definition = definition
        self._waiting: list[Made] = []

    def open(self) -> None:
        """Begin to load what is there: the first piece now, what is more in steps. After the catalog is open."""
        if self._definition.topic in self._catalog.topics:
            self.shards.adopt()
            self.shards.load_now(LOAD_AT_START_BYTES)

    def close(self) -> None:
        """Do nothing more by itself. What is gathered is the turn's to append."""
        self.shards.close()

    # --- the topic ---------------------------------------------------------------------------------------------------

    def make(self, made: Made) -> None:
        """Call `made` once the topic is there, at once if it is; with COORDINATOR_NOT_AVAILABLE if it cannot be."""
        if self.shards.is_adopted:
            made(None)
            return
        self._waiting.append(made)
        if len(self._waiting) > 1:
            return
        definition = self._definition
        topic = NewTopic(
            definition.topic,
            partitions=definition.partitions,
            replication_factor=1,
            configs=list(definition.configs),
        )
        self._catalog.create_topics([topic], self._made)

    def _made(self, results: list[TopicResult]) -> None:
        error = None
        if results[0].as_existing().failed:
            logger.error("topic %s cannot be created: %s", self._definition.topic, results[0].error_message)
            error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, results[0].error_message)
        elif not self.shards.is_adopted:
            self.shards.adopt()
        waiting, self._waiting = self._waiting, []
        for made in waiting:
            made(error)

    def prepare(self, key: str, done: Made) -> None:
        """Make the topic if it is not there; then None, or why the key has no coordinator now.

        COORDINATOR_NOT_AVAILABLE, as clients expect of FindCoordinator; a shard that is loading is no hindrance.
        """

        def made(error: KafkaError | None) -> None:
            if error is None and not self.shards.is_available(key):
                noun = self._definition.noun
                error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of the {noun} is offline")
            done(error)

        self.make(made)

    # --- requests ----------------------------------------------------------------------------------------------------

    def run(self, key: str, pending: Pending[P], step: Callable[[S], None]) -> Pending[P]:
        """Run `step` on the shard of `key` once the topic is there; it answers `pending`, or raises KafkaError."""

        if self.shards.is_adopted:
            try:
                step(self.shards.ready(key))
            except KafkaError as refusal:
                pending.fail(refusal)
            return pending

        def run(error: KafkaError | None) -> None:
            if pending.done:
                return  # the client went away while the topic was made
            try:
                if error is not None:
                    raise error
                step(self.shards.ready(key))
            except KafkaError as refusal:
                pending.fail(refusal)

        self.make(run)
        return pending

    def when_made(self, answer: Callable[[Pending[P]], None]) -> Pending[P]:
        """Run `answer`, about several keys, once the topic is there."""
        pending: Pending[P] = Pending()

        def run(error: KafkaError | None) -> None:
            if error is not None:
                pending.fail(error)
            else:
                answer(pending)

        self.make(run)
        return pending

    # --- what happens by itself --------------------------------------------------------------------------------------

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """The catalog's topics are other ones now; `deleted` are gone. Gives the steps of what takes long."""
        return self.shards.on_topics_changed(deleted)

    def expire_some(self) -> bool:
        """A step of expiry in each shard; whether one left keys over."""
        left_over = [shard.expire_some() for shard in self.shards.active()]
        return any(left_over)
