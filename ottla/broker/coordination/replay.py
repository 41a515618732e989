"""Bringing the state of a shard back from its log: read in pieces, replayed in small steps.

Records are replayed as they come. Of the types that the codec lists as `newest_only` only the newest record of a key
counts, so their bytes are kept by key until the end of the log and only then decoded: a log that has not been cleaned
holds a partition's committed offset thousands of times.

What cannot be used never stops a load: batches that are damaged, records that are malformed or of unknown types are
counted, logged once, and skipped; they stay in the log. `newest_only` records that a transaction has written count when
its marker is COMMIT, unless a newer one was written since. One whose marker is not there yet does not count: nobody can
end a transaction here. Records of other types count at once, and Kafka writes none of them in transactions.

Memory: one piece, and what the newest records take. Source: Kafka's `CoordinatorLoaderImpl`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

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


class LogReplay:
    """Replays the log from its start to the end that it has when this is made. `apply(key, value)` gets each record.

    Usage: while not `is_done`: `feed(read().read_blocking())` until `is_read`, then `step()`.
    """

    def __init__(self, log: Log, codec: RecordCodec, apply: Apply) -> None:
        self.next_offset = log.log_start_offset
        self.end_offset = log.log_end_offset
        self.record_count = 0
        self.skipped: Counter[str] = Counter()
        """What was not used, by reason."""
        self._log = log
        self._codec = codec
        self._apply = apply
        self._newest_types = tuple(codec.newest_only)
        self._renamed_types = tuple(old for old, new in codec.newest_only.items() if old != new)
        self._newest: dict[bytes, bytes] = {}
        """The values of `newest_only` records by their keys."""
        self._pending: dict[int, dict[bytes, bytes | None]] = {}
        """What open transactions have written of them, by producer id."""
        self._rest: Iterator[tuple[bytes, bytes]] | None = None
        self.is_done = False

    @property
    def is_read(self) -> bool:
        """Whether the end of the log was reached; `step` does what is left."""
        return self.next_offset >= self.end_offset

    def read(self, max_bytes: int) -> LogSlice | None:
        """The next piece, which may have to come from the disk; None when damage was passed over instead.

        Damage that shows only then, as a KafkaError of `read_blocking`, is the caller's to `pass_over`.

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
        """What lies at `next_offset` has no end that could be trusted: go on with the next segment."""
        bases = [segment.base_offset for segment in self._log.segments if segment.base_offset > self.next_offset]
        logger.error("%s: cannot be read from offset %d on: %s", self._log.name, self.next_offset, reason)
        self.skipped["stretches of the log"] += 1
        self.next_offset = min([*bases, self.end_offset])

    def step(self) -> None:
        """Behind the end of the log: decode some of the newest records; `is_done` when none is left."""
        if self._rest is None:
            if self._pending:
                count = sum(map(len, self._pending.values()))
                self.skipped["records of transactions without an end"] += count
            self._rest = iter(self._newest.items())
        for _ in range(RECORDS_PER_STEP):
            item = next(self._rest, None)
            if item is None:
                self._finish()
                return
            self._replay_record(*item)

    def _finish(self) -> None:
        self.is_done = True
        self._newest = {}
        self._rest = None
        for reason, count in self.skipped.items():
            logger.error("%s: not used at the load: %d %s", self._log.name, count, reason)

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
        pending = self._pending.setdefault(header.producer_id, {}) if header.is_transactional else None
        newest_types, renamed_types = self._newest_types, self._renamed_types
        for record in records:
            key, value = record.key, record.value
            if key is None:
                self.skipped["records without a key"] += 1
                continue
            if key.startswith(newest_types):
                if key.startswith(renamed_types):
                    key = self._codec.newest_only[key[:2]] + key[2:]
                self._note_newest(key, value, pending)
            else:
                self._replay_record(key, value)

    def _note_newest(self, key: bytes, value: bytes | None, pending: dict[bytes, bytes | None] | None) -> None:
        if pending is not None:
            pending[key] = value
            return
        if self._pending:
            for of_producer in self._pending.values():
                of_producer.pop(key, None)
        if value is None:
            self._newest.pop(key, None)
        else:
            self._newest[key] = value

    def _end_transaction(self, producer_id: int, key: bytes | None) -> None:
        kind = decode_control_key(key)
        if kind not in (ControlType.COMMIT, ControlType.ABORT):
            return
        pending = self._pending.pop(producer_id, {})
        if kind is ControlType.COMMIT:
            for newest_key, value in pending.items():
                self._note_newest(newest_key, value, None)

    def _replay_record(self, key_bytes: bytes, value_bytes: bytes | None) -> None:
        try:
            key, value = self._codec.decode(key_bytes, value_bytes)
        except MalformedMessage as error:
            self.skipped["malformed records"] += 1
            logger.debug("%s: a record cannot be read: %s", self._log.name, error)
            return
        if isinstance(key, UnknownRecord):
            self.skipped[f"records of type {key.record_type}, which this version does not know"] += 1
            return
        self._apply(key, value)
