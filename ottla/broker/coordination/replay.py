"""The replay of a shard's log, which restores the shard's state: read in pieces, replayed in small steps.

Records are replayed in their order. Of the types that the codec lists as `newest_only` only the newest record of a key
counts. So their bytes are kept by key until the end of the log, and only then decoded: a log that has not been cleaned
holds a partition's committed offset thousands of times.

Unusable data never stops a load. Batches that are damaged, and records that are malformed or of unknown types, are
counted, logged once, and skipped; they stay in the log. `newest_only` records of a transaction become valid if its
marker is COMMIT, unless a newer one was written since (`pending_values.py`). Those of transactions that are open at the
end of the log are replayed as such, so that a later marker finds them. Where a damaged batch contained the marker, the
log knows that the transaction is not open, and its records are skipped. Records of other types are valid immediately;
Kafka writes none of them in transactions.

Memory: one piece, and the newest records. Source: Kafka's `CoordinatorLoaderImpl`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.coordination.pending_values import PendingValues
from ottla.protocol.errors import KafkaError, MalformedMessage
from ottla.protocol.records.batch import BatchHeader, CorruptBatch, decode_batch, iter_batches
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.protocol.stored.unknown import UnknownRecord

if TYPE_CHECKING:
    from ottla.broker.coordination.records import RecordCodec
    from ottla.protocol.message import Struct
    from ottla.storage.log.log import Log
    from ottla.storage.segment.slice import LogSlice

logger = logging.getLogger(__name__)

RECORDS_PER_STEP = 500

Apply = Callable[["Struct", "Struct | None"], None]
ApplyOpen = Callable[[int, "Struct", "Struct"], None]
NO_PRODUCER_ID = -1
_Rest = tuple[int, bytes, bytes]
"""An item that is left at the end of the log: a producer id, or -1 without an open transaction; key and value."""


class LogReplay:
    """Replays the log from its start to the end that it has when this is created. `apply(key, value)` gets each record,
    `apply_open(producer_id, key, value)` each `newest_only` record of a transaction that is still open.
    `open_producers` returns the producers whose transactions the log knows to be open at its end.

    Usage: while not `is_done`: `feed(read().read_blocking())` until `is_read`, then `step()`.
    """

    def __init__(
        self,
        log: Log,
        codec: RecordCodec,
        apply: Apply,
        apply_open: ApplyOpen,
        open_producers: Callable[[], Collection[int]],
    ) -> None:
        self.next_offset = log.log_start_offset
        self.end_offset = log.log_end_offset
        self.record_count = 0
        self.skipped: Counter[str] = Counter()
        """The number of skipped records, by reason."""
        self._log = log
        self._codec = codec
        self._apply = apply
        self._apply_open = apply_open
        self._open_producers = open_producers
        self._newest_types = tuple(codec.newest_only)
        self._renamed_types = tuple(old for old, new in codec.newest_only.items() if old != new)
        self._newest: dict[bytes, bytes] = {}
        """The values of `newest_only` records by their keys."""
        self._open: PendingValues[bytes, bytes] = PendingValues()
        """The `newest_only` records that open transactions have written."""
        self._rest: Iterator[_Rest] | None = None
        self.is_done = False

    @property
    def is_read(self) -> bool:
        """Whether the end of the log has been reached; `step` does the rest."""
        return self.next_offset >= self.end_offset

    def read(self, max_bytes: int) -> LogSlice | None:
        """The next piece, which may have to be read from the disk; None when damage was skipped instead.

        Damage that appears only then, as a KafkaError of `read_blocking`, must be skipped by the caller (`pass_over`).

        Raises:
            OSError: the disk failed.
        """
        try:
            return self._log.read(
                self.next_offset, max_bytes, end_offset=self.end_offset, allow_map=False, is_checked=False
            )
        except KafkaError as error:
            self.pass_over(str(error))
            return None

    def feed(self, data: bytes) -> None:
        """Replay the whole batches of one piece."""
        start_offset = self.next_offset
        try:
            for position, header in iter_batches(data, allow_partial_tail=True):
                if header.next_offset > self.next_offset:
                    self._replay_batch(memoryview(data)[position:], header)
                    self.next_offset = header.next_offset
        except CorruptBatch as error:
            self.pass_over(str(error))
        if self.next_offset == start_offset and not self.is_read:
            self.pass_over(f"nothing could be read at offset {start_offset}")

    def pass_over(self, reason: str) -> None:
        """Skip to the next segment: the end of the data at `next_offset` cannot be trusted."""
        bases = [segment.base_offset for segment in self._log.segments if segment.base_offset > self.next_offset]
        logger.error("%s: cannot be read from offset %d on: %s", self._log.name, self.next_offset, reason)
        self.skipped["stretches of the log"] += 1
        self.next_offset = min([*bases, self.end_offset])

    def step(self) -> None:
        """After the end of the log: decode some of the newest records; `is_done` when none is left."""
        if self._rest is None:
            self._rest = self._collect_rest()
        for _ in range(RECORDS_PER_STEP):
            item = next(self._rest, None)
            if item is None:
                self._finish()
                return
            producer_id, key, value = item
            self._replay_record(key, value, producer_id)

    def _collect_rest(self) -> Iterator[_Rest]:
        """The newest records, in an order that has the same effect as the log's: values of open transactions that they
        supersede come before them, later values after them.
        """
        older: list[_Rest] = []
        later: list[_Rest] = []
        known = self._open_producers()
        for producer_id, key, one in self._open.in_order():
            if producer_id not in known:
                self.skipped["records of transactions without an end"] += 1
            else:
                (older if one.is_superseded else later).append((producer_id, key, one.value))
        newest = ((NO_PRODUCER_ID, key, value) for key, value in self._newest.items())
        return chain(older, newest, later)

    def _finish(self) -> None:
        self.is_done = True
        self._newest = {}
        self._open = PendingValues()
        self._rest = None
        for reason, count in self.skipped.items():
            logger.error("%s: the load skipped %d %s", self._log.name, count, reason)

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> None:
        try:
            records = decode_batch(batch)
            if header.is_control:
                for record in records:
                    self._end_transaction(header.producer_id, record.key)
                return
        except CorruptBatch as error:
            self.skipped["damaged batches"] += 1
            logger.error(
                "%s: offsets %d to %d are damaged: %s", self._log.name, header.base_offset, header.last_offset, error
            )
            return
        self.record_count += len(records)
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        newest_types, renamed_types = self._newest_types, self._renamed_types
        for record in records:
            key, value = record.key, record.value
            if key is None:
                self.skipped["records without a key"] += 1
                continue
            if key.startswith(newest_types):
                if key.startswith(renamed_types):
                    key = self._codec.newest_only[key[:2]] + key[2:]
                self._note_newest(key, value, producer_id)
            else:
                self._replay_record(key, value)

    def _note_newest(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        if value is None:
            self._newest.pop(key, None)
            self._open.forget(key)
        elif producer_id != NO_PRODUCER_ID:
            self._open.write(producer_id, key, value)
        else:
            self._newest[key] = value
            if self._open:
                self._open.supersede(key)

    def _end_transaction(self, producer_id: int, key: bytes | None) -> None:
        kind = decode_control_key(key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            self._newest.update(self._open.end(producer_id, is_commit=kind is ControlType.COMMIT))

    def _replay_record(self, key_bytes: bytes, value_bytes: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        try:
            key, value = self._codec.decode(key_bytes, value_bytes)
        except MalformedMessage as error:
            self.skipped["malformed records"] += 1
            logger.debug("%s: a record cannot be read: %s", self._log.name, error)
            return
        if isinstance(key, UnknownRecord):
            self.skipped[f"records of type {key.record_type}, which this version does not know"] += 1
            return
        if producer_id == NO_PRODUCER_ID:
            self._apply(key, value)
        elif value is not None:
            self._apply_open(producer_id, key, value)
