"""The template of Fetch requests that may name several partitions: in a session (`session_template.py`), or without one
(`sessionless_template.py`).

Such a client sends the same bytes again, except for the correlation id and the partitions that it names with their
offsets. What is the same is remembered per connection, and so are the partitions that it has named before:

    length 4, key, version | correlation id 4 | client id ... | session epoch 4 | topics | nothing forgotten, rack
                                              -- remembered --                     ------- remembered -------

Only the offset of a partition may be new. Any of the topics and partitions may be named, in any order
(`fetch_layout.py`): librdkafka begins with another one each time, and leaves out those whose records its application
has not consumed. It answers where there are enough records, all of them hot, and nothing to report but records and
offsets. Where there are too few, the request waits for more (`parked_templates.py`). Everything else takes the slow
path: errors, cold bytes, partitions that were not named before, and more than `MOST_PARTITIONS` of them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from copy import copy
from operator import attrgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.fast.fetch_layout import FetchLayout, Known, layout_of
from ottla.broker.fast.fetch_templates import FIRST_VERSION_WITH_ZSTD, NO_EPOCH, latest_epoch, most_bytes
from ottla.broker.fast.parked_templates import ParkedPartitionsFetch
from ottla.broker.fast.partitions_answer import answer_of_one, partitions_answer
from ottla.broker.runtime.metrics import FIRST_BUCKET_US, REQUEST_BUCKETS_US
from ottla.protocol.errors import KafkaError
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.fast.parked_templates import SlowPath
    from ottla.broker.fast.partitions_answer import Found, News
    from ottla.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from ottla.broker.fetch.parked_fetches import Deadlines, SharedReads, Tail
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.broker.services import Services
    from ottla.protocol.api.fetch import FetchRequest
    from ottla.protocol.types import Buffer
    from ottla.storage.log.log import Log

READ_COMMITTED: Final = 1
NEVER_BYTES: Final = 1 << 32
"""A frame length that no frame has: none is compared."""
MOST_PARTITIONS: Final = 1_000
"""More are read in steps, by the slow path: reading so many at once takes some milliseconds."""
MAX_LAYOUTS: Final = 16
"""The number of frame lengths whose layout is kept: a client names the partitions from which it has got records."""
_FRONT: Final = struct.Struct(">ihh")  # length, API key, version
_LENGTH_BYTES, _CORRELATION_ID_BYTES, _EPOCH_BYTES = 4, 4, 4
_LIMITS = attrgetter(
    *("replica_id", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "rack_id", "session_id"),
)

NO_RECORDS: Final = b""


class PartitionsTemplate:
    """See the module. A connection has one, or `FetchTemplates`, or none.

    Only frames of at least `least_bytes` are compared; `frame_bytes` is the length of the newest. Both include the
    length field. `is_at_end`: whether the newest had to wait, as the next one probably has to. `session` is None for
    requests without one.
    """

    __slots__ = (
        *("_asked", "_committed_only", "_epoch_bytes", "_found", "_front", "_known", "_layout", "_layouts"),
        *("_least_bytes", "_max_bytes", "_may_park", "_meter", "_middle", "_placed_front", "_services", "_tail"),
        *("_unpack_frame", "deadlines", "frame_bytes", "is_at_end", "least_bytes", "min_bytes", "quota"),
        *("session", "tails"),
    )

    _layout: FetchLayout
    _least_bytes: int
    deadlines: Deadlines
    min_bytes: int

    def __init__(
        self,
        services: ApiServices,
        request: FetchRequest,
        context: Context,
        session: FetchSession | None,
        meter_of: MeterOf,
        quota: TemplateQuota | None = None,
    ) -> None:
        self.quota = quota
        self._services = services
        self._found: dict[FetchTarget, tuple[Partition, Log, bytes]] = {}
        """By target: the partition, its log, and the topic as requests and answers name it."""
        self._known: dict[bytes, dict[int, Known]] = {}
        """The partitions that are known, by topic and index."""
        self.tails: dict[FetchTarget, Tail] = {}
        self._remember(request, context, session, meter_of)

    def rest(self) -> None:
        """Compare no frame until `expect` is called again."""
        self.least_bytes = NEVER_BYTES

    def _remember(
        self, request: FetchRequest, context: Context, session: FetchSession | None, meter_of: MeterOf
    ) -> None:
        version = context.api_version
        self.session = session
        self._asked = limits_of(request, context)
        self._max_bytes = min(request.max_bytes, most_bytes(context.connection, self._services, self.quota))
        self.min_bytes = max(min(request.min_bytes, self._max_bytes), 1)
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._meter = meter_of(0)
        self._layout = layout = layout_of(version)
        plain = copy(request)
        plain.topics, plain.forgotten_topics_data = [], []
        body = encode(plain, version)
        header = encode_request_header(request.message_key, version, 0, context.client_id)
        before_bytes = layout.topics_at if session is None else layout.epoch_at
        self._middle = header[_FRONT.size - _LENGTH_BYTES + _CORRELATION_ID_BYTES :] + body[:before_bytes]
        self._epoch_bytes = layout.topics_at - before_bytes
        self._tail = body[layout.topics_at + layout.count_bytes :]
        self._front = _FRONT.pack(0, request.message_key, version)[_LENGTH_BYTES:]
        self._layouts: dict[int, tuple[bytes, Callable[..., tuple[Any, ...]]]] = {}
        self._least_bytes = self.least_bytes = self._size_bytes(layout.count_bytes)
        self.frame_bytes = 0
        self.is_at_end = False
        self._may_park = request.max_wait_ms > 0 and min(request.min_bytes, self._max_bytes) > 0
        self.deadlines = self._services.parked_fetches.deadlines(request.max_wait_ms)

    def _size_bytes(self, topics_bytes: int) -> int:
        """The size of a frame whose topics take so many bytes."""
        size_bytes = _FRONT.size + _CORRELATION_ID_BYTES + len(self._middle) + self._epoch_bytes
        return size_bytes + topics_bytes + len(self._tail)

    def _place(self, frame_bytes: int) -> None:
        """Prepare for frames of this length."""
        layout = self._layouts.get(frame_bytes)
        if layout is None:
            topics_bytes = frame_bytes - self._size_bytes(0)
            middle, tail = len(self._middle), len(self._tail)
            epoch = "i" if self._epoch_bytes else ""
            fields = f">{_FRONT.size}s{_CORRELATION_ID_BYTES}s{middle}s{epoch}{topics_bytes}s{tail}s"
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
            front = (frame_bytes - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "big") + self._front
            layout = self._layouts[frame_bytes] = front, struct.Struct(fields).unpack_from
        self.frame_bytes = frame_bytes
        self._placed_front, self._unpack_frame = layout

    def _forget_targets(self) -> None:
        self._found.clear()
        self._known.clear()
        self.tails = {}  # what is parked keeps its own

    def _add_target(self, target: FetchTarget, partition: Partition, log_start_offset: int) -> None:
        """Allow requests to name this partition, with the same fields as before except for the offset."""
        topic = self._layout.topic_key(target.topic)
        self._found[target] = partition, partition.log, topic
        self.tails[target] = self._services.parked_fetches.tail_of(partition)
        self._known.setdefault(topic, {})[target.partition] = self._layout.known(target, log_start_offset)

    def answer(self, view: memoryview, start: int, end: int, sends_maps: bool) -> list[Buffer] | None:
        """Answer the frame at `start`, which is whole before `end`, if it is expected and its records are hot."""
        started_ns = perf_counter_ns()
        taken = self.take(view, start, end)
        if taken is None:
            return None
        correlation_id, targets = taken
        found = self.look(targets, sends_maps, None)
        if found is None:
            return None
        news, size_bytes = found
        if size_bytes < self.min_bytes:
            return None
        if self.quota is not None and not self.quota.may_fetch(size_bytes):
            return None  # the slow path charges it, and answers it empty
        if self.session is not None:
            self._services.fetch_sessions.move_on(self.session)
        return self.encode(news, correlation_id, started_ns)

    def park(
        self,
        view: memoryview,
        start: int,
        end: int,
        slow_path: SlowPath,
        stamp: int,
        before: ParkedPartitionsFetch | None,
    ) -> ParkedPartitionsFetch | None:
        """Let the frame at `start` wait, if it is expected and there are too few records for it; else None.
        `before` is the newest that has waited, at the same stamp.
        """
        started_ns = perf_counter_ns()
        self.is_at_end = False
        taken = self.take(view, start, end)
        if taken is None or not self._may_park:
            return None
        correlation_id, named = taken
        targets = list(named)
        found = self.look(targets, slow_path.peer.endpoint.sends_maps, None)
        if found is None or not targets:
            return None
        news, size_bytes = found
        if size_bytes >= self.min_bytes:
            return None
        if self.session is not None:
            self._services.fetch_sessions.move_on(self.session)
        self.is_at_end = True
        if before is None or before.is_done:
            before = ParkedPartitionsFetch(self, slow_path, stamp)
        frame = bytes(view[start + _LENGTH_BYTES : start + self.frame_bytes])
        before.wait(frame, correlation_id, targets, news, started_ns)
        return before

    # For subclasses.

    def take(self, view: memoryview, start: int, end: int) -> tuple[bytes, Collection[FetchTarget]] | None:
        """The correlation id of the frame at `start`, and the partitions that are to be read, with their offsets set to
        those of the frame; None where the slow path must take it.
        """
        raise NotImplementedError

    def _is_placed(self, view: memoryview, start: int, end: int) -> bool:
        """Set `_unpack_frame` for the length of the frame at `start`; False if it is not whole before `end`, or too
        short. The caller compares the fields. The first of them, before the correlation id, includes the length.
        """
        if end - start == self.frame_bytes:
            return True  # if its length field differs, the comparison fails
        frame_bytes = _LENGTH_BYTES + int.from_bytes(view[start : start + _LENGTH_BYTES], "big")
        if not self._least_bytes <= frame_bytes <= end - start:
            return False
        if frame_bytes != self.frame_bytes:
            self._place(frame_bytes)
        return True

    def look(self, targets: Iterable[FetchTarget], sends_maps: bool, reads: SharedReads | None) -> Found | None:
        """What is new in these partitions; None where the slow path must answer.

        `reads` has what other requests have read in this turn.
        """
        found, committed_only = self._found, self._committed_only
        news: list[News] = []
        left_bytes = max_bytes = self._max_bytes
        try:
            for target in targets:
                partition, log, topic = found[target]
                offset = target.fetch_offset
                if committed_only and partition.must_list_aborted(offset):
                    return None  # the slow path lists what was aborted in the records
                if partition.gathered:
                    partition.settle()
                high_watermark = last_stable_offset = partition.high_watermark
                records: Buffer | None
                if offset == high_watermark:
                    records = NO_RECORDS
                else:
                    is_first = left_bytes == max_bytes
                    most = target.max_bytes
                    if most > left_bytes:  # noqa: PLR1730  (`min` and `max` take ten times as long)
                        most = left_bytes
                    if most < 0:  # noqa: PLR1730
                        most = 0
                    if reads is not None:
                        read = self._services.parked_fetches.read
                        records = read(partition, offset, most, is_first, committed_only, sends_maps, reads)
                    else:
                        if committed_only:
                            records = partition.read_on(offset, most, is_first, True, sends_maps)
                        else:  # the same, without the call
                            reader = log.reader
                            read_on = reader.read_on if reader.newest is None else reader.read_newest
                            records = read_on(offset, most, high_watermark, sends_maps, is_first)
                        if records is None:
                            records = partition.read(offset, most, is_first, committed_only, sends_maps).view
                    if records is None:
                        return None
                    left_bytes -= len(records)
                log_start_offset = log.log_start_offset
                if high_watermark > log.transactions.first_open_offset:
                    last_stable_offset = partition.last_stable_offset
                if (
                    records
                    or high_watermark != target.sent_high_watermark
                    or log_start_offset != target.sent_log_start_offset
                ):
                    news.append(
                        (target, partition, topic, high_watermark, last_stable_offset, log_start_offset, records)
                    )
        except (KeyError, KafkaError, OSError):
            return None  # the slow path meets the error again and returns it
        size_bytes = max_bytes - left_bytes
        if 0 < size_bytes < self.min_bytes and self._is_cut(targets, news):
            return None  # the slow path decides whether there is enough, although less was read
        return news, size_bytes

    def _is_cut(self, targets: Iterable[FetchTarget], news: list[News]) -> bool:
        """Whether more of any of these partitions is visible than was read."""
        lengths = {target: len(records) for target, _, _, _, _, _, records in news}
        committed_only = self._committed_only
        for target in targets:
            partition, offset = self._found[target][0], target.fetch_offset
            if partition.has_more(offset, 0, committed_only):
                try:
                    visible = partition.visible_bytes(offset, committed_only)
                except OSError:
                    return True
                if visible > lengths.get(target, 0):
                    return True
        return False

    def encode(self, news: list[News], correlation_id: bytes, started_ns: int) -> list[Buffer]:
        """The frame that reports it; the session counts it as sent from now on."""
        session = self.session
        if len(news) == 1 and session is not None and session.uses_topic_ids:
            answer = answer_of_one(session, news[0], correlation_id, self._committed_only)
        else:
            answer = partitions_answer(self._layout, session, news, correlation_id, self._committed_only)
        # `RequestMeter.note`, without the call.
        meter, elapsed_us = self._meter, (perf_counter_ns() - started_ns) // 1000
        times = meter.times
        meter.count += 1
        times.counts[0 if elapsed_us <= FIRST_BUCKET_US else bisect_left(REQUEST_BUCKETS_US, elapsed_us)] += 1
        times.sum_us += elapsed_us
        return answer


def limits_of(request: FetchRequest, context: Context) -> tuple[object, ...]:
    """The fields of a whole request that a session does not remember."""
    return context.api_version, context.client_id, *_LIMITS(request)


def partition_behind(target: FetchTarget, version: int, services: Services) -> Partition | None:
    """The partition of a target, where requests for it may be answered from a template; else None."""
    topic = services.catalog.find_topic(target.topic)
    if topic is None or not 0 <= target.partition < len(topic.partitions):
        return None
    partition = topic.partitions[target.partition]
    if (
        partition is None
        or partition.is_closed
        or target.last_fetched_epoch not in (NO_EPOCH, latest_epoch(partition))
        or target.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch)
        or (version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd")
    ):
        return None
    return partition
