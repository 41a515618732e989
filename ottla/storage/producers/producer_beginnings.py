"""With which batch a producer that is not known has to begin: the earliest one that found no room.

An unknown producer may begin anywhere, because what was known of it may have expired. So when the first of several
batches on their way met a full disk, and there was room again before the second came, the second would be considered
the beginning, and the first be out of order however often it came again. A broker that refuses batches that are worth
sending again notes them here; the later ones are then out of order until the first is stored.

Apache Kafka does the same while it verifies a transaction (VerificationStateEntry, KIP-890) and names the loop that is
left without; a full disk cannot lead there, because it takes the log directory offline until a restart. A restart ends
all connections, and with them what is on its way after the first batch: so nothing of this is stored.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.protocol.records.batch import MAX_SEQUENCE, BatchHeader

MAX_BEGINNINGS: Final = 10_000
"""Of one log; beyond it the one that was not sent for longest is forgotten (about 2 MB)."""


class _Beginning(NamedTuple):
    epoch: int
    sequence: int
    noted_ms: int


class ProducerBeginnings:
    """The beginnings of one log's unknown producers, the one that was not sent for longest first."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[int, _Beginning] = {}

    def note(self, header: BatchHeader, now_ms: int) -> None:
        """A batch was refused and is worth sending again: its producer may not begin after it."""
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
        """First sequence of the refused batch that has to be stored before this one, or None when it may be stored."""
        noted = self._noted.get(header.producer_id)
        if (
            noted is None
            or noted.epoch != header.producer_epoch
            or not _is_behind(header.base_sequence, noted.sequence)
        ):
            return None
        return noted.sequence

    def forget(self, producer_id: int) -> None:
        """The producer has begun."""
        self._noted.pop(producer_id, None)

    def expire(self, before_ms: int) -> None:
        """Forget what was not sent since `before_ms`."""
        for producer_id in [one for one, noted in self._noted.items() if noted.noted_ms <= before_ms]:
            del self._noted[producer_id]


def _is_behind(sequence: int, other: int) -> bool:
    """Whether `sequence` comes after `other`, at most half the circle away: sequences wrap."""
    return 0 < (sequence - other) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
