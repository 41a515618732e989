"""The template of a Fetch without a session: the meaning of its bytes, and the fixed parts of its answer.

`fetch_templates.py` compares frames with it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.runtime.metrics import FIRST_BUCKET_US, REQUEST_BUCKETS_US
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import KafkaError
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode
from ottla.protocol.primitives import encode_unsigned_varint
from ottla.storage.log.log_reader import ANY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.fetch.parked_fetches import ParkedFetches
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import RequestMeter
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.types import Buffer
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
"""Offsets that are searched for in an encoded message: they mark the positions of the real ones."""
MOST_JOINED_BYTES: Final = 16 << 10
"""Records up to this size are copied once more, so that the answer is one piece."""
TOO_LITTLE: Final[list[Buffer]] = []
"""Returned instead of an answer where there are fewer records than the request asks for."""


class FetchTemplate:
    """The meaning of the remembered bytes, and the fixed parts of the answer."""

    __slots__ = (
        "_before",
        "_between",
        "_fixed_bytes",
        "_head_high_watermark",
        "_head_last_stable_offset",
        "_head_log_start_offset",
        "_head_rest",
        "_length",
        "_middle",
        "_size",
        "_version",
        "after",
        "asked",
        "committed_only",
        "deadlines",
        "frame_bytes",
        "front",
        "key",
        "log",
        "max_bytes",
        "may_park",
        "meter",
        "min_bytes",
        "pack_offsets",
        "partition",
        "quota",
        "reader",
        "shape",
        "suffix",
        "tail",
        "unpack",
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
        unpack: Callable[[memoryview, int], tuple[Any, ...]],
        quota: TemplateQuota | None = None,
    ) -> None:
        topic = request.topics[0]
        self._version = version
        self.unpack = unpack
        """Unpacks a frame at a position: `front`, correlation id, `key`, offset, `suffix`."""
        self.front = front
        self.key = key
        self.suffix = suffix
        self.frame_bytes = _LENGTH_BYTES + _INT32.unpack_from(front)[0]
        self.meter = meter
        self.partition = partition
        self.quota = quota
        self.log: Log = partition.log
        self.reader = self.log.reader
        max_bytes = min(request.max_bytes, max_fetch_bytes)
        self.min_bytes = min(request.min_bytes, max_bytes)
        self.max_bytes = max(min(topic.partitions[0].partition_max_bytes, max_bytes), 0)
        self.committed_only = request.isolation_level == READ_COMMITTED
        body = encode(self._response(topic), version)
        offsets = _OFFSETS if version >= FIRST_VERSION_WITH_LOG_START else _OFFSETS_BEFORE_5
        mark = body.index(offsets.pack(*MARKS[: len(offsets.format) - 1]))
        # After the offsets: aborted transactions and preferred replica, the records' length (of none), then tags.
        length_bytes, tags_bytes = (1, 3) if version >= FIRST_FLEXIBLE_VERSION else (4, 0)
        self._before = response_header(FetchRequest.message_key, version, 0)[4:] + body[:mark]
        self._between = body[mark + offsets.size : len(body) - length_bytes - tags_bytes]
        self.after = body[len(body) - tags_bytes :]
        self._length = -1
        self._size = self._middle = b""
        """The parts of an answer before and after its offsets, for the newest length of records (`_length`)."""
        self._head_high_watermark = self._head_last_stable_offset = self._head_log_start_offset = -1
        self._head_rest = b""
        """The head of the newest large answer after its correlation id, and the offsets in it: a client that reads old
        records gets the same head again and again.
        """
        self._fixed_bytes = CORRELATION_ID_BYTES + len(self._before) + offsets.size + len(self._between)
        self._fixed_bytes += len(self.after)
        """The size of an answer without its size field, the records and their length."""
        self.pack_offsets = offsets.pack if offsets is _OFFSETS else _pack_without_log_start
        """Packs high watermark, last stable offset and log start offset for answers of this version."""
        self.shape = b"".join((bytes([version]), self._before, self._between, self.after))
        """What all of its answers have in common."""
        self.asked = partition, self.max_bytes, self.min_bytes, self.committed_only
        """What requests must have in common, besides the offset, to share one read."""
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

    def is_enough(self, offset: int, read_bytes: int = 0) -> bool:
        """Whether a read from `offset` on that returned too little is to be answered: there are `min_bytes`, but the
        read had to end with a whole batch (as in `FetchRead`). `read_bytes`: how many it returned, if it was the log's
        newest read. Raises OSError.
        """
        partition, committed_only = self.partition, self.committed_only
        if not partition.has_more(offset, read_bytes, committed_only):
            return False
        visible = partition.visible_bytes(offset, committed_only)
        return visible >= ANY_BYTES or min(visible, self.max_bytes) >= self.min_bytes

    def answer(
        self,
        correlation_id: bytes,
        offset: int,
        started_ns: int,
        sends_maps: bool,
        min_bytes: int,
        read_on: Callable[[int, int, int, bool], Buffer | None],
        now_ns: Callable[[], int],
    ) -> list[Buffer] | None:
        """The answer to a request that began at `started_ns` of the clock `now_ns`; it is counted. TOO_LITTLE where
        there are not `min_bytes`; None where the slow path must answer. `read_on` is that of the log's reader, or
        `read_newest` for a request that has waited.

        Used for requests that are answered immediately and for those that have waited. All of it but the look-up in the
        log is in this one function: a consumer's next request finds the processor's caches cold, and each further
        function cost up to 0.5 us.
        """
        partition, committed_only = self.partition, self.committed_only
        if partition.gathered:
            partition.settle()
        high_watermark = last_stable_offset = partition.high_watermark
        log = self.log
        transactions = log.transactions
        try:
            if not committed_only or (
                high_watermark <= transactions.first_open_offset and offset > transactions.last_aborted_offset
            ):
                # `Partition.read_on`, without the call: it would only choose the high watermark as the end.
                records = read_on(offset, self.max_bytes, high_watermark, sends_maps)
            elif partition.must_list_aborted(offset):
                return None  # the slow path lists what was aborted in the records
            else:
                records = partition.read_on(offset, self.max_bytes, True, True, sends_maps)
            if records is None or (length := len(records)) < min_bytes:
                if offset == high_watermark and min_bytes:
                    return TOO_LITTLE
                records = partition.read(offset, self.max_bytes, True, committed_only, sends_maps).view
                if records is None:
                    return None
                length = len(records)
                if length < min_bytes and not (length and self.is_enough(offset, length)):
                    return TOO_LITTLE
        except (KafkaError, OSError):
            return None  # the slow path meets the error again and returns it
        quota = self.quota
        if quota is not None and not quota.may_fetch(length):
            return None  # the slow path charges it, and answers it empty
        if high_watermark > transactions.first_open_offset:
            last_stable_offset = partition.last_stable_offset
        log_start_offset = log.log_start_offset
        counters = partition.counters
        counters.total_fetch_requests += 1
        counters.bytes_out += length
        # `RequestMeter.note`, without the call.
        meter, elapsed_us = self.meter, (now_ns() - started_ns) // 1000
        times = meter.times
        meter.count += 1
        times.counts[0 if elapsed_us <= FIRST_BUCKET_US else bisect_left(REQUEST_BUCKETS_US, elapsed_us)] += 1
        times.sum_us += elapsed_us
        if length <= MOST_JOINED_BYTES:
            # `encode_head`, without the call, and without an object for the head.
            if length != self._length:
                self._set_length(length)
            pack = self.pack_offsets
            offsets = pack(high_watermark, last_stable_offset, log_start_offset)
            return [b"".join((self._size, correlation_id, self._before, offsets, self._middle, records, self.after))]
        if (
            length != self._length
            or high_watermark != self._head_high_watermark
            or last_stable_offset != self._head_last_stable_offset
            or log_start_offset != self._head_log_start_offset
        ):
            head = self.encode_head(correlation_id, high_watermark, last_stable_offset, log_start_offset, length)
            self._head_rest = head[_LENGTH_BYTES + CORRELATION_ID_BYTES :]
            self._head_high_watermark, self._head_last_stable_offset = high_watermark, last_stable_offset
            self._head_log_start_offset = log_start_offset
        # Three pieces: sending two more would take longer than this concatenation.
        return [self._size + correlation_id + self._head_rest, records, self.after]

    def encode_head(
        self, correlation_id: bytes, high_watermark: int, last_stable_offset: int, log_start_offset: int, length: int
    ) -> bytes:
        """The frame of an answer up to its record bytes, of which `length` follow."""
        if length != self._length:
            self._set_length(length)
        pack = self.pack_offsets
        offsets = pack(high_watermark, last_stable_offset, log_start_offset)
        return b"".join((self._size, correlation_id, self._before, offsets, self._middle))

    def _set_length(self, length: int) -> None:
        """Set the parts that depend on the length of the records: the size field, and what is before the records."""
        is_flexible = self._version >= FIRST_FLEXIBLE_VERSION
        length_field = encode_unsigned_varint(length + 1) if is_flexible else _INT32.pack(length)
        self._size, self._length = _INT32.pack(self._fixed_bytes + len(length_field) + length), length
        self._middle = self._between + length_field
        self._head_high_watermark = -1  # the remembered head is for another length


def _pack_without_log_start(high_watermark: int, last_stable_offset: int, log_start_offset: int) -> bytes:
    return _OFFSETS_BEFORE_5.pack(high_watermark, last_stable_offset)
