"""Interceptors: a program's own code on the way of every record, like Kafka's of the same names.

They count, trace, add headers, mask values. Several are called in their order, each with what the one before returned.
One that raises never breaks the sending or reading: the exception is logged, and the next one gets what this one got.
They run in the client's thread or in the caller's, so they must be quick, must not block, and (with the blocking
clients) must bear to be called from several threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.client.errors import KafkaError
from ottla.client.structs import ConsumerRecord, OffsetAndMetadata, ProducerRecord, RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)

ConsumedRecords = Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]]
I = TypeVar("I")  # noqa: E741  # one kind of interceptor


class ProducerInterceptor:
    """Override what you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to be sent instead; called before the serializers and the partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | Exception | None) -> None:
        """Hear where a record went, or why it did not; called before the program hears it.

        With an error `metadata` has the topic, and -1 for what is not known.
        """

    def close(self) -> None:
        """Hear that the producer is closed."""


class ConsumerInterceptor:
    """Override what you need."""

    def on_consume(self, records: ConsumedRecords) -> ConsumedRecords:
        """Return the records that the program gets instead, by partition; called after the deserializers.

        What is left out is skipped: the consumer's position is behind it.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Hear which offsets were committed."""

    def close(self) -> None:
        """Hear that the consumer is closed."""


def to_interceptors(kind: type[I]) -> Callable[[object], tuple[I, ...]]:
    """Return a converter of options: interceptors, or classes of which one each is made."""

    def convert(given: object) -> tuple[I, ...]:
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise ValueError(f"must be a list of {kind.__name__}s")
        made = [one() if isinstance(one, type) else one for one in given]
        if not all(isinstance(one, kind) for one in made):
            raise ValueError(f"must be a list of {kind.__name__}s")
        return tuple(made)

    return convert


def before_sending(interceptors: Sequence[ProducerInterceptor], record: ProducerRecord) -> ProducerRecord:
    """Let every interceptor see, and change, a record."""
    for interceptor in interceptors:
        try:
            record = ProducerRecord(*interceptor.on_send(record))
        except Exception:  # whatever a program's own code raises: the record is sent all the same
            logger.exception("%s.on_send failed; the record goes on without it", type(interceptor).__name__)
    return record


def report_acknowledgement(
    interceptors: Sequence[ProducerInterceptor], metadata: RecordMetadata, error: KafkaError | Exception | None
) -> None:
    """Let every interceptor hear what became of a record."""
    for interceptor in interceptors:
        try:
            interceptor.on_acknowledgement(metadata, error)
        except Exception:  # whatever a program's own code raises
            logger.exception("%s.on_acknowledgement failed", type(interceptor).__name__)


def before_consuming(interceptors: Sequence[ConsumerInterceptor], records: ConsumedRecords) -> ConsumedRecords:
    """Let every interceptor see, and change, the records that the program is about to get."""
    for interceptor in interceptors:
        try:
            changed = interceptor.on_consume(records)
            records = {TopicPartition(*partition): list(some) for partition, some in changed.items()}
        except Exception:  # whatever a program's own code raises: the records are there all the same
            logger.exception("%s.on_consume failed; the records go on without it", type(interceptor).__name__)
    return records


def report_commit(
    interceptors: Sequence[ConsumerInterceptor], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Let every interceptor hear what was committed."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:  # whatever a program's own code raises
            logger.exception("%s.on_commit failed", type(interceptor).__name__)


def close_all(interceptors: Iterable[ProducerInterceptor | ConsumerInterceptor]) -> None:
    """Let every interceptor end."""
    for interceptor in interceptors:
        try:
            interceptor.close()
        except Exception:  # whatever a program's own code raises
            logger.exception("%s.close failed", type(interceptor).__name__)
