"""The markers of one ended transaction: one in each of its partitions, retried until all are visible.

A deleted partition needs none. If a partition cannot be written now (its directory is offline or full, its group's
shard is being loaded), the shard tries again: its timer calls `write_missing`. If a partition refuses a marker
permanently, because a newer producer or coordinator has written there, it is not retried: the newer one has ended the
transaction. Source: Kafka's `TransactionMarkerChannelManager`.

Many markers are written over several turns, so that other requests run in between: 64 in each turn, or as many as begin
within 3 ms, since a marker that begins a segment costs ten to a hundred times as much. So a reader may see the end in
one partition before it is in another, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.transactions.settings import MarkerWriter
    from ottla.broker.transactions.state import TopicPartition, Transaction
    from ottla.storage.files.clock import Clock

logger = logging.getLogger(__name__)

MARKERS_PER_TURN: Final = 64
"""2 ms, if none begins a segment."""
TURN_MS: Final = 3
"""After this time a turn begins no further marker: one that begins a segment takes 0.2 to 3 ms."""

_REFUSED_FOR_GOOD = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The topic was deleted while the transaction was open, which is normal."""


class Marking:
    """The markers of `ended`. `visible` is called with its transactional id when all are visible, `delayed` when some
    have to be tried again. `later` runs a step in a later turn.
    """

    __slots__ = (
        *("_clock", "_coordinator_epoch", "_delayed", "_is_beginning", "_later", "_missing", "_rest", "_under_way"),
        *("_visible", "_write_marker", "ended"),
    )

    def __init__(
        self,
        ended: Transaction,
        coordinator_epoch: int,
        write_marker: MarkerWriter,
        clock: Clock,
        later: Callable[[Callable[[], None]], None],
        *,
        visible: Callable[[str], None],
        delayed: Callable[[str], None],
    ) -> None:
        self.ended = ended
        self._coordinator_epoch = coordinator_epoch
        self._write_marker = write_marker
        self._visible = visible
        self._delayed = delayed
        self._clock = clock
        self._later = later
        self._missing = set(ended.partitions)
        self._rest: list[TopicPartition] = []
        self._under_way = 0
        self._is_beginning = False

    def write_missing(self) -> None:
        """Write the markers that are not visible yet, some of them now; do nothing while some are being written."""
        if self._under_way or self._is_beginning:
            return
        self._is_beginning = True
        self._rest = sorted(self._missing, reverse=True)
        self._write_some()

    def stop(self) -> None:
        """Begin no further marker: another shard will, and by then the producer may have begun another transaction."""
        self._rest.clear()

    def _write_some(self) -> None:
        """Write the markers of one turn."""
        rest = self._rest
        left, end_ms = MARKERS_PER_TURN, self._clock.monotonic_ms() + TURN_MS
        while rest:
            if not left or self._clock.monotonic_ms() >= end_ms:
                self._later(self._write_some)
                return
            left -= 1
            where = rest.pop()
            self._under_way += 1
            self._write_marker(where, self.ended, self._coordinator_epoch, partial(self._done, where))
        self._is_beginning = False
        self._look()

    def note(self, where: TopicPartition, error: BaseException) -> None:
        """Note an error of the marker in `where`, which the caller has tried to write."""
        self._under_way += 1
        self._done(where, error)

    def _done(self, where: TopicPartition, error: BaseException | None) -> None:
        self._under_way -= 1
        if error is None:
            self._missing.discard(where)
        elif isinstance(error, KafkaError) and error.code in _REFUSED_FOR_GOOD | _GONE:
            self._missing.discard(where)
            logger.log(
                logging.INFO if error.code in _GONE else logging.WARNING,
                "transactional id %r: %s-%d does not take the marker of producer %d, epoch %d: %s",
                self.ended.transactional_id,
                *where,
                self.ended.producer_id,
                self.ended.producer_epoch,
                error,
            )
        else:
            logger.info("transactional id %r: no marker in %s-%d yet: %s", self.ended.transactional_id, *where, error)
        if not self._is_beginning:
            self._look()

    def _look(self) -> None:
        if not self._under_way:
            if self._missing:
                self._delayed(self.ended.transactional_id)
            else:
                self._visible(self.ended.transactional_id)
