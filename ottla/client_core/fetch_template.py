"""The Fetch request for one partition, and its answer, from bytes that are encoded once.

Two such requests differ only in the correlation id, the offset and the epoch of the batch before it. Two answers
without an error differ only in three offsets and the records. Any other answer (an error, a pause, aborted
transactions, another log) is left to the decoder. The bytes of a template come from the codecs themselves, as in
`produce_template`.

Worked example, the answer in version 13 for partition 0 (topic id `77` * 16): `00` (no tags in its header),
`00000000 0000 00000000` (no pause, no error, no session), `02` (one topic), the topic id, `02` (one partition),
`00000000 0000` (partition 0, no error), three offsets of 8 bytes, `00` (no list of aborted transactions), `ffffffff`
(no other replica), the length of the records plus one as a varint, the records, `000000` (no tags).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.framing import SIZE_BYTES, frame
from ottla.protocol.headers import encode_request_header, response_header
from ottla.protocol.message import encode_buffers
from ottla.protocol.primitives import encode_unsigned_varint
from ottla.protocol.types import Buffer

FIRST_VERSION = 12
"""The version of Fetch from which lengths are varints, and a request has the epoch of the batch before its offset."""
_FRONT = struct.Struct(">ihhi")
"""Size, API key, version, correlation id."""
_PLACE = struct.Struct(">qi")
"""Offset, epoch of the batch before it."""
_NUMBERS = struct.Struct(">qqq")
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_BYTES = _CORRELATION_ID.size
_LONGEST_VARINT_BYTES = 5
MOST_ALONE_BYTES = 4096
"""The size up to which an answer may be read by `fetched_alone`, which copies its records."""


@lru_cache(1024)
def _reader(front_bytes: int, middle_bytes: int, records_bytes: int, end_bytes: int) -> Callable[[Buffer], Any]:
    """Return a function that unpacks an answer with parts of these sizes: size, front, three offsets, and the rest."""
    return struct.Struct(f">i{front_bytes}sqqq{middle_bytes}s{records_bytes}s{end_bytes}s").unpack_from


class Fetched(NamedTuple):
    """The partition's part of an answer. `records` is a view of the answer."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview


class FetchTemplate:
    """See the module. Made from a request for one partition of one topic, whose offset and epoch do not matter."""

    __slots__ = (
        "_answer_end",
        "_answer_front",
        "_answer_middle",
        "_end",
        "_front",
        "_middle_alone",
        "_read_alone",
        "_received_bytes",
        "_size_bytes",
        "api_key",
        "version",
    )

    def __init__(self, version: int, client_id: str, request: FetchRequest) -> None:
        if version < FIRST_VERSION:
            raise ValueError(f"Fetch has templates from version {FIRST_VERSION} on, not in {version}")
        self.api_key = FetchRequest.message_key
        self.version = version
        (topic,) = request.topics
        (asked,) = topic.partitions
        place = asked.fetch_offset, asked.last_fetched_epoch
        low, high = (self._request(version, client_id, request, number) for number in (0, -1))
        asked.fetch_offset, asked.last_fetched_epoch = place
        differing = [at for at, (one, other) in enumerate(zip(low, high, strict=True)) if one != other]
        self._front = low[_FRONT.size : differing[0]]
        self._end = low[differing[-1] + 1 :]
        self._size_bytes = len(low) - SIZE_BYTES

        is_committed = request.isolation_level == 1
        low, high = (_answer(version, topic, asked.partition, is_committed, number, b"") for number in (0, -1))
        differing = [at for at, (one, other) in enumerate(zip(low, high, strict=True)) if one != other]
        self._answer_front = low[_CORRELATION_ID_BYTES : differing[0]]
        longer = _answer(version, topic, asked.partition, is_committed, 0, b"\xff")
        length_at = next(at for at, (one, other) in enumerate(zip(low, longer, strict=False)) if one != other)
        self._answer_middle = low[differing[-1] + 1 : length_at]
        self._answer_end = low[length_at + 1 :]
        self._received_bytes = -1
        """The size of the last answer of `fetched_alone`, for which the next two values are."""
        self._read_alone, self._middle_alone = _reader(0, 0, 0, 0), b""

    @staticmethod
    def _request(version: int, client_id: str, request: FetchRequest, number: int) -> bytes:
        asked = request.topics[0].partitions[0]
        asked.fetch_offset = asked.last_fetched_epoch = number
        header = encode_request_header(FetchRequest.message_key, version, 0, client_id)
        return b"".join(frame([header, *encode_buffers(request, version)]))

    def frame(self, correlation_id: int, varying: Buffer, /) -> list[Buffer]:
        """Return the buffers of a request for a `place`, its size included."""
        front = _FRONT.pack(self._size_bytes, self.api_key, self.version, correlation_id)
        return [b"".join((front, self._front, varying, self._end))]

    def answer_front(self, correlation_id: int) -> bytes:
        """Return the bytes, after the size, with which the answer begins that `fetched_alone` reads."""
        return _CORRELATION_ID.pack(correlation_id) + self._answer_front

    def fetched_alone(self, received: Buffer, count: int, front: bytes) -> Fetched | None:
        """As `fetched`, for `count` received bytes and the `answer_front` of the only request in flight.

        `records` is a copy. None also if the bytes are not exactly its answer, or too many.
        """
        if count != self._received_bytes and not self._expect(count):
            return None
        size, answer_front, high_watermark, stable, start, middle, records, end = self._read_alone(received)
        if size != count - SIZE_BYTES or answer_front != front:
            return None
        if middle != self._middle_alone or end != self._answer_end:
            return None
        return tuple.__new__(Fetched, (high_watermark, stable, start, memoryview(records)))

    def _expect(self, count: int) -> bool:
        """Prepare `fetched_alone` for an answer of this size; return False if none has it."""
        if count > MOST_ALONE_BYTES:
            return False
        front_bytes, end_bytes = _CORRELATION_ID_BYTES + len(self._answer_front), len(self._answer_end)
        rest = count - SIZE_BYTES - front_bytes - _NUMBERS.size - len(self._answer_middle) - end_bytes
        for records_bytes in range(rest - 1, max(rest - _LONGEST_VARINT_BYTES, 0) - 1, -1):
            length = encode_unsigned_varint(records_bytes + 1)
            if len(length) + records_bytes == rest:
                self._middle_alone = self._answer_middle + length
                self._read_alone = _reader(front_bytes, len(self._middle_alone), records_bytes, end_bytes)
                self._received_bytes = count
                return True
        return False

    def fetched(self, data: Buffer) -> Fetched | None:
        """Return the content of an answer; None if it must be decoded. `data` is the whole frame, without its size."""
        at = _CORRELATION_ID_BYTES + len(self._answer_front)
        if data[_CORRELATION_ID_BYTES:at] != self._answer_front:
            return None
        length_at = at + _NUMBERS.size + len(self._answer_middle)
        if data[at + _NUMBERS.size : length_at] != self._answer_middle:
            return None
        number = shift = 0
        for byte in data[length_at : length_at + _LONGEST_VARINT_BYTES]:
            length_at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        end = length_at + number - 1
        if number == 0 or data[end:] != self._answer_end:
            return None
        return tuple.__new__(Fetched, (*_NUMBERS.unpack_from(data, at), memoryview(data)[length_at:end]))


place = _PLACE.pack
"""(offset, epoch of the batch before it): the varying part of a request."""


def _answer(
    version: int, topic: FetchRequest.FetchTopic, partition: int, is_committed: bool, number: int, records: bytes
) -> bytes:
    """Return an answer without an error, its three offsets all `number`."""
    data = FetchResponse.PartitionData(
        partition_index=partition,
        high_watermark=number,
        last_stable_offset=number,
        log_start_offset=number,
        aborted_transactions=[] if is_committed else None,
        records=records,
    )
    answer = FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
    body = encode_buffers(FetchResponse(responses=[answer]), version)
    return b"".join([response_header(FetchResponse.message_key, version, 0), *body])
