"""The nouns that the client's users hold in their hands: named tuples, cheap to make and to compare."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class BrokerAddress(NamedTuple):
    """A broker of the cluster as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class RecordMetadata(NamedTuple):
    """Where a sent record went.

    `offset` is -1 when the broker was not asked (acks=0) or no longer knows it (a duplicate of a very old batch).
    `timestamp_ms` is the record's own, or the broker's where the topic stamps records as they are appended.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """A record as it was read. `timestamp_ms` is -1 when it has none; header keys are text, values bytes or None."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
