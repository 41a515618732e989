"""The interface of the runtime to a coordinator: create the internal topic, and run a step on the shard of a key.

    handler -> coordinator -> CoordinatorRuntime.run -> shard -> state machine -> effects -> append -> reply

The topic is created when it is first needed. A request waits only for that. A shard that is loading or cannot be used
refuses immediately, with Kafka's code. If a whole request is refused, its `Pending` fails, and the dispatcher returns
the API's own error response.

All calls are made on the broker's one thread. Source: Kafka's `CoordinatorRuntime`.
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
"""The part of each partition that is loaded before the first request: milliseconds."""

Made = Callable[["KafkaError | None"], None]


class CoordinatorRuntime(Generic[S]):
    """One coordinator's shards, and access to them."""

    def __init__(self, services: Services, definition: CoordinatorDefinition[S]) -> None:
        self.shards = ShardMap(services, definition)
        self._catalog = services.catalog
        self._definition = definition
        self._waiting: list[Made] = []

    def open(self) -> None:
        """Begin to load the existing shards: the first piece now, the rest in steps. After the catalog is open."""
        if self._definition.topic in self._catalog.topics:
            self.shards.adopt()
            self.shards.load_now(LOAD_AT_START_BYTES)

    def close(self) -> None:
        """Start no more work. The turn still appends gathered records."""
        self.shards.close()

    # --- the topic ---------------------------------------------------------------------------------------------------

    def make(self, made: Made) -> None:
        """Call `made` once the topic exists, immediately if it does; with COORDINATOR_NOT_AVAILABLE if it cannot."""
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
        """Create the topic if it does not exist. `done` gets None, or the reason why the key has no coordinator now.

        That is COORDINATOR_NOT_AVAILABLE, as clients expect of FindCoordinator. A shard that is loading is no error.
        """

        def made(error: KafkaError | None) -> None:
            if error is None and not self.shards.is_available(key):
                noun = self._definition.noun
                error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of the {noun} is offline")
            done(error)

        self.make(made)

    # --- requests ----------------------------------------------------------------------------------------------------

    def run(self, key: str, pending: Pending[P], step: Callable[[S], None]) -> Pending[P]:
        """Run `step` on the shard of `key` once the topic exists; it answers `pending`, or raises KafkaError."""

        if self.shards.is_adopted:
            try:
                step(self.shards.ready(key))
            except KafkaError as refusal:
                pending.fail(refusal)
            return pending

        def run(error: KafkaError | None) -> None:
            if pending.done:
                return  # the client disconnected while the topic was created
            try:
                if error is not None:
                    raise error
                step(self.shards.ready(key))
            except KafkaError as refusal:
                pending.fail(refusal)

        self.make(run)
        return pending

    def when_made(self, answer: Callable[[Pending[P]], None]) -> Pending[P]:
        """Run `answer`, about several keys, once the topic exists."""
        pending: Pending[P] = Pending()

        def run(error: KafkaError | None) -> None:
            if error is not None:
                pending.fail(error)
            else:
                answer(pending)

        self.make(run)
        return pending

    # --- not caused by requests --------------------------------------------------------------------------------------

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """Handle a change of the catalog's topics; `deleted` no longer exist. Returns the steps of long work."""
        return self.shards.on_topics_changed(deleted)

    def expire_some(self) -> bool:
        """A step of expiry in each shard. Return whether one has left keys over."""
        left_over = [shard.expire_some() for shard in self.shards.active()]
        return any(left_over)
