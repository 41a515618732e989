"""Templates of Produce requests: from frames that look like earlier ones to a batch appended and an answer.

A producer sends the same bytes between correlation id and records again and again: client id, acks, timeout, topic,
partition. What they mean is remembered per connection, so a request of that template needs no decoding and its answer
no encoding: only the records' length, the correlation id and the offsets differ.

    api key 2 · version 2 · correlation id 4 | client id ... topic, partition | records' length | records | 0 0 0
                                               ------- the template's key ---                              (flexible)

A template is learnt from a request that took the slow path (`api/produce.py`), and only where the slow path would do
the same: one topic, one partition, acks -1 or 1, no tagged fields, a partition that exists. `hot_path.py` decides how
long it is valid, `produce_template.py` encodes its answers. Requests with a transactional id have their own kind of
template (`transactional_templates.py`).

One read often has many frames of a pipelining producer. Those of one template are one *run* (`produce_run.py`):
gathered, answered and counted together, each with its own answer.

Those of a client under a quota are charged (`charged_produce_templates.py`).

A connection that has been the only one to send for a while, and whose answers need not wait for the disk, is answered
within the read (`ProduceTemplates.answer`): without a turn and without an entry in the reply queue. So is one that has
to wait for a sync which the broker's thread may run (`ProduceTemplates.sync`). The client
sleeps until the answer comes, the processor does something else, and the next request finds its caches cold. So the
cost of this path depends less on how often something is done than on how much different code and data is touched
(`scripts/bench-lines` counts the cache lines). The most expensive are things that a warm loop hides: a keyword given
to `zip`, the function of a list comprehension, a property, a named tuple, a short-lived object, a call.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.broker.fast.produce_run import ProduceRun
from ottla.broker.fast.produce_template import ProduceTemplate
from ottla.broker.runtime.metrics import FIRST_BUCKET_US, REQUEST_BUCKETS_US
from ottla.protocol.primitives import encode_unsigned_varint
from ottla.storage.directories.redo_log import MOST_ALONE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.broker.context import ApiServices
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.in_flight_request import InFlightRequest
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.protocol.types import Buffer
    from ottla.storage.log.append import Appended

    Frames = tuple[ProduceTemplate, list[memoryview], list[int], int, int]
    """Frames of one template, one after the other: their batches, correlation ids, the bytes of the batches, and where
    the last frame ends."""

MAX_TEMPLATES = 256
"""Templates remembered per connection; a client with more partitions takes the slow path for the rest."""

MOST_KEY_BYTES = 2_048
"""Longer keys are not remembered: they have the client id and the transactional id, which may have 32 KB each."""

FEW_ANSWERS = 8
"""Up to this many are sent as they are, by one `writev`: joining them would touch more than it saves."""

ACKS_ALL = -1
FIRST_FLEXIBLE_VERSION = 9
LENGTH_BYTES = 4
_KEY_START = 12  # of a frame with its length: after the correlation id
_FLEXIBLE_TAIL = b"\0\0\0"  # no tagged fields of the partition, the topic, the request
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_NO_KIND = -1


class ProduceTemplates:
    """The templates of one connection. All have their records' length at the same position: topics are named alike."""

    __slots__ = (
        "_first",
        "_frame_bytes",
        "_key",
        "_last",
        "_length_at",
        "_make_run",
        "_max_frame_bytes",
        "_smallest_bytes",
        "_template",
        "_templates",
        "_unpack",
        "_unpack_next",
        "_was_run",
        "_word",
    )

    template_class: ClassVar[type[ProduceTemplate]] = ProduceTemplate
    is_transactional: ClassVar[bool] = False

    def __init__(
        self,
        max_frame_bytes: int,
        make_run: Callable[[Any, list[int], int, int], ProduceRun] = ProduceRun,
    ) -> None:
        self._templates: dict[bytes, ProduceTemplate] = {}
        self._max_frame_bytes = max_frame_bytes
        self._make_run = make_run
        self._place_length(_KEY_START)

    def _place_length(self, length_at: int) -> None:
        """Set the position of the records' length in a frame, and unpack what is before it and its four bytes."""
        self._length_at = length_at
        front = f"iIi{length_at - _KEY_START}sI"
        layout = struct.Struct(f">{front}")
        self._unpack, self._smallest_bytes = layout.unpack_from, layout.size
        self._unpack_next = struct.Struct(f">I{front}").unpack_from  # and the last bytes of the frame before
        self._forget()

    def _forget(self) -> None:
        self._templates.clear()
        # Of the newest frame: its template and the key that found it; its length and the four bytes at its length
        # field; where its records begin and end. The next frame often has the same values.
        self._template: ProduceTemplate | None = None
        self._key = b""
        self._frame_bytes = self._word = self._first = self._last = 0
        self._was_run = False
        """Whether the newest read that was answered within it had several requests: the next one probably has, too."""

    def start(
        self, view: memoryview, start: int, end: int, most: int, newest: InFlightRequest | None
    ) -> ProduceRun | None:
        """Start the whole Produce frames of one template, at most `most`, with which `view[start:end]` begins.

        They join `newest`, the newest of the connection's requests in flight, if that is a run of this template and
        turn; otherwise they are a new run. None when the first frame must take the slow path.
        """
        frames = self._look(view, start, end, most)
        if frames is None:
            return None
        template, entries, correlation_ids, run_bytes, following = frames
        if (
            newest is not None
            and isinstance(newest, ProduceRun)
            and newest.goes_on(template, correlation_ids, following)
        ):
            run = newest
        else:
            make_run = self._make_run  # CPython is slow at looking up a slot and calling it in one expression
            run = make_run(template, correlation_ids, following, perf_counter_ns())
        template.partition.gather_run(entries, run_bytes, run, template.takes)
        return run

    def answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """As `start`, for a request that begins a turn alone: append immediately, and return the answers and where the
        next frame begins.

        The turn and the reply queue are not involved. None, with nothing done, where answers have to wait.

        A client that waits for each answer sends frames one by one, of one template: so this function handles a single
        frame completely, and `_answer_run` does the same for any number.
        """
        template = self._template
        if template is None:
            return None
        partition = template.partition
        if partition.log.config is not partition.unsynced_config or partition.gathered:
            return None  # not `visible_on_append`, without the call
        started_ns = perf_counter_ns()
        if self._was_run:
            return self._answer_run(view, end, most, started_ns)
        if end < self._smallest_bytes:
            return None
        unpack = self._unpack
        frame_bytes, kind, correlation_id, key, word = unpack(view, 0)
        if end != LENGTH_BYTES + frame_bytes or key != self._key or kind != template.version:
            return self._answer_run(view, end, most, started_ns)
        if (frame_bytes != self._frame_bytes or word != self._word) and (
            end > self._max_frame_bytes or not self._measure(template, frame_bytes, word)
        ):
            return None
        if kind >= FIRST_FLEXIBLE_VERSION and _UINT32.unpack_from(view, end - 4)[0] & 0xFFFFFF:
            return None
        first, last = self._first, self._last
        now_ms = template.clock.wall_ns() // 1_000_000
        appended = partition.append([view[first:last]], last - first, now_ms, template.takes)
        if appended.refused is not None:
            return self._refused(template, [correlation_id], end, started_ns, appended)
        log_append_time_ms, log_start_offset = appended.log_append_time_ms, appended.log_start_offset
        behind = template.behind
        if template.log_append_time_ms != log_append_time_ms or template.log_start_offset != log_start_offset:
            behind = template.set_behind(log_append_time_ms, log_start_offset)
        pack = template.pack
        answer = pack(template.front, correlation_id, template.before, appended.base_offsets[0], behind)
        meter, elapsed_us = template.meter, (perf_counter_ns() - started_ns) // 1000
        times = meter.times
        meter.count += 1
        times.counts[0 if elapsed_us <= FIRST_BUCKET_US else bisect_left(REQUEST_BUCKETS_US, elapsed_us)] += 1
        times.sum_us += elapsed_us
        return [answer], end

    def _answer_run(
        self, view: memoryview, end: int, most: int, started_ns: int
    ) -> tuple[Sequence[Buffer], int] | None:
        """`answer` for any number of frames. The partition of `_template` makes records visible on append."""
        expected = self._template
        frames = self._look(view, 0, end, most)
        if frames is None:
            return None
        template, entries, correlation_ids, run_bytes, following = frames
        partition = template.partition
        if template is not expected and not partition.visible_on_append():
            return None
        appended = partition.append(entries, run_bytes, template.clock.wall_ns() // 1_000_000, template.takes)
        if appended.refused is not None:
            return self._refused(template, correlation_ids, following, started_ns, appended)
        # `ProduceTemplate.stored`, and then `RequestMeter.note`, without the call: each file that is entered adds
        # cache lines of code to this path.
        log_append_time_ms, log_start_offset = appended.log_append_time_ms, appended.log_start_offset
        behind = template.behind
        if template.log_append_time_ms != log_append_time_ms or template.log_start_offset != log_start_offset:
            behind = template.set_behind(log_append_time_ms, log_start_offset)
        pack, front, before, base_offsets = template.pack, template.front, template.before, appended.base_offsets
        answers: list[bytes] = []
        for correlation_id in correlation_ids:
            answers.append(pack(front, correlation_id, before, base_offsets[len(answers)], behind))
        meter, elapsed_us, count = template.meter, (perf_counter_ns() - started_ns) // 1000, len(answers)
        self._was_run = count > 1
        times = meter.times
        meter.count += count
        bucket = 0 if elapsed_us <= FIRST_BUCKET_US else bisect_left(REQUEST_BUCKETS_US, elapsed_us)
        times.counts[bucket] += count
        times.sum_us += elapsed_us * count
        return answers if len(answers) <= FEW_ANSWERS else [b"".join(answers)], following

    def sync(self, view: memoryview, end: int) -> list[Buffer] | InFlightRequest | None:
        """As `answer`, for a single frame and a partition whose records have to be synced: the answer, or the request
        in flight where it has to wait.

        With acks=all the broker's thread syncs them before the answer; None if it may not do so now. With acks=1 a
        thread syncs them after the answer.
        """
        frames = self._look(view, 0, end, 1)
        if frames is None:
            return None
        template, entries, correlation_ids, run_bytes, following = frames
        partition, acks = template.partition, template.acks
        is_awaited = acks == ACKS_ALL
        if following != end or run_bytes > MOST_ALONE_BYTES:
            return None
        if not (partition.may_sync_here() if is_awaited else partition.has_nothing_before()):
            return None
        started_ns = perf_counter_ns()
        append = partition.append_synced if is_awaited else partition.append
        appended = append(entries, run_bytes, template.clock.wall_ns() // 1_000_000, template.takes)
        if appended.refused is None and partition.may_acknowledge(appended.last_offsets[0] + 1, acks):
            answer = template.stored(correlation_ids, appended)
            template.meter.note((perf_counter_ns() - started_ns) // 1000, 1)
            return [*answer]
        run = ProduceRun(template, correlation_ids, end, started_ns)
        run.run_appended(appended, partition)
        return run.buffers if run.is_done else run

    @staticmethod
    def _refused(
        template: ProduceTemplate, correlation_ids: list[int], end: int, started_ns: int, appended: Appended
    ) -> tuple[Sequence[Buffer], int]:
        """The answers where some batches were not simply stored."""
        run = ProduceRun(template, correlation_ids, end, started_ns)
        run.run_appended(appended, template.partition)
        return run.buffers or [], end

    def _look(self, view: memoryview, start: int, end: int, most: int) -> Frames | None:
        """Find the whole frames of one template with which `view[start:end]` begins; None where the first must take the
        slow path.
        """
        smallest_bytes = self._smallest_bytes
        if not smallest_bytes <= end - start <= self._max_frame_bytes:
            return None  # in so short a view no frame is too long, so only its own length is checked
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
        is_flexible = kind >= FIRST_FLEXIBLE_VERSION
        if end - start == LENGTH_BYTES + frame_bytes:
            # A client that waits for each answer sends one by one; the code after this does the same for any number.
            if is_flexible and _UINT32.unpack_from(view, end - 4)[0] & 0xFFFFFF:
                return None
            return template, [view[start + first : start + last]], [correlation_id], last - first, end
        unpack_next = self._unpack_next
        last_start = end - smallest_bytes
        entries: list[memoryview] = []
        correlation_ids: list[int] = []
        run_bytes = 0
        whole_bytes, records_bytes = LENGTH_BYTES + frame_bytes, last - first
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
                break  # tagged fields: the slow path reads them
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
                whole_bytes, records_bytes = LENGTH_BYTES + frame_bytes, last - first
        return (template, entries, correlation_ids, run_bytes, start) if entries else None

    def _measure(self, template: ProduceTemplate, frame_bytes: int, word: int) -> bool:
        """Set where the records of a frame begin and end, by its length and the word at its length field; False when it
        must take the slow path.
        """
        if template.version >= FIRST_FLEXIBLE_VERSION:
            width, length = _varint_in(word)
            tail_bytes = len(_FLEXIBLE_TAIL)
        else:
            width, length, tail_bytes = 4, word, 0
        first = self._length_at + width
        last = first + length
        if frame_bytes < self._smallest_bytes or last + tail_bytes != LENGTH_BYTES + frame_bytes:
            return False
        self._frame_bytes, self._word, self._first, self._last = frame_bytes, word, first, last
        return True

    def learn(
        self,
        frame: memoryview,
        request: ProduceRequest,
        version: int,
        partition: Partition,
        services: ApiServices,
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
        key_start = _KEY_START - LENGTH_BYTES
        if length_at - key_start > MOST_KEY_BYTES:
            return
        if length_at <= key_start or frame[length_at:records_at] != field or frame[records_at + length :] != tail:
            return
        if length_at + LENGTH_BYTES != self._length_at or len(self._templates) >= MAX_TEMPLATES:
            self._place_length(length_at + LENGTH_BYTES)
        self._templates[bytes(frame[key_start:length_at])] = self.template_class(
            request, version, partition, services, meter_of
        )


def _varint_in(word: int) -> tuple[int, int]:
    """The width of the length field at the start of four bytes, and the length, which is encoded plus one (KIP-482)."""
    if not word & 0x8000_0000:
        return 1, (word >> 24) - 1
    length = word >> 24 & 0x7F | (word >> 16 & 0x7F) << 7
    if not word & 0x80_0000:
        return 2, length - 1
    length |= (word >> 8 & 0x7F) << 14
    if not word & 0x8000:
        return 3, length - 1
    return 4, (length | (word & 0xFF) << 21) - 1
