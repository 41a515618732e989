"""The template of the Fetch requests of a session (KIP-227), as Java's consumers send them.

A consumer goes on in its session with the same bytes but for the correlation id, the epoch, and the partitions that it
names because it has got on in them. What is the same is remembered per connection, and so are the partitions behind the
session's targets:

    length 4, key, version | correlation id 4 | client id ... session id | epoch 4 | topics | nothing forgotten, rack
                                              ------- remembered -------                     ------ remembered ------

    topics: count | topic id 16, count | partition 4, leader epoch 4, offset 8, what the target says already 17 | 0

Of what is named only the offsets may be new. The session moves on exactly as it does on the slow path (`api/fetch.py`):
its epoch, its use, what its targets got, their order. It answers where there are enough records, all of them hot, and
nothing else to say of any partition than where it begins and ends. Where there are too few the request waits for more
(`parked_templates.py`); only the partitions in which something has changed are looked at again. Everything else takes
the slow path, which then finds the session as it was, but for the new offsets, which it sets once more: errors, cold
bytes, what was added or forgotten, sessions of clients that name topics by name (before Fetch 13), and sessions of more
than `MOST_PARTITIONS` partitions.

Behind two cold ones in a row the third is taken for cold.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable
from copy import copy
from operator import attrgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ottla.broker.fast.fetch_templates import most_bytes
from ottla.broker.fast.parked_templates import ParkedSessionFetch
from ottla.broker.fast.session_answer import session_answer
from ottla.broker.fetch.fetch_rights import reading_rights
from ottla.broker.runtime.metrics import FIRST_BUCKET_US, REQUEST_BUCKETS_US
from ottla.protocol.errors import KafkaError
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.fast.parked_templates import SlowPath
    from ottla.broker.fast.session_answer import Found, News
    from ottla.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from ottla.broker.fetch.parked_fetches import Deadlines, ParkedFetch, SharedReads, Tail
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.api.fetch import FetchRequest
    from ottla.protocol.types import Buffer
    from ottla.storage.log.log import Log

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
READ_COMMITTED = 1
NO_EPOCH = -1
NEVER_BYTES = 1 << 32
"""As a frame's length: none is looked at."""
MOST_PARTITIONS = 200
"""A session of more is read in steps, by the slow path: one look at so many takes some milliseconds."""
MAX_LAYOUTS = 16
"""Lengths of frames whose layout is kept: a client names the partitions from which it has got something."""
_FRONT = struct.Struct(">ihh")  # length, API key, version
_LENGTH_BYTES, _CORRELATION_ID_BYTES, _EPOCH_BYTES, _TOPIC_ID_BYTES = 4, 4, 4, 16
_NAMED = struct.Struct(">iiq17s")
_ONE_NAMED = struct.Struct(">b16sbiiq17sb")  # one topic with one partition, as nearly always at the end of a log
_ONE_COUNT = 2  # as compact arrays have it: one more
_REST = struct.Struct(">iqib")  # last fetched epoch, log start offset, max bytes, no tags
_LARGEST_COUNT_BYTE = 127
_LIMITS = attrgetter("replica_id", "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "rack_id")
_NONE_NAMED: dict[int, tuple[FetchTarget, int, bytes]] = {}

NO_RECORDS = memoryview(b"")


class SessionTemplate:
    """The template of the session that a connection goes on in; a connection has one, or `FetchTemplates`, or none.

    Frames of `least_bytes` and more are looked at, `frame_bytes` is the length of the newest; the length field is
    included. `is_at_end`: whether that one had to wait, as the next one probably has to.
    """

    __slots__ = (
        "_asked",
        "_changes",
        "_cold_epoch",
        "_committed_only",
        "_found",
        "_front",
        "_layouts",
        "_least_bytes",
        "_max_bytes",
        "_may_park",
        "_may_read",
        "_meter",
        "_middle",
        "_named",
        "_placed_front",
        "_services",
        "_sessions",
        "_tail",
        "_unpack_frame",
        "deadlines",
        "frame_bytes",
        "is_at_end",
        "least_bytes",
        "min_bytes",
        "quota",
        "session",
        "tails",
    )

    _cold_epoch: int
    _least_bytes: int
    deadlines: Deadlines

    def __init__(
        self,
        services: ApiServices,
        request: FetchRequest,
        context: Context,
        session: FetchSession,
        meter_of: MeterOf,
        quota: TemplateQuota | None = None,
    ) -> None:
        self.quota = quota
        self._services = services
        self._sessions = services.fetch_sessions
        self._found: dict[FetchTarget, tuple[Partition, Log, bytes]] = {}
        """By target of the session: the partition, its log, the topic's id as it is on the wire."""
        self._named: dict[bytes, dict[int, tuple[FetchTarget, int, bytes]]] = {}
        """By topic and partition: the target, and what else a request says of it that changes nothing."""
        self.tails: dict[FetchTarget, Tail] = {}
        self._remember(request, context, session, meter_of)

    def expect(self, request: FetchRequest, context: Context, session: FetchSession, meter_of: MeterOf) -> None:
        """A request took the slow path, and found nothing cold: the next one looks like it."""
        if session is not self.session or self._asked != _limits(request, context):
            self._remember(request, context, session, meter_of)
        else:
            self.least_bytes = self._least_bytes

    def note_cold(self, epoch: int) -> None:
        """The request of this epoch, which is expected, was for cold records."""
        before, self._cold_epoch = self._cold_epoch, epoch
        if epoch == before + 1:
            self.rest()

    def rest(self) -> None:
        """Look at no request until one is expected again."""
        self.least_bytes = NEVER_BYTES

    def _remember(self, request: FetchRequest, context: Context, session: FetchSession, meter_of: MeterOf) -> None:
        version = context.api_version
        self.session = session
        self._asked = _limits(request, context)
        self._changes = self._cold_epoch = NO_EPOCH
        self._max_bytes = min(request.max_bytes, most_bytes(context.connection, self._services, self.quota))
        self.min_bytes = max(min(request.min_bytes, self._max_bytes), 1)
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._may_read = reading_rights(request, context.has, self._services.authorizer)
        self._meter = meter_of(0)
        plain = copy(request)
        plain.topics, plain.forgotten_topics_data = [], []
        body = encode(plain, version)
        epoch_at = 17 if version >= FIRST_VERSION_WITH_REPLICA_STATE else 21  # before it there was a replica id
        header = encode_request_header(request.message_key, version, 0, context.client_id)
        self._middle = header[_FRONT.size - _LENGTH_BYTES + _CORRELATION_ID_BYTES :] + body[:epoch_at]
        self._tail = body[epoch_at + _EPOCH_BYTES + 1 :]  # behind the count of topics
        self._front = _FRONT.pack(0, request.message_key, version)[_LENGTH_BYTES:]
        self._layouts: dict[int, tuple[bytes, Callable[..., tuple[Any, ...]]]] = {}
        self._least_bytes = self.least_bytes = self._size_bytes(1)
        self.frame_bytes = 0
        self.is_at_end = False
        self._may_park = request.max_wait_ms > 0 and min(request.min_bytes, self._max_bytes) > 0
        self.deadlines = self._services.parked_fetches.deadlines(request.max_wait_ms)

    def _size_bytes(self, topics_bytes: int) -> int:
        """Of a frame that says so much about topics."""
        size_bytes = _FRONT.size + _CORRELATION_ID_BYTES + len(self._middle) + _EPOCH_BYTES
        return size_bytes + topics_bytes + len(self._tail)

    def _place(self, frame_bytes: int) -> None:
        """The frames that come are as long as this."""
        layout = self._layouts.get(frame_bytes)
        if layout is None:
            topics_bytes = frame_bytes - self._size_bytes(0)
            middle, tail = len(self._middle), len(self._tail)
            fields = f">{_FRONT.size}s{_CORRELATION_ID_BYTES}s{middle}si{topics_bytes}s{tail}s"
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
            front = (frame_bytes - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "big") + self._front
            layout = self._layouts[frame_bytes] = front, struct.Struct(fields).unpack_from
        self.frame_bytes = frame_bytes
        self._placed_front, self._unpack_frame = layout

    def _find_targets(self) -> None:
        """Find what is behind the targets of the session; nothing, if one of them may not be answered here.

        Nor if the client may not read one: a request that was refused, or another client, may have brought it in.
        """
        session = self.session
        self._changes = session.changes
        self._found.clear()
        self._named.clear()
        self.tails = {}  # what is parked keeps its own
        if session.is_closed or len(session.targets) > MOST_PARTITIONS:
            return
        find_topic, tail_of = self._services.catalog.find_topic, self._services.parked_fetches.tail_of
        for target in session.targets.values():
            topic_id = target.topic
            topic = find_topic(topic_id)
            is_there = topic is not None and 0 <= target.partition < len(topic.partitions)
            partition = topic.partitions[target.partition] if topic is not None and is_there else None
            if (
                isinstance(topic_id, str)
                or partition is None
                or partition.is_closed
                or (self._may_read is not None and not self._may_read(partition.topic))
                or target.last_fetched_epoch >= 0
                or target.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch)
            ):
                self._found.clear()
                self._named.clear()
                return
            self._found[target] = partition, partition.log, topic_id.bytes
            self.tails[target] = tail_of(partition)
            rest = _REST.pack(target.last_fetched_epoch, -1, target.max_bytes, 0)
            by_index = self._named.setdefault(topic_id.bytes, {})
            by_index[target.partition] = target, target.current_leader_epoch, rest

    def answer(self, view: memoryview, start: int, end: int, sends_maps: bool) -> list[Buffer] | None:
        """Answer the frame at `start`, whole before `end`, if it goes on in the session and its records are hot."""
        started_ns = perf_counter_ns()
        correlation_id = self._take(view, start, end)
        if correlation_id is None:
            return None
        session = self.session
        found = self.look(session.targets.values(), sends_maps, None)
        if found is None:
            return None
        news, size_bytes = found
        if size_bytes < self.min_bytes:
            return None
        if self.quota is not None and not self.quota.may_fetch(size_bytes):
            return None  # the slow path charges it, and answers it empty
        self._sessions.move_on(session)
        return self.encode(news, correlation_id, started_ns)

    def park(self, view: memoryview, start: int, end: int, slow_path: SlowPath, stamp: int) -> ParkedFetch | None:
        """Let the frame at `start` wait, if it goes on in the session and there is too little for it; else None."""
        started_ns = perf_counter_ns()
        self.is_at_end = False
        correlation_id = self._take(view, start, end)
        if correlation_id is None or not self._may_park:
            return None
        session = self.session
        targets = list(session.targets.values())
        found = self.look(targets, slow_path.peer.sends_maps, None)
        if found is None or not targets:
            return None
        news, size_bytes = found
        if size_bytes >= self.min_bytes:
            return None
        self._sessions.move_on(session)
        self.is_at_end = True
        frame = bytes(view[start + _LENGTH_BYTES : start + self.frame_bytes])
        changed = [one[0] for one in news]
        return ParkedSessionFetch(self, slow_path, stamp, frame, correlation_id, targets, changed, started_ns)

    def _take(self, view: memoryview, start: int, end: int) -> bytes | None:
        """The correlation id of the frame at `start`, if it goes on in the session; its targets begin where it says."""
        frame_bytes = _LENGTH_BYTES + int.from_bytes(view[start : start + _LENGTH_BYTES], "big")
        if frame_bytes != self.frame_bytes:
            if not self._least_bytes <= frame_bytes <= end - start:
                return None
            self._place(frame_bytes)
        elif frame_bytes > end - start:
            return None
        session = self.session
        correlation_id: bytes
        unpack = self._unpack_frame  # as in `FetchTemplates.answer`
        front, correlation_id, middle, epoch, topics, tail = unpack(view, start)
        if epoch != session.epoch or front != self._placed_front or middle != self._middle or tail != self._tail:
            return None
        if session.changes != self._changes:
            self._find_targets()
        return correlation_id if self._go_on(topics) else None

    def _go_on(self, topics: bytes) -> bool:
        """Let the targets that are named begin where it is said; False when anything else about them is new."""
        if len(topics) == _ONE_NAMED.size:
            topic_count, topic_id, count, index, leader_epoch, offset, rest, tags = _ONE_NAMED.unpack(topics)
            if topic_count == count == _ONE_COUNT and not tags:
                found = self._named.get(topic_id, _NONE_NAMED).get(index)
                if found is None:
                    return False
                target, known_leader_epoch, known_rest = found
                if leader_epoch != known_leader_epoch or rest != known_rest:
                    return False
                target.fetch_offset = offset
                return True
        moved: list[tuple[FetchTarget, int]] = []
        if not 0 < topics[0] <= _LARGEST_COUNT_BYTE:
            return False
        at = 1
        try:
            for _ in range(topics[0] - 1):
                by_index = self._named[topics[at : at + _TOPIC_ID_BYTES]]
                count = topics[at + _TOPIC_ID_BYTES]
                if not 0 < count <= _LARGEST_COUNT_BYTE:
                    return False
                at += _TOPIC_ID_BYTES + 1
                for _ in range(count - 1):
                    index, leader_epoch, offset, rest = _NAMED.unpack_from(topics, at)
                    target, known_leader_epoch, known_rest = by_index[index]
                    if leader_epoch != known_leader_epoch or rest != known_rest:
                        return False
                    moved.append((target, offset))
                    at += _NAMED.size
                if topics[at]:
                    return False
                at += 1
        except (KeyError, IndexError, struct.error):  # none of ours, or no request at all: the slow path knows
            return False
        if at != len(topics):
            return False
        for target, offset in moved:
            target.fetch_offset = offset
        return True

    def look(self, targets: Iterable[FetchTarget], sends_maps: bool, reads: SharedReads | None) -> Found | None:
        """What is new in these partitions; None where the slow path has to say it.

        `reads` shares what others have read in this turn.
        """
        found, committed_only = self._found, self._committed_only
        news: list[News] = []
        left_bytes = max_bytes = self._max_bytes
        try:
            for target in targets:
                partition, log, topic_id = found[target]
                offset = target.fetch_offset
                if committed_only and partition.must_list_aborted(offset):
                    return None  # the slow path lists what was aborted in the records
                if partition.gathered:
                    partition.settle()
                high_watermark = last_stable_offset = partition.high_watermark
                records: memoryview | None
                if offset == high_watermark:
                    records = NO_RECORDS
                else:
                    is_first = left_bytes == max_bytes
                    most = max(min(target.max_bytes, left_bytes), 0)
                    if reads is not None:
                        read = self._services.parked_fetches.read
                        records = read(partition, offset, most, is_first, committed_only, sends_maps, reads)
                    else:
                        if committed_only:
                            records = partition.read_on(offset, most, is_first, True, sends_maps)
                        else:  # the same, without the call
                            records = log.reader.read_on(offset, most, high_watermark, sends_maps, is_first)
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
                        (target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records)
                    )
        except (KeyError, KafkaError, OSError):
            return None  # the slow path meets it again and says what it is
        return news, max_bytes - left_bytes

    def encode(self, news: list[News], correlation_id: bytes, started_ns: int) -> list[Buffer]:
        """The frame that reports it; the session counts it as sent from now on."""
        answer = session_answer(self.session, news, correlation_id, self._committed_only)
        # `RequestMeter.note`, without the call.
        meter, elapsed_us = self._meter, (perf_counter_ns() - started_ns) // 1000
        times = meter.times
        meter.count += 1
        times.counts[0 if elapsed_us <= FIRST_BUCKET_US else bisect_left(REQUEST_BUCKETS_US, elapsed_us)] += 1
        times.sum_us += elapsed_us
        return answer


def _limits(request: FetchRequest, context: Context) -> tuple[object, ...]:
    """What a request says of itself, and a session does not remember."""
    return context.api_version, context.client_id, *_LIMITS(request)


def learnable_session(request: FetchRequest, version: int, services: ApiServices) -> FetchSession | None:
    """The session in which a request that took the slow path has gone on, where the fast one may follow; else None."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS or request.session_epoch <= 0:
        return None
    return services.fetch_sessions.find(request.session_id)
