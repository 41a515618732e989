"""A batch that grows record by record: a producer fills it while it lingers.

Records are encoded when they are added, so that sealing costs one compression and one checksum for any number of them.
The builder has no limits: the caller reads `size_bytes` and `upper_bound` and decides when a batch is full.
"""

from __future__ import annotations

from ottla.protocol.records.batch import COMPRESSION_MASK, HEADER_BYTES, TRANSACTIONAL_BIT, seal_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Headers, encode_plain_record, encode_record

_LARGEST_FIELDS_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""The maximum bytes of length, attributes, timestamp delta, offset delta, key length, value length and header count."""


class BatchBuilder:
    """Encoded records that wait for their header. Offsets count from 0; the broker assigns the real ones."""

    __slots__ = ("base_timestamp", "body", "max_timestamp", "record_count")

    def __init__(self) -> None:
        self.body = bytearray()
        self.record_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    @property
    def size_bytes(self) -> int:
        """The size of the batch if it were sealed now without compression."""
        return HEADER_BYTES + len(self.body)

    @staticmethod
    def upper_bound(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Return the most bytes that such a record can add to a batch."""
        size = _LARGEST_FIELDS_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in headers:
            size += 10 + 3 * len(name) + (0 if content is None else len(content))
        return size

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add a record and return its place in the batch, counted from 0.

        A record that cannot be encoded (a header that is not text and bytes) raises, and leaves the batch unchanged.
        """
        place = self.record_count
        if not place:
            self.base_timestamp = timestamp_ms
            if key is None and value is not None and not headers and timestamp_ms >= 0:
                self.max_timestamp = timestamp_ms
                self.body += encode_plain_record(value)
                self.record_count = 1
                return 0
        self.body += encode_record(timestamp_ms - self.base_timestamp, place, key, value, headers)
        if timestamp_ms > self.max_timestamp:  # noqa: PLR1730  # a call of max costs four times the comparison
            self.max_timestamp = timestamp_ms
        self.record_count = place + 1
        return place

    def append_encoded(self, record: bytes, now_ms: int) -> None:
        """Add an encoded record: encoded for the next place in the batch, with the time of the first record, which is
        `now_ms` if this is the first.
        """
        if not self.record_count:
            self.base_timestamp = self.max_timestamp = now_ms
        self.body += record
        self.record_count += 1

    def seal(
        self,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytearray:
        """Return the whole batch; raises ValueError when it has no record. The builder does not change."""
        if not self.record_count:
            raise ValueError("a batch holds at least one record")
        return seal_batch(
            self.body,
            base_offset=0,
            leader_epoch=-1,
            attributes=(compression & COMPRESSION_MASK) | (TRANSACTIONAL_BIT if is_transactional else 0),
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
            level=level,
        )
