"""The short way of a Fetch request that looks like one before; `scripts/bench` shows what it is worth.

A consumer of one partition without a fetch session (librdkafka, aiokafka and others have none) sends the same bytes
again and again; only the correlation id and the fetch offset differ. What they mean is remembered per connection, so
that a request of that form needs no decoding and its answer no encoding.

    api key 2 · version 2 · correlation id 4 | client id ... partition, epoch | fetch offset 8 | the rest
                                               --------------------- the remembered form ----------------

A form is learnt from a request that takes the long way (`api/fetch.py`), and only where the long way would do the same
for any offset: one topic, one partition, no session, no diverging epoch to look for, nothing forgotten. The short way
answers only when enough hot bytes are there at once, and only for the leader epoch that is. Everything else takes the
long way: errors, long polls, cold bytes.
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.conversion import FIRST_FETCH_VERSION_WITH_BATCHES
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import KafkaError
from ottla.protocol.headers import response_header
from ottla.protocol.message import encode
from ottla.protocol.primitives import encode_unsigned_varint

if TYPE_CHECKING:
    from ottla.broker.context import Peer
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition
    from ottla.config.topic import TopicConfig
    from ottla.protocol.types import Buffer

MAX_FORMS = 256
"""Forms remembered per connection; a client that reads more partitions one by one takes the long way for the rest."""

NO_SESSION_EPOCH = -1
READ_COMMITTED = 1
FIRST_FLEXIBLE_VERSION = 12
FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_ZSTD = 10
_FORM_START = 8  # behind the correlation id
_OFFSET_BYTES = 8
CORRELATION_ID_BYTES = 4
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSETS = struct.Struct(">qqq")
_OFFSETS_BEFORE_5 = struct.Struct(">qq")
_MARK = (0x5EED_0FF5_E7A1_B2C3, 0x7EA5_7A3B_0001_0203, 0x1DEA_5EED_0405_0607)


class FetchForm:
    """What the remembered bytes mean, and the answer around what differs."""

    __slots__ = (
        "_head",
        "_head_key",
        "after",
        "before",
        "between",
        "committed_only",
        "config",
        "leader_epoch",
        "max_bytes",
        "min_bytes",
        "partition",
        "suffix",
        "version",
    )

    def __init__(
        self, request: FetchRequest, version: int, partition: Partition, suffix: bytes, max_fetch_bytes: int
    ) -> None:
        topic = request.topics[0]
        self._head_key = (-1, -1, -1)
        self._head = b""
        self.version = version
        self.suffix = suffix
        self.partition = partition
        self.config: TopicConfig = partition.log.config
        max_bytes = min(request.max_bytes, max_fetch_bytes)
        self.min_bytes = min(request.min_bytes, max_bytes)
        self.max_bytes = max(min(topic.partitions[0].partition_max_bytes, max_bytes), 0)
        self.leader_epoch = topic.partitions[0].current_leader_epoch
        self.committed_only = request.isolation_level == READ_COMMITTED
        body = encode(self._response(topic), version)
        offsets = _OFFSETS if version >= FIRST_VERSION_WITH_LOG_START else _OFFSETS_BEFORE_5
        mark = body.index(offsets.pack(*_MARK[: len(offsets.format) - 1]))
        # Behind the offsets: aborted transactions and preferred replica, the records' length (of none), then tags.
        length_bytes, tags_bytes = (1, 3) if version >= FIRST_FLEXIBLE_VERSION else (4, 0)
        self.before = response_header(FetchRequest.message_key, version, 0)[4:] + body[:mark]
        self.between = body[mark + offsets.size : len(body) - length_bytes - tags_bytes]
        self.after = body[len(body) - tags_bytes :]

    def _response(self, topic: FetchRequest.FetchTopic) -> FetchResponse:
        data = FetchResponse.PartitionData(
            partition_index=topic.partitions[0].partition,
            high_watermark=_MARK[0],
            last_stable_offset=_MARK[1],
            log_start_offset=_MARK[2] if self.version >= FIRST_VERSION_WITH_LOG_START else -1,
            aborted_transactions=[] if self.committed_only else None,
            records=b"",
        )
        named = FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        return FetchResponse(responses=[named])

    def holds(self) -> bool:
        """Whether the long way would still do the same."""
        partition = self.partition
        if self.leader_epoch >= 0 and self.leader_epoch != partition.leader_epoch:
            return False
        return not partition.is_closed and partition.log.config is self.config

    def head(self, correlation_id: bytes, length: int) -> bytes:
        """The frame of an answer up to its `length` record bytes; what repeats from answer to answer is remembered."""
        partition = self.partition
        key = (partition.high_watermark, partition.log.log_start_offset, length)
        if key != self._head_key:
            self._head, self._head_key = self._encode_head(length), key
        head = self._head
        return head[:4] + correlation_id + head[4:]

    def _encode_head(self, length: int) -> bytes:
        """The size of the frame and everything behind the correlation id."""
        partition = self.partition
        offsets = _OFFSETS_BEFORE_5.pack(partition.high_watermark, partition.last_stable_offset)
        if self.version >= FIRST_VERSION_WITH_LOG_START:
            offsets += _INT64.pack(partition.log_start_offset)
        is_flexible = self.version >= FIRST_FLEXIBLE_VERSION
        length_field = encode_unsigned_varint(length + 1) if is_flexible else _INT32.pack(length)
        head = self.before + offsets + self.between + length_field
        return _INT32.pack(CORRELATION_ID_BYTES + len(head) + length + len(self.after)) + head


class FetchForms:
    """The forms of one connection. All have their fetch offset at the same position: clients name topics alike."""

    __slots__ = ("_forms", "_layout", "_offset_at")

    def __init__(self) -> None:
        self._forms: dict[bytes, FetchForm] = {}
        self._place_offset(_FORM_START, 0)

    def _place_offset(self, offset_at: int, suffix_bytes: int) -> None:
        """The fetch offset stands at `offset_at`: what is before it and behind it."""
        self._offset_at = offset_at
        self._layout = struct.Struct(f">xxh4s{offset_at - _FORM_START}sq{suffix_bytes}s")

    def match(self, frame: memoryview) -> tuple[FetchForm, bytes, int] | None:
        """The form of a Fetch frame, its correlation id and its offset; None when it must take the long way."""
        layout = self._layout
        if len(frame) != layout.size:
            return None
        version, correlation_id, key, offset, suffix = layout.unpack(frame)
        form = self._forms.get(key)
        if form is None or form.version != version or form.suffix != suffix:
            return None
        if not form.holds():
            self._forms.clear()
            return None
        return form, correlation_id, offset

    def learn(
        self, frame: memoryview, request: FetchRequest, version: int, partition: Partition, max_fetch_bytes: int
    ) -> None:
        """Remember the form of a request that takes the long way, if the place of its offset is sure."""
        content = bytes(frame)
        offset = _INT64.pack(request.topics[0].partitions[0].fetch_offset)
        at = _offset_position(content, request, version)
        if at < 0 or content[at : at + _OFFSET_BYTES] != offset:
            return
        suffix = content[at + _OFFSET_BYTES :]
        if at != self._offset_at or len(content) != self._layout.size or len(self._forms) >= MAX_FORMS:
            self._forms.clear()
            self._place_offset(at, len(suffix))
        self._forms[content[_FORM_START:at]] = FetchForm(request, version, partition, suffix, max_fetch_bytes)


def _offset_position(content: bytes, request: FetchRequest, version: int) -> int:
    """Where the fetch offset stands, counted from the end, found by encoding the request anew; -1 when unsure.

    The encoded body must be the end of the frame: so unknown tagged fields, which are not understood, are not
    remembered either.
    """
    body = encode(request, version)
    if not content.endswith(body):
        return -1
    asked = request.topics[0].partitions[0]
    fetch_offset, asked.fetch_offset = asked.fetch_offset, _MARK[0]
    try:
        at = encode(request, version).find(_INT64.pack(_MARK[0]))
    finally:
        asked.fetch_offset = fetch_offset
    return len(content) - len(body) + at if at >= 0 else -1


def answer_by_form(
    forms: FetchForms, frame: memoryview, peer: Peer, node: Node, started_ns: int
) -> list[Buffer] | None:
    """Answer a Fetch frame the short way; None when it must take the long one."""
    match = forms.match(frame)
    if match is None:
        return None
    form, correlation_id, offset = match
    partition, min_bytes = form.partition, form.min_bytes
    try:
        view = partition.read_on(offset, form.max_bytes, form.committed_only, peer.sends_maps)
        if view is None or len(view) < min_bytes:
            view = partition.read(
                offset,
                form.max_bytes,
                at_least_one=True,
                committed_only=form.committed_only,
                allow_map=peer.sends_maps,
            ).view
    except (KafkaError, OSError):
        return None  # the long way meets it again and says what it is
    if not view:
        return None
    length = len(view)
    if length < min_bytes:
        return None
    head, after = form.head(correlation_id, length), form.after
    node.metrics.request("Fetch", form.version, 0, (perf_counter_ns() - started_ns) // 1000)
    counters = partition.counters
    counters.total_fetch_requests += 1
    counters.bytes_out += length
    return [head, view, after] if after else [head, view]


def learn_fetch_form(peer: Peer, frame: memoryview, request: FetchRequest, version: int, node: Node) -> None:
    """Remember the form of a request that takes the long way, where the short one would do the same."""
    if version < FIRST_FETCH_VERSION_WITH_BATCHES:
        return
    if request.session_id or request.session_epoch != NO_SESSION_EPOCH or request.forgotten_topics_data:
        return
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return
    asked = request.topics[0].partitions[0]
    if asked.last_fetched_epoch >= 0:
        return
    catalog = node.catalog
    topic_data = request.topics[0]
    topic = catalog.topics_by_id.get(topic_data.topic_id) if version >= 13 else catalog.topics.get(topic_data.topic)
    if topic is None or not 0 <= asked.partition < len(topic.partitions):
        return
    partition = topic.partitions[asked.partition]
    if partition is None:
        return
    if version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
        return
    if peer.fetch_forms is None:
        peer.fetch_forms = FetchForms()
    peer.fetch_forms.learn(frame, request, version, partition, node.config.fetch_max_bytes)
