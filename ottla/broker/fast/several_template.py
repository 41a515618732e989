"""The template of Produce requests that may name several partitions, of several topics.

The requests of Java's producer, of franz-go and of clients built on librdkafka have batches of many partitions, and
each request of others. What such requests have in common is remembered per connection, with the topics that were named:

    length 4, key, version | correlation id 4 | client id ... acks, timeout | topics
                                              -------- remembered --------

Any partitions of these topics may be named, in any order, also a single one (`produce_layout.py` reads them). Each
batch is gathered as on the slow path, and one object waits for all of them (`several_request.py`). Everything else
takes the slow path, with nothing done: topics that were not named before, partitions that do not exist or are named
twice, many whose files have to be opened (`partitions/first_appends.py`), requests without records, tags. The template
is not learnt for a client under a quota, nor for requests with a transactional id.

Topics are learnt only from requests that took the slow path, which has checked the right to each of them.
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from ottla.broker.fast.produce_layout import FIRST_VERSION_WITH_TOPIC_IDS, LAST_VERSION, layout_of
from ottla.broker.fast.several_request import SeveralRequest
from ottla.broker.partitions.first_appends import FEW_PARTITIONS
from ottla.broker.partitions.plain_appends import PlainAppends
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.headers import decode_request_header
from ottla.protocol.message import encode
from ottla.storage.log.append import FIRST_PRODUCE_VERSION_WITH_ZSTD, TAKES_ZSTD

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices
    from ottla.broker.partitions.appending import PartitionAppend
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import MeterOf

MOST_TOPICS: Final = 256
"""Topics remembered per connection; a client that writes to more takes the slow path for the rest."""
_LENGTH_BYTES: Final = 4
_KEY_START: Final = 12  # of a frame with its length: after the correlation id


class SeveralTemplate:
    """See the module. A connection has one, or none."""

    __slots__ = (
        *("_known", "_max_frame_bytes", "_plain_appends", "_smallest_bytes", "_unpack", "acks", "clock", "front"),
        *("layout", "meter", "meter_of", "takes", "timeout_ms", "version"),
    )

    def __init__(
        self, front: bytes, request: ProduceRequest, version: int, services: ApiServices, meter_of: MeterOf
    ) -> None:
        self.version = version
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        self.takes = TAKES_ZSTD if version >= FIRST_PRODUCE_VERSION_WITH_ZSTD else 0
        self.clock = services.clock
        self.meter_of = meter_of
        self.meter = meter_of(0)
        self.layout = layout_of(version)
        self._known: dict[bytes, list[Partition | None]] = {}
        """The partitions of topics, by the topics' names in requests: the catalog's own lists, which grow."""
        self._max_frame_bytes = services.config.socket_request_max_bytes
        self._plain_appends = PlainAppends()
        self.front = front
        whole = struct.Struct(f">iIi{len(front)}s")
        self._unpack, self._smallest_bytes = whole.unpack_from, whole.size

    def start(self, view: memoryview, start: int, end: int) -> tuple[SeveralRequest, int] | None:
        """Start the Produce with which `view[start:end]` begins: the request, and where the next frame begins.

        None, with nothing done, when the slow path must start it.
        """
        smallest_bytes = self._smallest_bytes
        if end - start < smallest_bytes:
            return None
        started_ns = perf_counter_ns()
        unpack = self._unpack  # CPython is slow at looking up a slot and calling it in one expression
        frame_bytes, kind, correlation_id, front = unpack(view, start)
        following = start + _LENGTH_BYTES + frame_bytes
        # API key and version; Produce is 0.
        if kind != self.version or following > end or front != self.front or frame_bytes > self._max_frame_bytes:
            return None
        read = self.layout.named
        named = read(view, start + smallest_bytes, following, self._known)
        if named is None:
            return None
        partitions, batches, topics = named
        results: dict[PartitionAppend, bytes | None] = dict.fromkeys(partitions)
        count = len(partitions)
        if not results or len(results) != count:
            return None  # none is named, or one is named twice
        if count > FEW_PARTITIONS:
            plain = self._plain_appends
            if not plain.are_expected(partitions, batches, frame_bytes, self.clock.wall_ms()):
                return None
        request = SeveralRequest(self, correlation_id, results, topics, started_ns)
        takes = self.takes
        for partition, records in zip(partitions, batches):  # noqa: B905  (a keyword takes time on the hot path)
            partition.gather_run([records], len(records), request, takes)
        return request, following

    def learn(self, request: ProduceRequest, services: ApiServices) -> None:
        """Remember the topics of a request that takes the slow path. Topics that do not exist are not learnt, nor are
        internal ones.
        """
        by_id = self.version >= FIRST_VERSION_WITH_TOPIC_IDS
        for topic_data in request.topic_data:
            topic = services.catalog.find_topic(topic_data.topic_id if by_id else topic_data.name)
            if topic is None or topic.is_internal:
                continue
            key = self.layout.topic_key(topic.name, topic.id)
            if key in self._known or len(self._known) < MOST_TOPICS:
                self._known[key] = topic.partitions


def front_of(frame: memoryview, request: ProduceRequest, version: int) -> bytes | None:
    """The bytes that requests like this one have in common, from the correlation id up to their topics; None where this
    template does not know them.
    """
    if version > LAST_VERSION or request.transactional_id is not None:
        return None
    _, body_at = decode_request_header(frame)
    without_topics = ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[])
    said = encode(without_topics, version)[: -layout_of(version).topics_bytes]
    topics_at = body_at + len(said)
    return bytes(frame[_KEY_START - _LENGTH_BYTES : topics_at]) if frame[body_at:topics_at] == said else None
