"""The short way of a Produce request that looks like one before; `scripts/bench` shows what it is worth.

A producer sends the same bytes between correlation id and records again and again: client id, acks, timeout, topic,
partition. What they mean is remembered per connection, so a request of that form needs no decoding and its answer no
encoding: only the records' length, the correlation id and the offsets differ.

    api key 2 · version 2 · correlation id 4 | client id ... topic, partition | records' length | records | 0 0 0
                                               ------- the remembered form --                              (flexible)

A form is learnt from a request that took the long way (`api/produce.py`), and only where the long way would do the
same: one topic, one partition, acks -1 or 1, no transactional id, no tagged fields, a partition that is there. It holds
as long as the partition is open and has the same configuration. Everything else, every error included, takes the long
way or is encoded by it.

What a pipelining producer has sent stands frame behind frame in one read. Those of one form are one *run*: gathered,
told, answered and counted together, each with an answer of its own. They began together and are promised together:
their batches are appended by one call and covered by one sync.

Who has been the only one to send for a while, and whose answers need not wait for the disk, is answered within the read
(`ProduceForms.answer`): without a turn and without a slot. The client sleeps until the answer comes, the processor does
something else, and the next request finds its caches cold; so what counts on this way is less how often something is
done than how many different things are (`scripts/bench-lines` counts the cache lines). What a warm loop hides costs
most: a keyword given to `zip`, the function of a list comprehension, a property, a named tuple, a short-lived object.
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.fast.produce_form import ProduceForm
from ottla.broker.runtime.slot import Slot
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.append import AllStored, AppendEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.partitions.partition import Partition
    from ottla.broker.peer import Peer
    from ottla.broker.services import Services
    from ottla.protocol.api.produce import ProduceRequest
    from ottla.protocol.types import Buffer
    from ottla.storage.log.append import AppendResult

    Frames = tuple[ProduceForm, list[AppendEntry | tuple[memoryview, int]], list[int], int, int]
    """Frames of one form, one behind the other: their batches, correlation ids, the bytes of the batches, and where the
    last frame ends."""

ACKS_ALL = -1
MAX_FORMS = 256
"""Forms remembered per connection; a client with more partitions takes the long way for the rest."""

FEW_ANSWERS = 8
"""So many leave as they are, by one `writev`: joining them would touch more than it spares."""

FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_LOG_START = 5
"""The first one with a short way; clients that speak less are from before 2017."""
_LENGTH_BYTES = 4
_FORM_START = 12  # of a frame with its length: behind the correlation id
_FLEXIBLE_TAIL = b"\0\0\0"  # no tagged fields of the partition, the topic, the request
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_NO_KIND = -1
_NONE = ErrorCode.NONE


class ProduceForms:
    """The forms of one connection. All have their records' length at the same position: clients name topics alike."""

    __slots__ = (
        "_first",
        "_form",
        "_forms",
        "_frame_bytes",
        "_key",
        "_last",
        "_length_at",
        "_max_frame_bytes",
        "_smallest_bytes",
        "_unpack",
        "_unpack_next",
        "_word",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self._forms: dict[bytes, ProduceForm] = {}
        self._max_frame_bytes = max_frame_bytes
        self._place_length(_FORM_START)

    def _place_length(self, length_at: int) -> None:
        """The records' length stands at `length_at` of a frame: what is before it, and four bytes from there on."""
        self._length_at = length_at
        front = f"iIi{length_at - _FORM_START}sI"
        layout = struct.Struct(f">{front}")
        self._unpack, self._smallest_bytes = layout.unpack_from, layout.size
        self._unpack_next = struct.Struct(f">I{front}").unpack_from  # and the last bytes of the frame before
        self._forget()

    def _forget(self) -> None:
        self._forms.clear()
        # Of the newest frame: its form, and what that was found by; its length and the four bytes at its length field;
        # where its records begin and end. The next frame is often the same in all of that.
        self._form: ProduceForm | None = None
        self._key = b""
        self._frame_bytes = self._word = self._first = self._last = 0

    def start(self, view: memoryview, start: int, end: int, most: int, newest: Slot | None) -> ProduceRun | None:
        """Start the whole Produce frames of one form, at most `most`, with which `view[start:end]` begins.

        They go on with `newest`, the connection's newest slot, if that is a run of this form and turn, and make one of
        their own otherwise. None when the first frame must take the long way.
        """
        frames = self._look(view, start, end, most)
        if frames is None:
            return None
        form, entries, correlation_ids, run_bytes, following = frames
        if type(newest) is ProduceRun and newest.goes_on(form, correlation_ids, following):
            run = newest
        else:
            run = ProduceRun(form, correlation_ids, following, perf_counter_ns())
        form.partition.gather_run(entries, run_bytes, run)
        return run

    def answer(self, view: memoryview, end: int, most: int) -> tuple[Sequence[Buffer], int] | None:
        """As `start`, for who begins a turn alone: append at once, and give the answers and where the next frame
        begins.

        Neither turn nor slot has to do with it. None, and nothing done, where answers have to wait.
        """
        expected = self._form
        if expected is None or not expected.partition.shows_at_once():
            return None
        started_ns = perf_counter_ns()
        frames = self._look(view, 0, end, most)
        if frames is None:
            return None
        form, entries, correlation_ids, run_bytes, following = frames
        partition = form.partition
        if form is not expected and not partition.shows_at_once():
            return None
        refused, batches, stamp_ms = partition.append(entries, run_bytes, form.clock.wall_ms())
        if refused is not None:
            run = ProduceRun(form, correlation_ids, following, started_ns)
            run.run_appended(refused)
            return run.buffers or [], following
        answers = form.stored(correlation_ids, batches, stamp_ms)
        form.meter.note((perf_counter_ns() - started_ns) // 1000, len(answers))
        return answers if len(answers) <= FEW_ANSWERS else [b"".join(answers)], following

    def _look(self, view: memoryview, start: int, end: int, most: int) -> Frames | None:
        """Find the whole frames of one form with which `view[start:end]` begins."""
        smallest_bytes = self._smallest_bytes
        if not smallest_bytes <= end - start <= self._max_frame_bytes:
            return None  # in so short a view no frame is too long, and each is looked at by its length alone
        unpack = self._unpack
        frame_bytes, kind, correlation_id, key, word = unpack(view, start)
        form = self._form
        if form is None or key != self._key or kind != form.version:  # API key and version; Produce is 0
            form = self._forms.get(key)
            if form is None or kind != form.version:
                return None
            self._form, self._key = form, key
        partition = form.partition
        if partition.is_closed or form.log.config is not form.config:
            self._forget()  # the long way would not do the same any more
            return None
        if (frame_bytes != self._frame_bytes or word != self._word) and not self._measure(form, frame_bytes, word):
            return None
        first, last = self._first, self._last
        unpack_next = self._unpack_next
        is_flexible = kind >= FIRST_FLEXIBLE_VERSION
        last_start = end - smallest_bytes
        entries: list[AppendEntry | tuple[memoryview, int]] = []
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
                break  # tagged fields, which the long way knows
            entries.append((view[start + first : start + last], kind))
            correlation_ids.append(correlation_id)
            run_bytes += records_bytes
            start = following
            if next_kind != kind or next_key != key:
                break
            correlation_id = next_id
            if next_bytes != frame_bytes or next_word != word:
                frame_bytes, word = next_bytes, next_word
                if not self._measure(form, frame_bytes, word):
                    break
                first, last = self._first, self._last
                whole_bytes, records_bytes = _LENGTH_BYTES + frame_bytes, last - first
        return (form, entries, correlation_ids, run_bytes, start) if entries else None

    def _measure(self, form: ProduceForm, frame_bytes: int, word: int) -> bool:
        """Learn where the records of a frame lie, by its length and the word at its length field; False when it must
        take the long way.
        """
        if form.version >= FIRST_FLEXIBLE_VERSION:
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
        self, frame: memoryview, request: ProduceRequest, version: int, partition: Partition, services: Services
    ) -> None:
        """Remember the form of a request that is about to take the long way, if it has one."""
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        length = len(records)
        if version >= FIRST_FLEXIBLE_VERSION:
            field = _uvarint(length + 1)
            tail = _FLEXIBLE_TAIL
        else:
            field = _INT32.pack(length)
            tail = b""
        records_at = len(frame) - len(tail) - length
        length_at = records_at - len(field)
        form_start = _FORM_START - _LENGTH_BYTES
        if length_at <= form_start or frame[length_at:records_at] != field or frame[records_at + length :] != tail:
            return
        if length_at + _LENGTH_BYTES != self._length_at or len(self._forms) >= MAX_FORMS:
            self._place_length(length_at + _LENGTH_BYTES)
        self._forms[bytes(frame[form_start:length_at])] = ProduceForm(request, version, partition, services)


class ProduceRun(Slot):
    """Such requests under way, one behind the other: their slot, and who is told of their batches.

    `end` is where the frame of the last one ends, `added` how many the last read added. The results are told by the
    turn's flush; the answers leave together, when the last of the batches may be promised.
    """

    __slots__ = ("_correlation_ids", "_form", "_started_ns", "_succeeded", "added", "end")

    # What no such request has: constants of the class, since each attribute set is time on the hot path.
    pending = None
    parks = False
    close_reason = None

    def __init__(self, form: ProduceForm, correlation_ids: list[int], end: int, started_ns: int) -> None:
        self.owner = None
        self.is_done = False
        self.requests = self.added = self._succeeded = len(correlation_ids)
        self.size_bytes = 0
        self.end = end
        self._form = form
        self._correlation_ids = correlation_ids
        self._started_ns = started_ns

    def goes_on(self, form: ProduceForm, correlation_ids: list[int], end: int) -> bool:
        """Take in the requests of one more read of the turn, if they are of the same form and nobody gathered since."""
        if form is not self._form or form.partition.newest_waiter is not self:
            return False
        self._correlation_ids += correlation_ids
        self.added = len(correlation_ids)
        self.requests += self.added
        self._succeeded += self.added
        self.end = end
        return True

    def run_appended(self, results: Sequence[AppendResult]) -> None:
        """Told by the turn's flush: encode the answers, and let them leave now or when they may."""
        form = self._form
        correlation_ids = self._correlation_ids
        if type(results) is AllStored:
            promised_offset = results.batches[-1][3] + 1
            answers = form.stored(correlation_ids, results.batches, results.log_append_time_ms)
        else:
            promised_offset = max(result.last_offset for result in results) + 1
            answers = list(map(self._answer, correlation_ids, results))
        partition = form.partition
        if partition.high_watermark >= promised_offset or (
            form.acks != ACKS_ALL and not partition.holds_acknowledgements
        ):
            self._answered(answers)
            return
        self._wait(promised_offset, answers, results)

    def _wait(self, promised_offset: int, answers: list[bytes], results: Sequence[AppendResult]) -> None:
        """Let the answers leave when `promised_offset` may be seen."""
        form = self._form
        # Not the results: they look at bytes that were received, which are good for this turn only.
        if type(results) is AllStored:
            last_offsets = [batch[3] for batch in results.batches]
        else:
            last_offsets = [result.last_offset for result in results]

        def visible(error: BaseException | None) -> None:
            self._answered(answers if error is None else self._after_failure(answers, last_offsets, error))

        form.partition.when_visible(promised_offset, visible, form.clock.monotonic_ms() + form.timeout_ms)

    def _answer(self, correlation_id: int, result: AppendResult) -> bytes:
        """The answer of one request: stored, stored before, or refused."""
        if result.error_code is not _NONE:
            return self._refuse(correlation_id, result.error_code, result.error_message, result)
        form = self._form
        behind = form.behind(result.log_append_time_ms, result.log_start_offset)
        return form.pack(form.front, correlation_id, form.before, result.base_offset, behind)

    def _after_failure(self, answers: list[bytes], last_offsets: list[int], error: BaseException) -> list[bytes]:
        """The answers when the promise could not be kept: only what may be seen all the same is a success."""
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        high_watermark = self._form.partition.high_watermark
        return [
            # What was refused has a last offset of -1, and its answer already.
            answer if last_offset < high_watermark else self._refuse(correlation_id, code, message, None)
            for answer, last_offset, correlation_id in zip(answers, last_offsets, self._correlation_ids, strict=True)
        ]

    def _refuse(self, correlation_id: int, code: ErrorCode, message: str | None, result: AppendResult | None) -> bytes:
        """Count and encode the answer of a request that failed."""
        form = self._form
        form.metrics.request("Produce", form.version, code, (perf_counter_ns() - self._started_ns) // 1000)
        self._succeeded -= 1
        return form.refusal(correlation_id, code, message, result)

    def _answered(self, answers: list[bytes]) -> None:
        """All replies are there: count those that are no refusals, and let them leave."""
        form = self._form
        elapsed_us = (perf_counter_ns() - self._started_ns) // 1000
        form.meter.note(elapsed_us, self._succeeded)
        reply = b"".join(answers)
        self.buffers = [reply]
        self.size_bytes = len(reply)
        self.is_done = True
        owner = self.owner
        if owner is not None:
            owner.slot_finished(self)


def learn_form(peer: Peer, frame: memoryview, request: ProduceRequest, version: int, services: Services) -> None:
    """Remember the form of a request that is about to take the long way, where the short one would do the same."""
    if (
        version < FIRST_VERSION_WITH_LOG_START
        or request.acks not in (ACKS_ALL, 1)
        or request.transactional_id is not None
    ):
        return
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return
    topic_data = request.topic_data[0]
    data = topic_data.partition_data[0]
    catalog = services.catalog
    topic = catalog.topics_by_id.get(topic_data.topic_id) if version >= 13 else catalog.topics.get(topic_data.name)
    if topic is None or topic.is_internal or not 0 <= data.index < len(topic.partitions) or not data.records:
        return
    partition = topic.partitions[data.index]
    if partition is None:
        return
    if peer.produce_forms is None:
        peer.produce_forms = ProduceForms(services.config.socket_request_max_bytes)
    peer.produce_forms.learn(frame, request, version, partition, services)


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


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
