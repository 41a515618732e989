"""The state of one idempotent producer: its epoch and its last five batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

REMEMBERED_BATCHES: Final = 5
"""As many as an idempotent producer may have in flight (KAFKA-5494)."""
MAX_SEQUENCE: Final = 2**31 - 1
MAX_EPOCH: Final = 2**15 - 1
IN_TRANSACTION: Final = 1 << 16
"""Added to the epoch of transactional batches while they are appended. So the loop over the batches treats one of
another kind like one of another epoch, without an extra comparison."""


class RememberedBatch(NamedTuple):
    """One batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record; sequences wrap."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


BatchFields = tuple[int, int, int, int]
"""The fields of a `RememberedBatch`, in order."""
NO_BATCH: Final[BatchFields] = (-1, -1, 0, -1)
"""Represents the newest batch where none is known, also in a snapshot."""
NO_TRANSACTION: Final = (-1, -1)
"""The value of nearly all producers; the same object for all."""


class ProducerEntry(NamedTuple):
    """One producer as of its last batch. Immutable: an append makes a new one, so that a failed write has nothing to
    undo.

    It has the fields of the newest batch itself, not in a separate object: a partition may have 200,000 producers, most
    of them with one batch. If only a transaction marker was seen in this epoch, the fields are NO_BATCH.
    """

    producer_id: int
    epoch: int
    last_seen_ms: int
    """Wall time of the last append, for expiry; never stored."""
    transaction: tuple[int, int]
    """The coordinator's epoch, and the first offset of the open transaction (-1: none is open)."""
    earlier: tuple[BatchFields, ...]
    """The batches before the newest, oldest first, as plain tuples: each append creates some, and few are checked."""
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @classmethod
    def of(
        cls,
        producer_id: int,
        epoch: int,
        batches: Sequence[BatchFields],
        last_seen_ms: int,
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = -1,
    ) -> Self:
        """Make an entry with these batches, at most `REMEMBERED_BATCHES`, oldest first."""
        transaction = (coordinator_epoch, current_txn_first_offset)
        transaction = NO_TRANSACTION if transaction == NO_TRANSACTION else transaction
        newest = batches[-1] if batches else NO_BATCH
        return cls(producer_id, epoch, last_seen_ms, transaction, tuple(batches[:-1]), *newest)

    @property
    def batches(self) -> tuple[RememberedBatch, ...]:
        """The batches, oldest first, at most `REMEMBERED_BATCHES`; none if only a marker was seen in this epoch."""
        if self.last_offset < 0:
            return ()
        newest = RememberedBatch(self.last_sequence, self.last_offset, self.offset_delta, self.timestamp_ms)
        return (*map(RememberedBatch._make, self.earlier), newest)

    @property
    def coordinator_epoch(self) -> int:
        """The epoch of the last transaction marker, -1 without one."""
        return self.transaction[0]

    @property
    def current_txn_first_offset(self) -> int:
        """The first offset of its open transaction, -1 without one."""
        return self.transaction[1]
