"""The batch with which an unknown producer has to begin: the earliest one that was refused and will be sent again.

An unknown producer may begin with any sequence, because its state may have expired. Suppose that several batches are in
flight, the first one meets a full disk, or a transaction coordinator that is loading, and the second one arrives when
that is over. Then the second would count as the beginning, and the first would be out of order in every retry. So a
broker that refuses batches which the producer will retry notes them here, and later batches are out of order until the
first is stored.

Apache Kafka does the same for transactions (VerificationStateEntry, KIP-890), and describes the endless loop without
it. A full disk cannot cause that loop in Kafka, because it takes the log directory offline until a restart. A restart
ends all connections, and with them all batches in flight, so this state is not stored.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.protocol.records.batch import MAX_SEQUENCE, BatchHeader

MAX_BEGINNINGS: Final = 10_000
"""The limit for one log; beyond it the one that was not sent for longest is forgotten (about 2 MB)."""


class _Beginning(NamedTuple):
    epoch: int
    sequence: int
    noted_ms: int


class ProducerBeginnings:
    """The beginnings of one log's unknown producers, in the order in which they were last sent."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[int, _Beginning] = {}

    def note(self, header: BatchHeader, now_ms: int) -> None:
        """Note a refused batch that the producer will retry: its producer must not begin after it."""
        noted = self._noted.pop(header.producer_id, None)
        beginning = _Beginning(header.producer_epoch, header.base_sequence, now_ms)
        if noted is not None and (
            noted.epoch > beginning.epoch
            or (noted.epoch == beginning.epoch and _is_behind(beginning.sequence, noted.sequence))
        ):
            beginning = noted._replace(noted_ms=now_ms)
        self._noted[header.producer_id] = beginning
        if len(self._noted) > MAX_BEGINNINGS:
            del self._noted[next(iter(self._noted))]

    def earlier(self, header: BatchHeader) -> int | None:
        """The first sequence of the refused batch that must be stored before this one; None if this one may be."""
        noted = self._noted.get(header.producer_id)
        if (
            noted is None
            or noted.epoch != header.producer_epoch
            or not _is_behind(header.base_sequence, noted.sequence)
        ):
            return None
        return noted.sequence

    def forget(self, producer_id: int) -> None:
        """Drop the beginning of a producer that has begun."""
        self._noted.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Forget the beginnings that were not sent since `before_ms`."""
        for producer_id in [one for one, noted in self._noted.items() if noted.noted_ms <= before_ms]:
            del self._noted[producer_id]


def _is_behind(sequence: int, other: int) -> bool:
    """Whether `sequence` is after `other`, by at most half of the range: sequences wrap."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
