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
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.slot import Slot
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode
from ottla.storage.append import AppendEntry, AppendResult

if TYPE_CHECKING:
    from ottla.broker.context import Peer
    from ottla.broker.metrics import Metrics
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition
    from ottla.config.topic import TopicConfig

ACKS_ALL = -1
MAX_FORMS = 256
"""Forms remembered per connection; a client with more partitions takes the long way for the rest."""

FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_LOG_START = 5
_FORM_START = 8  # behind the correlation id
_FLEXIBLE_TAIL = b"\0\0\0"  # no tagged fields of the partition, the topic, the request
_CORRELATION_ID = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_MARK = struct.pack(">qq", 0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203)
_OFFSETS = struct.Struct(">qqq")
_OFFSETS_BEFORE_5 = struct.Struct(">qq")


class ProduceForm:
    """What the remembered bytes mean, and the answer around what differs."""

    __slots__ = (
        "acks",
        "after",
        "before",
        "config",
        "index",
        "name",
        "partition",
        "size_bytes",
        "timeout_ms",
        "topic_id",
        "version",
    )

    def __init__(self, request: ProduceRequest, version: int, partition: Partition) -> None:
        topic = request.topic_data[0]
        self.version = version
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.partition = partition
        self.config: TopicConfig = partition.log.config
        whole = self.encode(ErrorCode.NONE, 0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203, 0)
        mark = whole.index(_MARK)
        offsets_bytes = 24 if version >= FIRST_VERSION_WITH_LOG_START else 16
        tags = response_header(0, version, 0)[4:]
        self.before = tags + whole[:mark]
        self.after = whole[mark + offsets_bytes :]
        self.size_bytes = 4 + len(tags) + len(whole)

    def encode(
        self,
        code: ErrorCode,
        base_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        message: str | None = None,
        result: AppendResult | None = None,
    ) -> bytes:
        """The response's body, by the long way."""
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

    def holds(self) -> bool:
        """Whether the long way would still do the same."""
        partition = self.partition
        return not partition.is_closed and partition.log.config is self.config


class ProduceForms:
    """The forms of one connection. All have their records' length at the same position: clients name topics alike."""

    __slots__ = ("_forms", "_length_at")

    def __init__(self) -> None:
        self._forms: dict[bytes, ProduceForm] = {}
        self._length_at = 0

    def match(self, frame: memoryview) -> tuple[ProduceForm, memoryview] | None:
        """The form of a Produce frame and its records; None when it must take the long way."""
        at = self._length_at
        form = self._forms.get(bytes(frame[_FORM_START:at]))
        end = len(frame)
        if form is None or form.version != frame[3] or end < at + 4:
            return None
        if form.version >= FIRST_FLEXIBLE_VERSION:
            length = frame[at]
            at += 1
            if length & 0x80:
                length &= 0x7F
                shift = 7
                while True:
                    byte = frame[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    if not byte & 0x80 or shift > 21 or at >= end:
                        break
                    shift += 7
            length -= 1
            if length <= 0 or at + length + 3 != end or frame[at + length :] != _FLEXIBLE_TAIL:
                return None
        else:
            length = _INT32.unpack_from(frame, at)[0]
            at += 4
            if length <= 0 or at + length != end:
                return None
        if not form.holds():
            self._forms.clear()
            return None
        return form, frame[at : at + length]

    def learn(self, frame: memoryview, request: ProduceRequest, version: int, partition: Partition) -> None:
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
        if length_at <= _FORM_START or frame[length_at:records_at] != field or frame[records_at + length :] != tail:
            return
        if length_at != self._length_at or len(self._forms) >= MAX_FORMS:
            self._forms.clear()
            self._length_at = length_at
        self._forms[bytes(frame[_FORM_START:length_at])] = ProduceForm(request, version, partition)


class ProduceSlot(Slot):
    """One such request under way: its slot, and the waiter of its batch."""

    __slots__ = ("_correlation_id", "_form", "_metrics", "_node", "_offsets", "_started_ns")

    def __init__(self, form: ProduceForm, correlation_id: int, node: Node, started_ns: int) -> None:
        super().__init__(None)
        self._form = form
        self._correlation_id = correlation_id
        self._node = node
        self._metrics: Metrics = node.metrics
        self._offsets = b""
        self._started_ns = started_ns

    def appended(self, index: int, result: AppendResult) -> None:
        """Told by the turn's flush."""
        form = self._form
        if result.error_code is not ErrorCode.NONE:
            self._refuse(result.error_code, result.error_message, result)
            return
        if form.version >= FIRST_VERSION_WITH_LOG_START:
            offsets = _OFFSETS.pack(result.base_offset, result.log_append_time_ms, result.log_start_offset)
        else:
            offsets = _OFFSETS_BEFORE_5.pack(result.base_offset, result.log_append_time_ms)
        self._offsets = offsets
        partition = form.partition
        end_offset = result.last_offset + 1
        if partition.high_watermark >= end_offset or (form.acks != ACKS_ALL and not partition.holds_acknowledgements):
            self._answer()
        else:
            deadline_ms = self._node.clock.monotonic_ms() + form.timeout_ms
            partition.when_visible(end_offset, self._visible, deadline_ms)

    def _visible(self, error: BaseException | None) -> None:
        if error is None:
            self._answer()
        elif isinstance(error, KafkaError):
            self._refuse(error.code, error.message, None)
        else:
            self._refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(error), None)

    def _answer(self) -> None:
        form = self._form
        self._metrics.request("Produce", form.version, 0, (perf_counter_ns() - self._started_ns) // 1000)
        head = _HEAD.pack(form.size_bytes, self._correlation_id)
        self.finish([head + form.before + self._offsets + form.after])

    def _refuse(self, code: ErrorCode, message: str | None, result: AppendResult | None) -> None:
        form = self._form
        self._metrics.request("Produce", form.version, code, (perf_counter_ns() - self._started_ns) // 1000)
        log_start_offset = -1 if result is None else result.log_start_offset
        body = form.encode(code, -1, -1, log_start_offset, message or code.message, result)
        header = response_header(0, form.version, self._correlation_id)
        self.finish([_INT32.pack(len(header) + len(body)) + header + body])


def start_by_form(forms: ProduceForms, frame: memoryview, node: Node, started_ns: int) -> ProduceSlot | None:
    """Start a Produce frame the short way; None when it must take the long one."""
    match = forms.match(frame)
    if match is None:
        return None
    form, records = match
    slot = ProduceSlot(form, _CORRELATION_ID.unpack_from(frame, 4)[0], node, started_ns)
    form.partition.gather(AppendEntry(records, form.version), slot, 0)
    return slot


def learn_form(peer: Peer, frame: memoryview, request: ProduceRequest, version: int, node: Node) -> None:
    """Remember the form of a request that is about to take the long way, where the short one would do the same."""
    if request.acks not in (ACKS_ALL, 1) or request.transactional_id is not None:
        return
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return
    topic_data = request.topic_data[0]
    data = topic_data.partition_data[0]
    catalog = node.catalog
    topic = catalog.topics_by_id.get(topic_data.topic_id) if version >= 13 else catalog.topics.get(topic_data.name)
    if topic is None or topic.is_internal or not 0 <= data.index < len(topic.partitions) or not data.records:
        return
    partition = topic.partitions[data.index]
    if partition is None or (request.acks == ACKS_ALL and partition.log.config.min_insync_replicas > 1):
        return
    if peer.produce_forms is None:
        peer.produce_forms = ProduceForms()
    peer.produce_forms.learn(frame, request, version, partition)


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
