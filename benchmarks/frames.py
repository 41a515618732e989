"""The prepared bytes that the load generator and the floor exchange, and the positions of the numbers in them.

Frames are made by Ottla's own encoder, which the tests compare with independent ones; batches have 100-byte records.
"""

from __future__ import annotations

import struct
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.headers import encode_request_header, response_header
from ottla.protocol.message import encode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

PRODUCE_VERSION = 9
SESSION_FETCH_VERSION = 18
FETCH_VERSION = 12
OFFSET_MARK = 0x1122334455667788
ERROR_MARK = 0x1122
RECORD_BYTES = 100
STARTED_MS = time.time_ns() // 1_000_000
"""The time of the records: older ones would be deleted by retention during a run of some minutes."""


def batch_of(size_bytes: int) -> tuple[bytes, int]:
    """A valid uncompressed batch of about `size_bytes`, and its number of records."""
    count = max(1, (size_bytes - 61) // (RECORD_BYTES + 8))
    value = bytes(range(65, 91)) * (RECORD_BYTES // 26 + 1)
    stamp = STARTED_MS
    if count == 1:
        value = value * (size_bytes // len(value) + 1)
        records = [Record(0, stamp, None, value[: max(1, size_bytes - 72)], ())]
    else:
        records = [Record(i, stamp, None, value[:RECORD_BYTES], ()) for i in range(count)]
    return bytes(encode_batch(records)), count


def framed(header: bytes, body: bytes) -> bytes:
    """The int32 length, the header, the body."""
    return struct.pack(">i", len(header) + len(body)) + header + body


@dataclass(frozen=True)
class Exchange:
    """One request frame with its positions; the error code of the response is at byte `error_at`."""

    frame: bytes
    error_at: int
    offset_at: int = -1
    records_at: int = 0
    records_tail: int = 0


def produce_exchange(topic: str, batch: bytes, acks: int) -> Exchange:
    """A Produce of one batch to partition 0."""
    data = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30000,
        topic_data=[
            data(name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]),
        ],
    )
    frame = framed(encode_request_header(0, PRODUCE_VERSION, 0, "bench"), encode(request, PRODUCE_VERSION))
    at = frame.index(batch)
    # length 4, correlation id 4, header tags 1, topics 1, name 1 + n, partitions 1, index 4, then the error code
    return Exchange(frame, 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4, -1, at, len(frame) - at - len(batch))


def produce_response(topic: str) -> bytes:
    """A broker's answer to `produce_exchange`, with correlation id 0."""
    response = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic,
                partition_responses=[ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=0)],
            )
        ]
    )
    return framed(response_header(0, PRODUCE_VERSION, 0), encode(response, PRODUCE_VERSION))


def fetch_exchange(topic: str, max_bytes: int) -> Exchange:
    """A Fetch of one batch of partition 0, without a session."""
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=0x7FFFFFFF,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=0, fetch_offset=OFFSET_MARK, partition_max_bytes=max_bytes, current_leader_epoch=-1
                    )
                ],
            )
        ],
    )
    frame = framed(encode_request_header(1, FETCH_VERSION, 0, "bench"), encode(request, FETCH_VERSION))
    # The partition's error code: that of the response does not report an offset out of range.
    refused, _ = fetch_response_ends(topic, b"records", error_code=ERROR_MARK)
    return Exchange(frame, refused.index(struct.pack(">h", ERROR_MARK)), frame.index(struct.pack(">q", OFFSET_MARK)))


def session_fetch(topic_id: uuid.UUID, max_bytes: int, session_id: int, epoch: int, offset: int) -> bytes:
    """The frame of a Fetch of partition 0 in a session (KIP-227), as Java's consumers send it; epoch 0 opens one."""
    wanted = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=0
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )
    header = encode_request_header(1, SESSION_FETCH_VERSION, 0, "bench")
    return framed(header, encode(request, SESSION_FETCH_VERSION))


def fetch_response_ends(topic: str, batch: bytes, error_code: int = 0) -> tuple[bytes, bytes]:
    """The bytes before and after the batch in a broker's answer to `fetch_exchange`."""
    response = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic,
                topic_id=uuid.UUID(int=0),
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=0, error_code=error_code, high_watermark=1, last_stable_offset=1, records=batch
                    )
                ],
            )
        ]
    )
    whole = framed(response_header(1, FETCH_VERSION, 0), encode(response, FETCH_VERSION))
    at = whole.index(batch)
    return whole[:at], whole[at + len(batch) :]


def write(directory: Path, name: str, content: bytes) -> Path:
    """Write prepared bytes to files for the C programs."""
    path = directory / name
    path.write_bytes(content)
    return path
