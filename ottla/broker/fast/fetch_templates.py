"""The fast path of a Fetch request that looks like an earlier one; `scripts/bench` shows what it gains.

A consumer of one partition without a fetch session (librdkafka, aiokafka and others have none) sends the same bytes
again and again; only the correlation id and the fetch offset differ. What they mean is remembered per connection, so
that a request of that template needs no decoding and its answer no encoding.

    api key 2 · version 2 · correlation id 4 | client id ... partition, epoch | fetch offset 8 | the rest
                                               --------------------- the remembered template ----------------

A template is learnt from a request that took the slow path (`api/fetch.py`), and only where the slow path would do the
same for any offset: one topic, one partition, no session, the current leader epoch, no epoch that could diverge,
nothing forgotten. `hot_path.py` decides how long it is valid. The fast path answers when enough records are in memory
immediately; where there are too few, the request waits for more (`parked_templates.py`). Everything else takes the
slow path: errors, records that are not in memory.
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING

from ottla.broker.fast.fetch_template import MARKS, FetchTemplate
from ottla.broker.fast.parked_templates import ParkedPlainFetch
from ottla.broker.formats.conversion import FIRST_FETCH_VERSION_WITH_BATCHES
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.errors import KafkaError
from ottla.protocol.message import encode

if TYPE_CHECKING:
    from ottla.broker.fast.parked_templates import SlowPath
    from ottla.broker.fetch.parked_fetches import ParkedFetches
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.peer import Peer
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.broker.services import Services
    from ottla.protocol.types import Buffer

MAX_TEMPLATES = 256
"""Templates remembered per connection; a client that reads more partitions singly takes the slow path for some."""

MOST_FRAME_BYTES = 2_048
"""Longer requests are not remembered: they have the client id, which may have 32 KB."""

MOST_COPIED_BYTES = 1 << 20
"""The limit of one answer where the transport cannot send a map. The slow path asks for memory before it reads more."""

NO_SESSION_EPOCH = -1
NO_EPOCH = -1
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_TOPIC_IDS = 13
_KEY_START = 12  # of a frame with its length: after the correlation id
_FRONT = struct.Struct(">ihh")  # length, API key, version
_LENGTH_BYTES = 4
_OFFSET_BYTES = 8
_INT64 = struct.Struct(">q")


class FetchTemplates:
    """The templates of one connection. All are equally long and have their fetch offset at the same position: clients
    name topics alike. `frame_bytes` is the length of such a frame, its length field included.
    """

    __slots__ = (
        *("_key", "_offset_at", "_template", "_templates", "_unpack"),
        *("frame_bytes", "is_at_end", "least_bytes"),
    )

    def __init__(self) -> None:
        self._templates: dict[bytes, FetchTemplate] = {}
        self._forget()
        self._place_offset(_KEY_START, 0)

    def _place_offset(self, offset_at: int, suffix_bytes: int) -> None:
        """Set the position of the fetch offset, and what is before and after it."""
        self._offset_at = offset_at
        layout = struct.Struct(f">{_FRONT.size}s4s{offset_at - _KEY_START}sq{suffix_bytes}s")
        self._unpack = layout.unpack_from
        self.frame_bytes = self.least_bytes = layout.size
        self.is_at_end = False
        """Whether the newest frame had to wait: the next one probably has to wait too."""

    def _forget(self) -> None:
        self._templates.clear()
        self._template: FetchTemplate | None = None
        """The template of the newest frame, and the key that it was found by."""
        self._key = b""

    def answer(self, view: memoryview, start: int, end: int, sends_maps: bool) -> list[Buffer] | None:
        """Answer the frame of `frame_bytes` that begins at `start`, if its template is known and its records are hot.

        None when it must take the slow path.
        """
        started_ns = perf_counter_ns()
        unpack = self._unpack
        front, correlation_id, key, offset, suffix = unpack(view, start)
        template = self._template
        if template is None or key != self._key:  # it is often the same as the last one, and a hash costs more
            template = self._templates.get(key)
            if template is None:
                return None
            self._template, self._key = template, key
        if template.front != front or template.suffix != suffix:
            return None
        read_on, min_bytes = template.reader.read_on, template.min_bytes
        return (
            template.answer(correlation_id, offset, started_ns, sends_maps, min_bytes, read_on, perf_counter_ns) or None
        )

    def park(
        self, view: memoryview, start: int, end: int, slow_path: SlowPath, stamp: int, before: ParkedPlainFetch | None
    ) -> ParkedPlainFetch | None:
        """Let the frame of `frame_bytes` that begins at `start` wait, if its template is known and there are too few
        records for it; else None. `before` is the newest that has waited, at the same stamp.
        """
        unpack = self._unpack
        front, correlation_id, key, offset, suffix = unpack(view, start)
        template = self._template
        if template is None or key != self._key:
            template = self._templates.get(key)
            if template is None:
                return None
            self._template, self._key = template, key
        self.is_at_end = False
        if template.front != front or template.suffix != suffix or not template.may_park:
            return None
        # At the log's end it also waits for gathered batches: the turn's end appends them, and then checks what waits.
        if offset != template.partition.high_watermark and not self._is_short(
            template, offset, slow_path.peer.endpoint.sends_maps
        ):
            return None
        self.is_at_end = True
        if before is None or before.is_done:
            before = ParkedPlainFetch(template, slow_path, stamp)
        before.wait(template, correlation_id, offset)
        return before

    def _is_short(self, template: FetchTemplate, offset: int, sends_maps: bool) -> bool:
        """Whether there are fewer records than requested, as far as that is known without a worker."""
        partition, committed_only = template.partition, template.committed_only
        if committed_only and partition.must_list_aborted(offset):
            return False
        try:
            records = partition.read(offset, template.max_bytes, True, committed_only, sends_maps).view
            if records is None or len(records) >= template.min_bytes:
                return False
            return not (records and template.is_enough(offset, len(records)))
        except (KafkaError, OSError):
            return False  # the slow path meets the error again and returns it

    def learn(
        self,
        frame: memoryview,
        request: FetchRequest,
        version: int,
        partition: Partition,
        max_fetch_bytes: int,
        meter_of: MeterOf,
        parked_fetches: ParkedFetches,
        quota: TemplateQuota | None,
    ) -> None:
        """Remember the template of a request that takes the slow path, if the position of its offset is certain.

        `max_fetch_bytes`: no answer is longer, even if more is requested (`most_bytes`).
        """
        if len(frame) > MOST_FRAME_BYTES:
            return
        content = bytes(frame)
        offset = _INT64.pack(request.topics[0].partitions[0].fetch_offset)
        at = _offset_position(content, request, version)
        if at < 0 or content[at : at + _OFFSET_BYTES] != offset:
            return
        front = _FRONT.pack(len(content), FetchRequest.message_key, version)
        suffix = content[at + _OFFSET_BYTES :]
        frame_bytes, offset_at = _LENGTH_BYTES + len(content), _LENGTH_BYTES + at
        if offset_at != self._offset_at or frame_bytes != self.frame_bytes or len(self._templates) >= MAX_TEMPLATES:
            self._forget()
            self._place_offset(offset_at, len(suffix))
        self._template = None
        key = content[_KEY_START - _LENGTH_BYTES : at]
        self._templates[key] = FetchTemplate(
            *(request, version, partition, front, key, suffix, max_fetch_bytes, meter_of(0), parked_fetches),
            self._unpack,
            quota,
        )


def _offset_position(content: bytes, request: FetchRequest, version: int) -> int:
    """The position of the fetch offset, found by encoding the request again; -1 when it is not certain.

    The encoded body must be the end of the frame: so unknown tagged fields, which are not understood, are not
    remembered either.
    """
    body = encode(request, version)
    if not content.endswith(body):
        return -1
    asked = request.topics[0].partitions[0]
    fetch_offset, asked.fetch_offset = asked.fetch_offset, MARKS[0]
    try:
        at = encode(request, version).find(_INT64.pack(MARKS[0]))
    finally:
        asked.fetch_offset = fetch_offset
    return len(content) - len(body) + at if at >= 0 else -1


def most_bytes(peer: Peer, services: Services, quota: TemplateQuota | None) -> int:
    """The longest answer that is given without the slow path: smaller where records are copied (no maps may be sent),
    and never more than the client's quota would allow.
    """
    most = services.config.fetch_max_bytes
    if not peer.endpoint.sends_maps:
        most = min(most, MOST_COPIED_BYTES)
    return most if quota is None else quota.fetch_bytes(most)


def latest_epoch(partition: Partition) -> int:
    """The leader epoch of the newest records, if this broker wrote them in its current leader epoch; else NO_EPOCH.

    The log of a client that has fetched this epoch last diverges from Ottla's nowhere: it ends where Ottla's does,
    until the epoch changes, and the stamp with it.
    """
    epoch = partition.leader_epoch
    return epoch if partition.log.epochs.latest == epoch else NO_EPOCH


def learnable_fetch(request: FetchRequest, version: int, services: Services) -> Partition | None:
    """The partition of a request that took the slow path, where the fast path would do the same; else None."""
    if version < FIRST_FETCH_VERSION_WITH_BATCHES:
        return None
    if request.session_id or request.session_epoch != NO_SESSION_EPOCH or request.forgotten_topics_data:
        return None
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    asked = request.topics[0].partitions[0]
    topic_data = request.topics[0]
    topic = services.catalog.find_topic(
        topic_data.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic_data.topic
    )
    if topic is None or not 0 <= asked.partition < len(topic.partitions):
        return None
    partition = topic.partitions[asked.partition]
    if partition is None or partition.is_closed:
        return None
    if asked.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch):
        return None
    if asked.last_fetched_epoch not in (NO_EPOCH, latest_epoch(partition)):
        return None
    if version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
        return None
    return partition
