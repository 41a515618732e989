"""The data types of the client's interface: named tuples, which are cheap to create and to compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple

from ottla.client_core.cluster_view import BrokerAddress

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes | None)
    V = TypeVar("V", default=bytes | None)
else:  # Python's own TypeVar has no default before 3.13, and nothing at run time asks for it
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

__all__ = [
    "BrokerAddress",
    "ConsumerRecord",
    "GroupMetadata",
    "OffsetAndMetadata",
    "ProducerRecord",
    "RecordMetadata",
    "ShareRecord",
    "TopicPartition",
]

LARGEST = 2**63 - 1
"""The largest offset and timestamp that a request can have."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


def require_int64(what: str, number: int) -> None:
    """Raise ValueError, which begins with `what`, unless a number is one that an offset or a time can be."""
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{what} is 0 to 2^63-1, not {number}")


class OffsetAndMetadata(NamedTuple):
    """A committed offset: that of the next record to read, a note of the program, and the leader epoch (-1: unknown) of
    the record before, by which a log that was truncated meanwhile is detected (KIP-320)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """A consumer's identity in its group. `generation` is the member epoch in the consumer protocol; it is -1, and the
    member id empty, while the consumer is not a member."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class RecordMetadata(NamedTuple):
    """The place of a sent record.

    `offset` is -1 when the broker does not answer (acks=0) or no longer knows it (a duplicate of a very old batch).
    `timestamp_ms` is the record's own, or the broker's if the topic has LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ProducerRecord(NamedTuple):
    """A record to send, as interceptors get it: key and value are not serialized yet.

    `timestamp_ms` None means now; for `partition` None the partitioner chooses.
    """

    topic: str
    value: object = None
    key: object = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A consumed record; key and value are results of the consumer's deserializers, bytes or None without them.

    `timestamp_ms` is -1 when it has none; header keys are text, values bytes or None.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record that a share consumer has acquired: the fields of a ConsumerRecord, and `delivery_count`.

    That is the number of its deliveries by now, also to other members: 1 for the first one.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K
    value: V
    headers: tuple[tuple[str, bytes | None], ...] = ()
    delivery_count: int = 1


def as_names(names: Iterable[str]) -> list[str]:
    """Return names as a list. A text is one name, as in `subscribe`, and not a sequence of letters."""
    return [names] if isinstance(names, str) else list(names)
