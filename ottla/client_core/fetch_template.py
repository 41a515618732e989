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
from typing import NamedTuple

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.framing import SIZE_BYTES, frame
from ottla.protocol.headers import encode_request_header, response_header
from ottla.protocol.message import encode_buffers
from ottla.protocol.types import Buffer

FIRST_VERSION = 12
"""The version of Fetch from which lengths are varints, and a request has the epoch of the batch before its offset."""
_FRONT = struct.Struct(">ihhi")
"""Size, API key, version, correlation id."""
_PLACE = struct.Struct(">qi")
"""Offset, epoch of the batch before it."""
_NUMBERS = struct.Struct(">qqq")
_CORRELATION_ID_BYTES = 4
_LONGEST_VARINT_BYTES = 5


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
