"""The acquired records of an answer, decoded: only records of acquired ranges, each with its delivery count.

What cannot be given to the program is acknowledged by the client, as in Kafka's `ShareCompletedFetch`: an offset
without a record as a gap, a damaged batch as rejected, a record that a deserializer refuses as released. The last two
are also errors, which the program gets in their place among the records. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.client.decoded_records import OFFSET, Row
from ottla.client.errors import CorruptRecords, KafkaError, UndecodableRecord
from ottla.client.structs import TopicPartition
from ottla.protocol.api.share_fetch import AcknowledgeType, ShareFetchResponse
from ottla.protocol.records.batch import MAGIC, BatchHeader, CorruptBatch, decode_rows
from ottla.protocol.records.formats import iter_any
from ottla.protocol.records.legacy import decode_message

Range = tuple[int, int, int]
"""First offset, last offset and delivery count."""


@dataclass(slots=True)
class Acquisition:
    """`pieces` are rows of ShareRecords and errors, in the order of their offsets; `refused` are acknowledgements."""

    pieces: list[list[Row] | KafkaError] = field(default_factory=list)
    refused: list[tuple[int, int, AcknowledgeType]] = field(default_factory=list)
    """First offset, last offset and type of the offsets that the program does not get."""

    def add(self, rows: list[Row]) -> None:
        """Add rows after the others."""
        if not rows:
            return
        if self.pieces and isinstance(self.pieces[-1], list):
            self.pieces[-1] += rows
        else:
            self.pieces.append(rows)


@dataclass(frozen=True, slots=True)
class Decoder:
    """The options that matter for decoding."""

    check_crcs: bool
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None

    def decode(self, partition: TopicPartition, answered: ShareFetchResponse.PartitionData) -> Acquisition:
        """Return what an answer has acquired of a partition."""
        ranges = [(one.first_offset, one.last_offset, one.delivery_count) for one in answered.acquired_records]
        ranges.sort()
        found = Acquisition()
        known_until = ranges[0][0] if ranges else 0
        """The offset before which everything acquired is in `found`."""
        data = memoryview(answered.records or b"")
        end = 0
        try:
            for position, header in iter_any(data, allow_partial_tail=True):
                end = position + header.size_bytes
                wanted = _overlapping(ranges, header.base_offset, header.last_offset)
                if not wanted:
                    continue
                batch = data[position:end]
                known_until = self._decode_batch(partition, batch, header, wanted, known_until, found, ranges)
        except CorruptBatch as corrupt:  # not even the batch's header can be read: everything after it is lost
            found.pieces.append(CorruptRecords(partition, known_until, str(corrupt)))
            _refuse(found, ranges, known_until, ranges[-1][1] if ranges else -1, AcknowledgeType.REJECT)
            return found
        if ranges:  # after the last batch there are no records, unless the answer does not have all of them
            kind = AcknowledgeType.GAP if end == len(data) else AcknowledgeType.RELEASE
            _refuse(found, ranges, known_until, ranges[-1][1], kind)
        return found

    def _decode_batch(
        self,
        partition: TopicPartition,
        batch: memoryview,
        header: BatchHeader,
        wanted: list[Range],
        known_until: int,
        found: Acquisition,
        ranges: list[Range],
    ) -> int:
        """Add the records of a batch, and the gaps before and between them; return the offset after the batch."""
        next_offset = header.last_offset + 1
        try:
            rows = self._rows(partition, batch, header)
        except CorruptBatch as corrupt:
            _refuse(found, ranges, known_until, header.base_offset - 1, AcknowledgeType.GAP)
            _refuse(found, wanted, header.base_offset, header.last_offset, AcknowledgeType.REJECT)
            error = CorruptRecords(partition, header.base_offset, str(corrupt), next_offset=next_offset)
            found.pieces.append(error)
            return next_offset
        _refuse(found, ranges, known_until, header.base_offset - 1, AcknowledgeType.GAP)
        for acquired_first, acquired_last, count in wanted:
            first, last = max(acquired_first, header.base_offset), min(acquired_last, header.last_offset)
            some = rows
            if first > header.base_offset or last < header.last_offset:
                low = bisect_left(rows, first, key=_offset)
                some = rows[low : bisect_right(rows, last, lo=low, key=_offset)]
            if len(some) < last - first + 1:
                _refuse_missing(found, some, first, last)
            self._add(partition, found, some, count)
        return max(known_until, next_offset)

    def _rows(self, partition: TopicPartition, batch: memoryview, header: BatchHeader) -> list[Row]:
        if header.is_control:
            return []
        if header.magic < MAGIC:  # written before Kafka 0.11, and still in the log
            return [(*partition, *record) for record in decode_message(batch, check_crc=self.check_crcs)]
        return decode_rows(batch, partition, check_crc=self.check_crcs)

    def _add(self, partition: TopicPartition, found: Acquisition, rows: Sequence[Row], count: int) -> None:
        if self.key_deserializer is None and self.value_deserializer is None:
            found.add([(*row, count) for row in rows])
            return
        made: list[Row] = []
        for row in rows:
            try:
                made.append((*self._deserialized(row), count))
            except Exception as refused:  # whatever a program's own code raises
                found.add(made)
                made = []
                offset = row[OFFSET]
                found.pieces.append(UndecodableRecord(partition, offset, row[4], row[5], refused))
                found.refused.append((offset, offset, AcknowledgeType.RELEASE))
        found.add(made)

    def _deserialized(self, row: Row) -> Row:
        topic, partition, offset, timestamp_ms, key, value, headers = row
        if key is not None and self.key_deserializer is not None:
            key = self.key_deserializer(key)
        if value is not None and self.value_deserializer is not None:
            value = self.value_deserializer(value)
        return topic, partition, offset, timestamp_ms, key, value, headers


def _offset(row: Row) -> int:
    offset: int = row[OFFSET]
    return offset


def _overlapping(ranges: list[Range], first: int, last: int) -> list[Range]:
    if len(ranges) == 1:
        return ranges if ranges[0][0] <= last and ranges[0][1] >= first else []
    return [one for one in ranges if one[0] <= last and one[1] >= first]


def _refuse(found: Acquisition, ranges: list[Range], first: int, last: int, kind: AcknowledgeType) -> None:
    """Acknowledge the acquired ones of some offsets."""
    if first > last:
        return
    for low, high, _ in ranges:
        if low <= last and high >= first:
            found.refused.append((max(low, first), min(high, last), kind))


def _refuse_missing(found: Acquisition, rows: Sequence[Row], first: int, last: int) -> None:
    """Acknowledge the offsets from first to last that have no record as gaps."""
    expected = first
    for row in rows:
        offset = row[OFFSET]
        if offset > expected:
            found.refused.append((expected, offset - 1, AcknowledgeType.GAP))
        expected = offset + 1
    if expected <= last:
        found.refused.append((expected, last, AcknowledgeType.GAP))
