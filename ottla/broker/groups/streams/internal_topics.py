"""The creation of the internal topics that streams groups need: repartition topics and changelogs.

After a heartbeat whose answer says that internal topics are missing, they are created, once that answer is durable. No
answer waits for them. The next heartbeat finds them, or says why they could not be created. An error is kept for a
while; until then the topic is not created again.

Source: Kafka 4.4's `DefaultAutoTopicCreationManager.createStreamsInternalTopics`, and the end of
`KafkaApis.handleStreamsGroupHeartbeat`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.groups.streams.configured_topology import InternalTopic
from ottla.broker.metadata.change_requests import NewTopic
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.metadata.change_requests import TopicResult
    from ottla.broker.metadata.plans import Charge
    from ottla.storage.files.clock import Clock

LOG = logging.getLogger("ottla.groups")
DEFAULT_REPLICATION_FACTOR = -1
"""The broker's own, as in CreateTopics."""
MOST_ERRORS = 1_000
"""The number of topics whose errors are kept."""
MOST_SHOWN = 3
"""The number of errors that a status lists; further ones are only counted."""


class _Failure(NamedTuple):
    message: str
    until_ms: float


class InternalTopics:
    """The internal topics that are being created for streams groups, and those that could not be."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._under_way: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, topics: Iterable[InternalTopic], keep_errors_ms: int, charge: Charge) -> None:
        """Create those that are neither under way nor have failed a short time ago. `charge` as for `create_topics`."""
        now_ms = self._clock.monotonic_ms()
        for name in [name for name, failure in self._failures.items() if failure.until_ms <= now_ms]:
            del self._failures[name]
        wanted = [one for one in topics if one.name not in self._under_way and one.name not in self._failures]
        if not wanted:
            return
        LOG.info("streams groups: creating %s", ", ".join(topic.name for topic in wanted))
        self._under_way.update(topic.name for topic in wanted)

        def done(results: Sequence[TopicResult]) -> None:
            self._under_way.difference_update(topic.name for topic in wanted)
            for result in results:
                if result.failed and result.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    self._note_failure(result, keep_errors_ms)

        self._catalog.create_topics([_requested(topic) for topic in wanted], done, charge=charge)

    def failures(self, topics: Iterable[InternalTopic]) -> str:
        """The topics among these that could not be created, with the reasons; empty if there is none."""
        now_ms = self._clock.monotonic_ms()
        texts = []
        for topic in topics:
            failure = self._failures.get(topic.name)
            if failure is not None and failure.until_ms > now_ms:
                texts.append(f"{topic.name} ({failure.message})")
        more = len(texts) - MOST_SHOWN
        return ", ".join(texts[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")

    def _note_failure(self, result: TopicResult, keep_ms: int) -> None:
        name = result.name or ""
        message = result.error_message or result.error_code.message
        LOG.warning("streams groups: topic %s cannot be created: %s", name, message)
        while len(self._failures) >= MOST_ERRORS:
            del self._failures[next(iter(self._failures))]
        self._failures[name] = _Failure(message, self._clock.monotonic_ms() + keep_ms)


def _requested(topic: InternalTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.partition_count,
        replication_factor=topic.replication_factor or DEFAULT_REPLICATION_FACTOR,
        configs=list(topic.configs.items()),
    )
