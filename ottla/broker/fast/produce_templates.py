"""Templates of Produce requests: from frames that look like earlier ones to a batch appended and an answer encoded.

A producer sends the same bytes between correlation id and records again and again: client id, acks, timeout, topic,
partition. What they mean is remembered per connection, so a request of that template needs no decoding and its answer
no encoding: only the records' length, the correlation id and the offsets differ.

    api key 2 · version 2 · correlation id 4 | client id ... topic, partition | records' length | records | 0 0 0
                                               ------- the template's key ---                              (flexible)

A template is learnt from a request that took the slow path (`api/produce.py`), and only where the slow path would do
the same: one topic, one partition, acks -1 or 1, no transactional id, no tagged fields, a partition that is there. How
long it holds is `hot_path.py`'s to know. Its answer is packed of parts that stay: its length, tags and topic before the
base offset, log append time and log start offset behind it. Every error is encoded as the slow path encodes it.

What a pipelining producer has sent stands frame behind frame in one read. Those of one template are one *run*
(`produce_run.py`): gathered, answered and counted together, each with an answer of its own.

A connection that has been the only one to send for a while, and whose answers need not wait for the disk, is answered
within the read (`ProduceTemplates.answer`): without a turn and without an entry in the reply queue. The client
sleeps until the answer comes, the processor does something else, and the next request finds its caches cold; so what
counts on this path is less how often something is done than how many different things are (`scripts/bench-lines` counts
the cache lines). What a warm loop hides costs most: a keyword given to `zip`, the function of a list comprehension, a
property, a named tuple, a short-lived object, a call.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.fast.produce_run import ProduceRun
from ottla.broker.runtime.metrics import FIRST_BUCKET_US, REQUEST_BUCKETS_US
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode
from ottla.protocol.primitives import encode_unsigned_varint
from ottla.storage.log.append import FIRST_PRODUCE_VERSION_WITH_ZSTD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.services import Services
    from ottla.protocol.types import Buffer
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.append import Appended, AppendResult

    Frames = tuple["ProduceTemplate", list[memoryview], list[int], int, int]
    """Frames of one template, one behind the other: their batches, correlation ids, the bytes of the batches, and where
    the last frame ends."""

MAX_TEMPLATES = 256
"""Templates remembered per connection; a client with more partitions takes the slow path for the rest."""

FEW_ANSWERS = 8
"""So many leave as they are, by one `writev`: joining them would touch more than it spares."""

FIRST_FLEXIBLE_VERSION = 9
_LENGTH_BYTES = 4
_KEY_START = 12  # of a frame with its length: behind the correlation id
_FLEXIBLE_TAIL = b"\0\0\0"  # no tagged fields of the partition, the topic, the request
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_OFFSETS = struct.Struct(">qqq")  # base offset, log append time, log start offset
_TIME_AND_START = struct.Struct(">qq")
_MARKS = 0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203  # that nothing else in an answer looks like
_NO_KIND = -1


class ProduceTemplate:
    """What the remembered bytes mean, and the answer around what differs."""

    __slots__ = (
        "_after",
        "_behind",
        "_log_append_time_ms",
        "_log_start_offset",
        "acks",
        "before",
        "clock",
        "front",
        "index",
        "meter",
        "meter_of",
        "name",
        "pack",
        "partition",
        "takes_zstd",
        "timeout_ms",
        "topic_id",
        "version",
    )

    def __init__(
        self, request: ProduceRequest, version: int, partition: Partition, services: Services, meter_of: MeterOf
    ) -> None:
        topic = request.topic_data[0]
        self.version = version
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.partition = partition
        self.takes_zstd = version >= FIRST_PRODUCE_VERSION_WITH_ZSTD
        self.clock: Clock = services.clock
        self.meter_of = meter_of
        self.meter = meter_of(0)
        whole = self.encode(ErrorCode.NONE, *_MARKS, 0)
        mark = whole.index(_TIME_AND_START.pack(*_MARKS))
        tags = response_header(0, version, 0)[4:]
        self.before = tags + whole[:mark]
        self._after = whole[mark + _OFFSETS.size :]
        self._log_append_time_ms = self._log_start_offset = -1
        self._behind = _TIME_AND_START.pack(-1, -1) + self._after
        layout = struct.Struct(f">{_LENGTH_BYTES}si{len(self.before)}sq{len(self._behind)}s")
        self.front = _INT32.pack(layout.size - _LENGTH_BYTES)
        self.pack = layout.pack
        """An answer with its length: `front`, correlation id, `before`, base offset, `behind`."""

    def behind(self, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """What stands behind the base offset in the answers of batches that were stored."""
        self._log_append_time_ms, self._log_start_offset = log_append_time_ms, log_start_offset
        self._behind = _TIME_AND_START.pack(log_append_time_ms, log_start_offset) + self._after
        return self._behind

    def stored(self, correlation_ids: list[int], appended: Appended) -> list[bytes]:
        """The whole responses of batches that were all stored, with their lengths."""
        pack, front, before, behind = self.pack, self.front, self.before, self._behind
        log_append_time_ms, log_start_offset = appended.log_append_time_ms, appended.log_start_offset
        if self._log_append_time_ms != log_append_time_ms or self._log_start_offset != log_start_offset:
            behind = self.behind(log_append_time_ms, log_start_offset)
        answers: list[bytes] = []
        base_offsets = appended.base_offsets
        for correlation_id in correlation_ids:
            answers.append(pack(front, correlation_id, before, base_offsets[len(answers)], behind))
        return answers

    def refusal(self, correlation_id: int, code: ErrorCode, message: str | None, result: AppendResult | None) -> bytes:
        """The whole response of a batch that was refused, or is not promised, with its length."""
        log_start_offset = -1 if result is None else result.log_start_offset
        body = self.encode(code, -1, -1, log_start_offset, message or code.message, result)
        header = response_header(0, self.version, correlation_id)
        return _INT32.pack(len(header) + len(body)) + header + body

    def encode(
        self,
        code: ErrorCode,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        message: str | None = None,
        result: AppendResult | None = None,
    ) -> bytes:
        """The response's body, by the slow path."""
        errors = () if result is None else result.record_errors
        partition = ProduceResponse.PartitionProduceResponse(
            index=self.index,
            error_code=code,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            log_start_offset=log_start_offset,
            error_message=message,
            record_errors=[
                ProduceResponse.BatchIndexAndErrorMessage(
                    batch_index=error.batch_index, batch_index_error_message=error.message
                )
                for error in errors
            ],
        )
        topic = ProduceResponse.TopicProduceResponse(
            name=self.name, topic_id=self.topic_id, partition_responses=[partition]
        )
        return encode(ProduceResponse(responses=[topic]), self.version)


class ProduceTemplates:
    """Those of one connection. All have their records' length at the same position: clients name topics alike."""

    __slots__ = (
        "_first",
        "_frame_bytes",
        "_key",
        "_last",
        "_length_at",
        "_max_frame_bytes",
        "_smallest_bytes",
        "_template",
        "_templates",
        "_unpack",
        "_unpack_next",
        "_word",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self._templates: dict[bytes, ProduceTemplate] = {}
        self._max_frame_bytes = max_frame_bytes
        self._place_length(_KEY_START)

    def _place_length(self, length_at: int) -> None:
        """The records' length stands at `length_at` of a frame: what is before it, and four bytes from there on."""
        self._length_at = length_at
        front = f"iIi{length_at - _KEY_START}sI"
        layout = struct.Struct(f">{front}")
        self._unpack, self._smallest_bytes = layout.unpack_from, layout.size
        self._unpack_next = struct.Struct(f">I{front}").unpack_from  # and the last bytes of the frame before
        self._forget()

    def _forget(self) -> None:
        self._templates.clear()
        # Of the newest frame: its template, and what that was found by; its length and the four bytes at its length
        # field; where its records begin and end. The next frame is often the same in all of that.
        self._template: ProduceTemplate | None = None
        self._key = b""
        self._frame_bytes = self._word = self._first = self._last = 0

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> ProduceRun | None:
        """Start the whole Produce frames of one template, at most `most`, with which `view[start:end]` begins.

        They join `newest`, the newest of the connection's requests in flight, if that is a run of this template and
        turn, and make a new one otherwise. None when the first frame must take the slow path.
        """
        frames = self._look(view, start, end, most)
        if frames is None:
            return None
        template, entries, correlation_ids, run_bytes, following = frames
        if type(newest) is ProduceRun and newest.goes_on(template, correlation_ids, following):
            run = newest
        else:
            run = ProduceRun(template, correlation_ids, following, perf_counter_ns())
        template.partition.gather_run(entries, run_bytes, run, template.takes_zstd)
        return run

    def answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """As `start`, for who begins a turn alone: append at once, and give the answers and where the next frame
        begins.

        Neither the turn nor the reply queue takes part. None, and nothing done, where answers have to wait.
        """
        expected = self._template
        if expected is None or not expected.partition.visible_on_append():
            return None
        started_ns = perf_counter_ns()
        frames = self._look(view, 0, end, most)
        if frames is None:
            return None
        template, entries, correlation_ids, run_bytes, following = frames
        partition = template.partition
        if template is not expected and not partition.visible_on_append():
            return None
        appended = partition.append(entries, run_bytes, template.clock.wall_ns() // 1_000_000, template.takes_zstd)
        if appended.refused is not None:
            run = ProduceRun(template, correlation_ids, following, started_ns)
            run.run_appended(appended)
            return run.buffers or [], following
        answers = template.stored(correlation_ids, appended)
        # `RequestMeter.note`, without the call: each file that is entered is lines of code on this path.
        meter, elapsed_us, count = template.meter, (perf_counter_ns() - started_ns) // 1000, len(answers)
        times = meter.times
        meter.count += count
        bucket = 0 if elapsed_us <= FIRST_BUCKET_US else bisect_left(REQUEST_BUCKETS_US, elapsed_us)
        times.counts[bucket] += count
        times.sum_us += elapsed_us * count
        return answers if len(answers) <= FEW_ANSWERS else [b"".join(answers)], following

    def _look(self, view: memoryview, start: int, end: int, most: int) -> Frames | None:
        """Find the whole frames of one template with which `view[start:end]` begins."""
        smallest_bytes = self._smallest_bytes
        if not smallest_bytes <= end - start <= self._max_frame_bytes:
            return None  # in so short a view no frame is too long, and each is looked at by its length alone
        unpack = self._unpack
        frame_bytes, kind, correlation_id, key, word = unpack(view, start)
        template = self._template
        if template is None or key != self._key or kind != template.version:  # API key and version; Produce is 0
            template = self._templates.get(key)
            if template is None or kind != template.version:
                return None
            self._template, self._key = template, key
        if (frame_bytes != self._frame_bytes or word != self._word) and not self._measure(template, frame_bytes, word):
            return None
        first, last = self._first, self._last
        unpack_next = self._unpack_next
        is_flexible = kind >= FIRST_FLEXIBLE_VERSION
        last_start = end - smallest_bytes
        entries: list[memoryview] = []
        correlation_ids: list[int] = []
        run_bytes = 0
        whole_bytes, records_bytes = _LENGTH_BYTES + frame_bytes, last - first
        while most:
            following = start + whole_bytes
            if following > end:
                break
            most -= 1
            if following <= last_start:
                tail, next_bytes, next_kind, next_id, next_key, next_word = unpack_next(view, following - 4)
            else:
                (tail,), next_kind = _UINT32.unpack_from(view, following - 4), _NO_KIND
            if is_flexible and tail & 0xFFFFFF:
                break  # tagged fields, which the slow path knows
            entries.append(view[start + first : start + last])
            correlation_ids.append(correlation_id)
            run_bytes += records_bytes
            start = following
            if next_kind != kind or next_key != key:
                break
            correlation_id = next_id
            if next_bytes != frame_bytes or next_word != word:
                frame_bytes, word = next_bytes, next_word
                if not self._measure(template, frame_bytes, word):
                    break
                first, last = self._first, self._last
                whole_bytes, records_bytes = _LENGTH_BYTES + frame_bytes, last - first
        return (template, entries, correlation_ids, run_bytes, start) if entries else None

    def _measure(self, template: ProduceTemplate, frame_bytes: int, word: int) -> bool:
        """Learn where the records of a frame lie, by its length and the word at its length field; False when it must
        take the slow path.
        """
        if template.version >= FIRST_FLEXIBLE_VERSION:
            width, length = _varint_in(word)
            tail_bytes = len(_FLEXIBLE_TAIL)
        else:
            width, length, tail_bytes = 4, word, 0
        first = self._length_at + width
        last = first + length
        if frame_bytes < self._smallest_bytes or last + tail_bytes != _LENGTH_BYTES + frame_bytes:
            return False
        self._frame_bytes, self._word, self._first, self._last = frame_bytes, word, first, last
        return True

    def learn(
        self,
        frame: memoryview,
        request: ProduceRequest,
        version: int,
        partition: Partition,
        services: Services,
        meter_of: MeterOf,
    ) -> None:
        """Remember the template of a request that is about to take the slow path, if it has one."""
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        length = len(records)
        if version >= FIRST_FLEXIBLE_VERSION:
            field = encode_unsigned_varint(length + 1)
            tail = _FLEXIBLE_TAIL
        else:
            field = _INT32.pack(length)
            tail = b""
        records_at = len(frame) - len(tail) - length
        length_at = records_at - len(field)
        key_start = _KEY_START - _LENGTH_BYTES
        if length_at <= key_start or frame[length_at:records_at] != field or frame[records_at + length :] != tail:
            return
        if length_at + _LENGTH_BYTES != self._length_at or len(self._templates) >= MAX_TEMPLATES:
            self._place_length(length_at + _LENGTH_BYTES)
        self._templates[bytes(frame[key_start:length_at])] = ProduceTemplate(
            request, version, partition, services, meter_of
        )


def _varint_in(word: int) -> tuple[int, int]:
    """Width of the length field at the start of four bytes, and the length, of which it holds one more (KIP-482)."""
    if not word & 0x8000_0000:
        return 1, (word >> 24) - 1
    length = word >> 24 & 0x7F | (word >> 16 & 0x7F) << 7
    if not word & 0x80_0000:
        return 2, length - 1
    length |= (word >> 8 & 0x7F) << 14
    if not word & 0x8000:
        return 3, length - 1
    return 4, (length | (word & 0xFF) << 21) - 1
