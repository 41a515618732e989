"""Interceptors: a program's own code that is called for every record, like Kafka's of the same names.

They count, trace, add headers, mask values. Several are called in order, each with the result of the one before. An
exception never breaks the sending or reading: it is logged, and the next interceptor gets the same argument. They run
in the client's thread or in the caller's, so they must be quick, must not block, and (with the blocking clients) must
be safe to call from several threads.
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
        """Return the record to send instead; called before the serializers and the partitioner."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | Exception | None) -> None:
        """Called with a record's metadata or its error, before the program gets it.

        With an error `metadata` has the topic, and -1 for unknown numbers.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


class ConsumerInterceptor:
    """Override what you need."""

    def on_consume(self, records: ConsumedRecords) -> ConsumedRecords:
        """Return the records that the program gets instead, by partition; called after the deserializers.

        Records that are left out are skipped: the consumer's position is after them.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called with the offsets that were committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""


def to_interceptors(kind: type[I]) -> Callable[[object], tuple[I, ...]]:
    """Return a converter of options: a list of interceptors, or of classes, which are instantiated."""

    def convert(given: object) -> tuple[I, ...]:
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise ValueError(f"must be a list of {kind.__name__}s")
        made = [one() if isinstance(one, type) else one for one in given]
        if not all(isinstance(one, kind) for one in made):
            raise ValueError(f"must be a list of {kind.__name__}s")
        return tuple(made)

    return convert


def before_sending(interceptors: Sequence[ProducerInterceptor], record: ProducerRecord) -> ProducerRecord:
    """Call every interceptor with a record, which it may change."""
    for interceptor in interceptors:
        try:
            record = ProducerRecord(*interceptor.on_send(record))
        except Exception:  # whatever a program's own code raises: the record is sent nevertheless
            logger.exception("%s.on_send failed; the record is sent without it", type(interceptor).__name__)
    return record


def report_acknowledgement(
    interceptors: Sequence[ProducerInterceptor], metadata: RecordMetadata, error: KafkaError | Exception | None
) -> None:
    """Call every interceptor with the result of a record."""
    for interceptor in interceptors:
        try:
            interceptor.on_acknowledgement(metadata, error)
        except Exception:  # whatever a program's own code raises
            logger.exception("%s.on_acknowledgement failed", type(interceptor).__name__)


def before_consuming(interceptors: Sequence[ConsumerInterceptor], records: ConsumedRecords) -> ConsumedRecords:
    """Call every interceptor with the records for the program, which it may change."""
    for interceptor in interceptors:
        try:
            changed = interceptor.on_consume(records)
            records = {TopicPartition(*partition): list(some) for partition, some in changed.items()}
        except Exception:  # whatever a program's own code raises: the program gets the records nevertheless
            logger.exception("%s.on_consume failed; the records are returned without it", type(interceptor).__name__)
    return records


def report_commit(
    interceptors: Sequence[ConsumerInterceptor], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Call every interceptor with the committed offsets."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:  # whatever a program's own code raises
            logger.exception("%s.on_commit failed", type(interceptor).__name__)


def close_all(interceptors: Iterable[ProducerInterceptor | ConsumerInterceptor]) -> None:
    """Close every interceptor."""
    for interceptor in interceptors:
        try:
            interceptor.close()
        except Exception:  # whatever a program's own code raises
            logger.exception("%s.close failed", type(interceptor).__name__)
