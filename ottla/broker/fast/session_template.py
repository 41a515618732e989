"""The template of the Fetch requests of a session (KIP-227), as Java's consumers send them.

A consumer goes on in its session with the same bytes but for the correlation id, the epoch, and the partitions that it
names because it has got on in them. What is the same is remembered per connection, and so are the partitions behind the
session's targets:

    length 4, key, version | correlation id 4 | client id ... session id | epoch 4 | topics | nothing forgotten, rack
                                              ------- remembered -------                     ------ remembered ------

    topics: count | topic id 16, count | partition 4, leader epoch 4, offset 8, what the target says already 17 | 0

Of what is named only the offsets may be new. The session moves on exactly as it does on the slow path (`api/fetch.py`):
its epoch, its use, what its targets got, their order. It answers only where there is something to give: some
records, all of them hot, and nothing else to say of any partition than where it begins and ends. Everything else takes
the slow path, which then finds the session as it was, but for the new offsets, which it sets once more: errors, long
polls, cold bytes, what was added or forgotten, sessions of clients that name topics by name (before Fetch 13), and
sessions of more than `PARTITIONS_PER_STEP` partitions.

Frames of one length are looked at, that of the newest one which took the slow path and did not wait: a consumer that
catches up names all of its partitions each time. One that waited says that its consumer is at the end, where the next
one waits, too, and need not be looked at twice; and behind two cold ones in a row the third is taken for cold.
"""

from __future__ import annotations

import struct
from copy import copy
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.fast.fetch_templates import most_bytes
from ottla.broker.fetch.delayed_fetch import PARTITIONS_PER_STEP
from ottla.protocol.errors import KafkaError
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode
from ottla.protocol.primitives import encode_unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.protocol.api.fetch import FetchRequest
    from ottla.protocol.types import Buffer
    from ottla.storage.log.log import Log

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
READ_COMMITTED = 1
NO_EPOCH = -1
NEVER_BYTES = 1 << 32
"""As a frame's length: none is looked at."""
_FRONT = struct.Struct(">ihh")  # length, API key, version
_LENGTH_BYTES, _CORRELATION_ID_BYTES, _EPOCH_BYTES, _TOPIC_ID_BYTES = 4, 4, 4, 16
_NAMED = struct.Struct(">iiq17s")
_REST = struct.Struct(">iqib")  # last fetched epoch, log start offset, max bytes, no tags
_LARGEST_COUNT_BYTE = 127
_ANSWER = struct.Struct(">4sbihi")  # correlation id, no tags, throttle time, no error, session id
# Partition, no error, high watermark, last stable offset, log start; aborted transactions, preferred replica.
_PARTITION = struct.Struct(">ihqqqbi")
_NO_TAGS = b"\0"

_Told = tuple["FetchTarget", "Partition", bytes, int, int, int, memoryview]
"""Of a target: partition, topic id, high watermark, last stable offset, log start offset, records."""


class SessionTemplate:
    """The template of the session that a connection goes on in; a connection has one, or `FetchTemplates`, or none.

    `frame_bytes` is the length of the frames that are looked at, their length field included.
    """

    __slots__ = (
        "_asked",
        "_changes",
        "_cold_epoch",
        "_committed_only",
        "_found",
        "_front",
        "_max_bytes",
        "_meter",
        "_middle",
        "_named",
        "_placed_bytes",
        "_services",
        "_session",
        "_tail",
        "_unpack_frame",
        "frame_bytes",
    )

    _cold_epoch: int

    def __init__(
        self,
        services: ApiServices,
        request: FetchRequest,
        context: Context,
        session: FetchSession,
        meter_of: MeterOf,
    ) -> None:
        self._services = services
        self._found: dict[FetchTarget, tuple[Partition, Log, bytes]] = {}
        """By target of the session: the partition, its log, the topic's id as it is on the wire."""
        self._named: dict[bytes, dict[int, tuple[FetchTarget, int, bytes]]] = {}
        """By topic and partition: the target, and what else a request says of it that changes nothing."""
        self._remember(request, context, session, meter_of)

    def expect(self, request: FetchRequest, context: Context, session: FetchSession, meter_of: MeterOf) -> None:
        """A request was answered by the slow path, and did not wait: the next one looks like it, and names as much."""
        if session is not self._session or self._asked != _limits(request, context):
            self._remember(request, context, session, meter_of)
        else:
            self._place_topics(request, context.api_version)

    def note_cold(self, epoch: int) -> None:
        """The request of this epoch, which is expected, was for cold records."""
        before, self._cold_epoch = self._cold_epoch, epoch
        if epoch == before + 1:
            self.rest()

    def rest(self) -> None:
        """Look at no request until one is expected again."""
        self.frame_bytes = NEVER_BYTES

    def _remember(self, request: FetchRequest, context: Context, session: FetchSession, meter_of: MeterOf) -> None:
        version = context.api_version
        self._session = session
        self._asked = _limits(request, context)
        self._changes = self._cold_epoch = NO_EPOCH
        self._max_bytes = min(request.max_bytes, most_bytes(context.connection, self._services))
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._meter = meter_of(0)
        plain = copy(request)
        plain.topics, plain.forgotten_topics_data = [], []
        body = encode(plain, version)
        epoch_at = 17 if version >= FIRST_VERSION_WITH_REPLICA_STATE else 21  # before it there was a replica id
        header = encode_request_header(request.message_key, version, 0, context.client_id)
        self._middle = header[_FRONT.size - _LENGTH_BYTES + _CORRELATION_ID_BYTES :] + body[:epoch_at]
        self._tail = body[epoch_at + _EPOCH_BYTES + 1 :]  # behind the count of topics
        self._placed_bytes = 0
        self._place_topics(request, version)

    def _place_topics(self, request: FetchRequest, version: int) -> None:
        """Frames are to be as long as this one."""
        topics_bytes = 1
        for topic in request.topics:
            count = len(topic.partitions)
            topics_bytes += _TOPIC_ID_BYTES + len(encode_unsigned_varint(count + 1)) + count * _NAMED.size + 1
        layout = f">{_FRONT.size}s{_CORRELATION_ID_BYTES}s{len(self._middle)}si{topics_bytes}s{len(self._tail)}s"
        frame_bytes = struct.calcsize(layout)
        self.frame_bytes = frame_bytes
        if frame_bytes != self._placed_bytes:
            self._placed_bytes = frame_bytes
            self._unpack_frame = struct.Struct(layout).unpack_from
            self._front = _FRONT.pack(frame_bytes - _LENGTH_BYTES, request.message_key, version)

    def _find_targets(self) -> None:
        """Find what is behind the targets of the session; nothing, if one of them may not be answered here."""
        session = self._session
        self._changes = session.changes
        self._found.clear()
        self._named.clear()
        if session.is_closed or len(session.targets) > PARTITIONS_PER_STEP:
            return
        topics = self._services.catalog.topics_by_id
        for target in session.targets.values():
            topic_id = target.topic
            topic = None if isinstance(topic_id, str) else topics.get(topic_id)
            is_there = topic is not None and 0 <= target.partition < len(topic.partitions)
            partition = topic.partitions[target.partition] if topic is not None and is_there else None
            if (
                isinstance(topic_id, str)
                or partition is None
                or partition.is_closed
                or target.last_fetched_epoch >= 0
                or target.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch)
            ):
                self._found.clear()
                self._named.clear()
                return
            self._found[target] = partition, partition.log, topic_id.bytes
            rest = _REST.pack(target.last_fetched_epoch, -1, target.max_bytes, 0)
            by_index = self._named.setdefault(topic_id.bytes, {})
            by_index[target.partition] = target, target.current_leader_epoch, rest

    def answer(self, view: memoryview, start: int, sends_maps: bool) -> list[Buffer] | None:
        """Answer the frame of `frame_bytes` at `start`, if it goes on in the session and its records are hot."""
        started_ns = perf_counter_ns()
        session = self._session
        front, correlation_id, middle, epoch, topics, tail = self._unpack_frame(view, start)
        if epoch != session.epoch or front != self._front or middle != self._middle or tail != self._tail:
            return None
        if session.changes != self._changes:
            self._find_targets()
        if not self._go_on(topics):
            return None
        told = self._look(sends_maps)
        if told is None:
            return None
        self._services.fetch_sessions.move_on(session)
        answer = self._encode(told, correlation_id)
        self._meter.note((perf_counter_ns() - started_ns) // 1000, 1)
        return answer

    def _go_on(self, topics: bytes) -> bool:
        """Let the targets that are named begin where it is said; False when anything else about them is new."""
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

    def _look(self, sends_maps: bool) -> list[_Told] | None:
        """What is new in the session's partitions, in its order; None where the slow path has to say it, or to wait."""
        found, committed_only = self._found, self._committed_only
        told: list[_Told] = []
        left_bytes = max_bytes = self._max_bytes
        try:
            for target in self._session.targets.values():
                partition, log, topic_id = found[target]
                offset = target.fetch_offset
                if committed_only and partition.must_list_aborted(offset):
                    return None  # the slow path lists what was aborted in the records
                is_first = left_bytes == max_bytes
                most = max(min(target.max_bytes, left_bytes), 0)
                records = partition.read_on(offset, most, is_first, committed_only, sends_maps)
                if records is None:
                    records = partition.read(offset, most, is_first, committed_only, sends_maps).view
                    if records is None:
                        return None
                left_bytes -= len(records)
                high_watermark = last_stable_offset = partition.high_watermark
                log_start_offset = log.log_start_offset
                if high_watermark > log.transactions.first_open_offset:
                    last_stable_offset = partition.last_stable_offset
                if (
                    records
                    or high_watermark != target.told_high_watermark
                    or log_start_offset != target.told_log_start_offset
                ):
                    told.append(
                        (target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records)
                    )
        except (KeyError, KafkaError, OSError):
            return None  # the slow path meets it again and says what it is
        return told if left_bytes < max_bytes else None

    def _encode(self, told: list[_Told], correlation_id: bytes) -> list[Buffer]:
        """The frame that reports it; the session counts it as sent from now on."""
        session = self._session
        counts: list[int] = []
        last_id = b""
        read: list[FetchTarget] = []
        for _, _, topic_id, *_ in told:
            if topic_id == last_id:
                counts[-1] += 1
            else:
                counts.append(1)
                last_id = topic_id
        aborted = 1 if self._committed_only else 0  # an empty list, or null
        pieces: list[Buffer] = [b""]
        text = _ANSWER.pack(correlation_id, 0, 0, 0, session.id) + encode_unsigned_varint(len(counts) + 1)
        size_bytes = left = slot = 0
        for target, partition, topic_id, high_watermark, last_stable_offset, log_start_offset, records in told:
            if not left:
                left = counts[slot]
                slot += 1
                text += topic_id + encode_unsigned_varint(left + 1)
            left -= 1
            length = len(records)
            text += _PARTITION.pack(
                target.partition, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1
            ) + encode_unsigned_varint(length + 1)
            target.told_high_watermark, target.told_log_start_offset = high_watermark, log_start_offset
            counters = partition.counters
            counters.total_fetch_requests += 1
            if length:
                counters.bytes_out += length
                size_bytes += len(text) + length
                pieces += (text, records)
                text = b""
                read.append(target)
            text += _NO_TAGS if left else _NO_TAGS + _NO_TAGS
        text += _NO_TAGS
        pieces.append(text)
        pieces[0] = (size_bytes + len(text)).to_bytes(_LENGTH_BYTES, "big")
        if len(read) < len(session.targets):  # else the order stays as it is
            for target in read:
                session.read_last(target)
        return pieces


def _limits(request: FetchRequest, context: Context) -> tuple[object, ...]:
    """What a request says of itself, and a session does not remember."""
    return (
        context.api_version,
        context.client_id,
        request.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.rack_id,
    )


def learnable_session(request: FetchRequest, version: int, services: ApiServices) -> FetchSession | None:
    """The session in which a request that took the slow path has gone on, where the fast one may follow; else None."""
    if version < FIRST_VERSION_WITH_TOPIC_IDS or request.min_bytes > 1 or request.session_epoch <= 0:
        return None
    return services.fetch_sessions.find(request.session_id)
