"""The Produce request for one batch of one partition, and its answer, from bytes that are encoded once.

Two such requests differ only in the correlation id, the records and the lengths; two answers without an error differ
only in the offset, the append time and the log start. So a request is the fixed bytes with the records between them,
and an answer is compared with the bytes that are expected around these three numbers. Any other answer (an error, a
pause, a new leader) is left to the decoder. The bytes of a template come from the codecs themselves, which know the
versions.

Worked example, the answer in version 13 to partition 0 (topic id `77` * 16): `00` (no tags in its header), `02`
(one topic), the topic id, `02` (one partition), `00000000 0000` (partition 0, no error), three numbers of 8 bytes,
`01 00 00 00` (no refused records, no message, no tags), `00000000` (no pause), `00` (no tags).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from uuid import UUID

from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import UnencodableMessage
from ottla.protocol.framing import MAX_FRAME_BYTES, SIZE_BYTES, frame
from ottla.protocol.headers import encode_request_header, response_header
from ottla.protocol.message import encode_buffers
from ottla.protocol.primitives import encode_unsigned_varint
from ottla.protocol.records.batch import (
    CHECKED_FORMAT,
    FRONT_FORMAT,
    HEADER_BYTES,
    MAGIC,
    MIN_BATCH_LENGTH,
    seal_payload,
)
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.types import Buffer

FIRST_VERSION = 9
"""The version of Produce from which lengths are varints, and an answer has all three numbers."""
JOINED_BYTES = 4096
"""Up to this size a batch is copied into its frame: one buffer is sent faster than three."""
_FRONT_FORMAT = "ihhi"
"""Size, API key, version, correlation id."""
_FRONT = struct.Struct(f">{_FRONT_FORMAT}")
_CHECKED_BYTES = struct.calcsize(f">{CHECKED_FORMAT}")
_ANY_OFFSET, _NO_LEADER_EPOCH = 0, -1
"""The first fields of a batch, which the broker writes."""
_ANSWER_FRONT = struct.Struct(">ii")
"""Size, correlation id."""
_NUMBERS_FORMAT = "qqq"
_read_numbers = struct.Struct(f">{_NUMBERS_FORMAT}").unpack_from
_length = lru_cache(1024)(encode_unsigned_varint)


@lru_cache(1024)
def _packers(middle_bytes: int, payload_bytes: int, end_bytes: int) -> tuple[Callable[..., bytes], ...]:
    """Return two functions for frames of these sizes: one packs the checked part of a batch, the other the frame."""
    checked = f">{CHECKED_FORMAT}{payload_bytes}s"
    frame = f">{_FRONT_FORMAT}{middle_bytes}s{FRONT_FORMAT}{_CHECKED_BYTES + payload_bytes}s{end_bytes}s"
    return struct.Struct(checked).pack, struct.Struct(frame).pack


class ProduceTemplate:
    """See the module. The topic is named by `topic` up to version 12, and by `topic_id` in later versions."""

    __slots__ = (
        "_answer_bytes",
        "_answer_end",
        "_answer_front",
        "_end",
        "_fixed_bytes",
        "_frame_bytes",
        "_front",
        "_middle",
        "_numbers_end",
        "_numbers_position",
        "_pack_checked",
        "_pack_frame",
        "_payload_bytes",
        "_read_alone",
        "_records_bytes",
        "_whole_answer_bytes",
        "topic_id",
        "version",
    )

    def __init__(
        self,
        version: int,
        *,
        client_id: str,
        topic: str,
        topic_id: UUID,
        partition: int,
        acks: int,
        timeout_ms: int,
    ) -> None:
        if version < FIRST_VERSION:
            raise ValueError(f"Produce has templates from version {FIRST_VERSION} on, not in {version}")
        self.version = version
        self.topic_id = topic_id
        records = b"\0"
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        topic_data = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic_data])
        header = encode_request_header(ProduceRequest.message_key, version, 0, client_id)
        size, *buffers = frame([header, *encode_buffers(request, version)])
        place = next(place for place, buffer in enumerate(buffers) if buffer is records)
        length_bytes = len(encode_unsigned_varint(len(records) + 1))
        before = b"".join([size, *buffers[:place]])
        self._front = before[_FRONT.size : -length_bytes]
        self._end = b"".join(buffers[place + 1 :])
        self._records_bytes = -1
        """The size of the last request's records, for which the next two values are right."""
        self._frame_bytes, self._middle = 0, b""
        self._payload_bytes = -1
        """The size of the last payload of `frame_batch`, if the last four values are right for it."""
        self._pack_checked, self._pack_frame = _packers(0, 0, 0)
        self._fixed_bytes = _FRONT.size - SIZE_BYTES + len(self._front) + len(self._end)

        low, high = (self._answer(version, topic, topic_id, partition, number) for number in (0, -1))
        differing = [place for place, (one, other) in enumerate(zip(low, high, strict=True)) if one != other]
        self._numbers_position = differing[0]
        self._numbers_end = differing[-1] + 1
        self._answer_front = low[4 : differing[0]]
        self._answer_end = low[self._numbers_end :]
        self._answer_bytes = len(low)
        parts = struct.Struct(f">{SIZE_BYTES + differing[0]}s{_NUMBERS_FORMAT}{len(self._answer_end)}s")
        self._read_alone, self._whole_answer_bytes = parts.unpack_from, parts.size

    @staticmethod
    def _answer(version: int, topic: str, topic_id: UUID, partition: int, number: int) -> bytes:
        """Return an answer without an error, its three numbers all `number`."""
        appended = ProduceResponse.PartitionProduceResponse(
            index=partition, base_offset=number, log_append_time_ms=number, log_start_offset=number
        )
        answer = ProduceResponse.TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[appended])
        body = encode_buffers(ProduceResponse(responses=[answer]), version)
        return b"".join([response_header(ProduceResponse.message_key, version, 0), *body])

    def frame(self, correlation_id: int, records: Buffer) -> list[Buffer]:
        """Return the buffers of a request with these records, its size included. Raises UnencodableMessage for a frame
        that is too large.
        """
        size_bytes = len(records)
        if size_bytes != self._records_bytes:
            self._resize(size_bytes)
        front = _FRONT.pack(self._frame_bytes, 0, self.version, correlation_id)
        if size_bytes <= JOINED_BYTES:
            return [b"".join((front, self._middle, records, self._end))]
        return [front + self._middle, records, self._end]

    def frame_batch(
        self,
        correlation_id: int,
        payload: bytes | bytearray,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> list[Buffer]:
        """As `frame`, with the batch of encoded records that are compressed with the codec in `attributes`.

        A small batch is packed together with its frame, which is faster than one after the other.
        """
        size_bytes = len(payload)
        if size_bytes != self._payload_bytes:
            if size_bytes > JOINED_BYTES - HEADER_BYTES:
                records = seal_payload(
                    payload,
                    _ANY_OFFSET,
                    _NO_LEADER_EPOCH,
                    attributes,
                    last_offset_delta,
                    base_timestamp,
                    max_timestamp,
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    record_count,
                )
                return self.frame(correlation_id, records)
            self._resize_payload(size_bytes)
        checked = self._pack_checked(
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
            payload,
        )
        return [
            self._pack_frame(
                self._frame_bytes,
                0,
                self.version,
                correlation_id,
                self._middle,
                _ANY_OFFSET,
                MIN_BATCH_LENGTH + size_bytes,
                _NO_LEADER_EPOCH,
                MAGIC,
                crc32c(checked),
                checked,
                self._end,
            )
        ]

    def _resize_payload(self, size_bytes: int) -> None:
        """Prepare `frame_batch` for payloads of this size."""
        self._resize(size_bytes + HEADER_BYTES)
        self._payload_bytes = size_bytes
        self._pack_checked, self._pack_frame = _packers(len(self._middle), size_bytes, len(self._end))

    def _resize(self, size_bytes: int) -> None:
        """Prepare requests with records of this size: the next ones often have the same. Raises UnencodableMessage."""
        length = _length(size_bytes + 1)
        frame_bytes = self._fixed_bytes + len(length) + size_bytes
        if frame_bytes > MAX_FRAME_BYTES:
            raise UnencodableMessage(f"a frame of {frame_bytes} bytes is larger than {MAX_FRAME_BYTES}")
        self._records_bytes, self._frame_bytes, self._middle = size_bytes, frame_bytes, self._front + length
        self._payload_bytes = -1

    def answer_front(self, correlation_id: int) -> bytes:
        """Return the bytes, with the size, with which the answer begins that `appended_alone` reads."""
        return _ANSWER_FRONT.pack(self._answer_bytes, correlation_id) + self._answer_front

    def appended_alone(self, received: Buffer, count: int, front: bytes) -> tuple[int, int] | None:
        """As `appended`, for `count` received bytes and the `answer_front` of the only request in flight.

        None also if they are not exactly its answer.
        """
        if count != self._whole_answer_bytes:
            return None
        received_front, base_offset, log_append_time_ms, _, end = self._read_alone(received)
        if received_front != front or end != self._answer_end:
            return None
        return base_offset, log_append_time_ms

    def appended(self, data: Buffer) -> tuple[int, int] | None:
        """Return base offset and log append time (-1: none) from an answer; None if it has to be decoded.

        `data` is the whole frame, without its size.
        """
        if len(data) != self._answer_bytes:
            return None
        position = self._numbers_position
        if data[4:position] != self._answer_front or data[self._numbers_end :] != self._answer_end:
            return None
        base_offset, log_append_time_ms, _ = _read_numbers(data, position)
        return base_offset, log_append_time_ms
