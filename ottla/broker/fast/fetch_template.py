"""The template of a Fetch without a session: what its bytes mean, and the answer around what differs.

How frames are compared with it is `fetch_templates.py`'s to know.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode
from ottla.protocol.primitives import encode_unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.fetch.parked_fetches import ParkedFetches
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import RequestMeter
    from ottla.storage.log.log import Log

READ_COMMITTED = 1
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_LOG_START = 5
CORRELATION_ID_BYTES = 4
_LENGTH_BYTES = 4
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSETS = struct.Struct(">qqq")
_OFFSETS_BEFORE_5 = struct.Struct(">qq")
MARKS = (0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203, 0x1DEA_5EED_0405_0607)
"""Offsets that are looked for in encoded messages: where they stand, others will."""


class FetchTemplate:
    """What the remembered bytes mean, and the answer around what differs."""

    __slots__ = (
        "_before",
        "_between",
        "_length_field",
        "_pack_head",
        "_version",
        "after",
        "asked",
        "committed_only",
        "deadlines",
        "front",
        "head_high_watermark",
        "head_last_stable_offset",
        "head_length",
        "head_log_start_offset",
        "head_rest",
        "head_size",
        "key",
        "log",
        "max_bytes",
        "may_park",
        "meter",
        "min_bytes",
        "partition",
        "read_on",
        "shape",
        "suffix",
        "tail",
    )

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        partition: Partition,
        front: bytes,
        key: bytes,
        suffix: bytes,
        max_fetch_bytes: int,
        meter: RequestMeter,
        parked_fetches: ParkedFetches,
    ) -> None:
        topic = request.topics[0]
        self._version = version
        self.front = front
        self.key = key
        self.suffix = suffix
        self.head_high_watermark = self.head_last_stable_offset = self.head_log_start_offset = self.head_length = -1
        self.head_size = self.head_rest = b""
        self.meter = meter
        self.partition = partition
        self.log: Log = partition.log
        self.read_on = self.log.reader.read_on
        max_bytes = min(request.max_bytes, max_fetch_bytes)
        self.min_bytes = min(request.min_bytes, max_bytes)
        self.max_bytes = max(min(topic.partitions[0].partition_max_bytes, max_bytes), 0)
        self.committed_only = request.isolation_level == READ_COMMITTED
        body = encode(self._response(topic), version)
        offsets = _OFFSETS if version >= FIRST_VERSION_WITH_LOG_START else _OFFSETS_BEFORE_5
        mark = body.index(offsets.pack(*MARKS[: len(offsets.format) - 1]))
        # Behind the offsets: aborted transactions and preferred replica, the records' length (of none), then tags.
        length_bytes, tags_bytes = (1, 3) if version >= FIRST_FLEXIBLE_VERSION else (4, 0)
        self._before = response_header(FetchRequest.message_key, version, 0)[4:] + body[:mark]
        self._between = body[mark + offsets.size : len(body) - length_bytes - tags_bytes]
        self.after = body[len(body) - tags_bytes :]
        self._length_field = b""
        self._pack_head = struct.Struct(f">{len(self._before)}s{offsets.format[1:]}{len(self._between)}s").pack
        self.shape = b"".join((bytes([version]), self._before, self._between, self.after))
        """What is the same in all of its answers."""
        self.asked = partition, self.max_bytes, self.min_bytes, self.committed_only
        """What those ask for that share what was read, but for the offset."""
        self.may_park = request.max_wait_ms > 0 and self.min_bytes > 0
        self.deadlines = parked_fetches.deadlines(request.max_wait_ms)
        self.tail = parked_fetches.tail_of(partition)

    def _response(self, topic: FetchRequest.FetchTopic) -> FetchResponse:
        data = FetchResponse.PartitionData(
            partition_index=topic.partitions[0].partition,
            high_watermark=MARKS[0],
            last_stable_offset=MARKS[1],
            log_start_offset=MARKS[2] if self._version >= FIRST_VERSION_WITH_LOG_START else -1,
            aborted_transactions=[] if self.committed_only else None,
            records=b"",
        )
        named = FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        return FetchResponse(responses=[named])

    def frame(self, correlation_id: bytes, offset: int) -> bytes:
        """The request that asks for `offset`, without its length."""
        return b"".join((self.front[_LENGTH_BYTES:], correlation_id, self.key, _INT64.pack(offset), self.suffix))

    def encode_head(self, high_watermark: int, last_stable_offset: int, log_start_offset: int, length: int) -> None:
        """Remember the frame of an answer up to its record bytes: its size, and all that is behind the correlation id.

        It is made of the three offsets, and of how many record bytes come.
        """
        if self._version >= FIRST_VERSION_WITH_LOG_START:
            rest = self._pack_head(self._before, high_watermark, last_stable_offset, log_start_offset, self._between)
        else:
            rest = self._pack_head(self._before, high_watermark, last_stable_offset, self._between)
        if length != self.head_length:
            is_flexible = self._version >= FIRST_FLEXIBLE_VERSION
            self._length_field = encode_unsigned_varint(length + 1) if is_flexible else _INT32.pack(length)
            head_bytes = CORRELATION_ID_BYTES + len(rest) + len(self._length_field)
            self.head_size = _INT32.pack(head_bytes + length + len(self.after))
            self.head_length = length
        self.head_rest = rest + self._length_field
        self.head_high_watermark, self.head_last_stable_offset = high_watermark, last_stable_offset
        self.head_log_start_offset = log_start_offset
